"""The public run and its result."""
