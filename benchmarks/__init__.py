"""How fast umbel is, side by side with what it replaces: `python -m benchmarks`."""
