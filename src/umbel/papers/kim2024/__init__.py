"""Kim et al., Clustered federated learning via gradient-based partitioning (CFL-GP), ICML 2024."""
