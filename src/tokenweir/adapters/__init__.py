"""One module per outside product, named after it."""
