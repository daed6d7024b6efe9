"""The tables and figures of four papers as experiments, compared with the published numbers."""
