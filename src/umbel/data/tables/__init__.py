"""Tables in files as clients' examples: reading, kinds of columns, splits, statistics, features."""
