"""Clients' data: federations, sources of their examples, and shifts between clients."""
