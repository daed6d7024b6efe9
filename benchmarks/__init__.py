"""The speed of umbel, compared with the code that it replaces: `python -m benchmarks`."""
