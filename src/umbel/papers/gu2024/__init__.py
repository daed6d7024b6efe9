"""Gu et al., LCFL: a loss-based clustered federated learning framework, 2024."""
