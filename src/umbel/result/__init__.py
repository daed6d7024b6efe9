"""The public run and its result: what users hold in Python."""
