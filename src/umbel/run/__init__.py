"""The rounds of a run in memory: their start, records, scores and end. No paths, no TOML."""
