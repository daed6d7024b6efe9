"""The same rounds in umbel, other libraries and a plain loop: `python -m benchmarks.peers`."""
