"""What happens at a client: a network as functions of one vector, and work on its examples."""
