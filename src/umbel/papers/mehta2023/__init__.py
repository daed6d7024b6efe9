"""Mehta & Shao, A greedy agglomerative framework for clustered federated learning (FLACC), 2023."""
