"""Lin et al., Joint gradient and loss based clustered federated learning, 2024."""
