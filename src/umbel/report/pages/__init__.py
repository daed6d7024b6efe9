"""The pages about a run and a comparison."""
