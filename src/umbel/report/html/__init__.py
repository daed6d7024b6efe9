"""HTML: its elements, and the page that holds them."""
