"""Matrix products, with the chains of operators around them."""
