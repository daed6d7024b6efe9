"""The comparison of all methods on the same scenarios, with one budget for choosing settings."""
