"""Statistics of several runs: results of each method, differences, and their certainty."""
