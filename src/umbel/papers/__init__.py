"""The tables and figures of four papers as experiments, with the published numbers beside ours."""
