"""Worker processes: a crew of them, the tensors that they share, and signals held meanwhile."""
