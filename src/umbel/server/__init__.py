"""Parts of methods: asking clients, averaging their answers, clustering them."""
