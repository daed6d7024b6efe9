"""Checks before the first round that network, objective and data fit to run."""
