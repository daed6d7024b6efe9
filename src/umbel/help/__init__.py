"""Help for users: the meaning of each field, and the names that other libraries use."""
