"""Tables as clients' examples: reading, kinds of columns, splits, statistics, features."""
