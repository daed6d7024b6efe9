"""Replies of clients: their checks, bounds, known sizes, and simulated faults."""
