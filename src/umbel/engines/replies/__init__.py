"""Replies of clients: checked, bounded, held against what is known, or simulated to fail."""
