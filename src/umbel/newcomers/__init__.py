"""Clients that took no part in a run: their clusters, and how sure these are."""
