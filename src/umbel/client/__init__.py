"""The client side: a network as functions of one vector, and work on a client's examples."""
