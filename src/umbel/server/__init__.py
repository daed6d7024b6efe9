"""What methods are made of: asking clients, averaging what they answer, clustering them."""
