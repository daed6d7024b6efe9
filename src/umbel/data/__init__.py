"""Clients' data: federations, where their examples come from, and how clients differ."""
