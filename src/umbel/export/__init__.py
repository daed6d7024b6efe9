"""Models and records for other programs."""
