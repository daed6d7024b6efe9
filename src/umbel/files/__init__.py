"""Files: reading them with care, replacing them in one step, and what their cells may hold."""
