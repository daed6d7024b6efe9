"""A run on disk: its experiment, checkpoint, records, models and evidence as files."""
