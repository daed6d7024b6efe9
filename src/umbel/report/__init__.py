"""Reports of a run, or of a comparison of runs, as one self-contained HTML page."""
