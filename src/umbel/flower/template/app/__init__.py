"""Clustered federated learning over Flower."""
