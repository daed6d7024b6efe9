"""Files: careful reading, replacement in one step, and safe cells of spreadsheets."""
