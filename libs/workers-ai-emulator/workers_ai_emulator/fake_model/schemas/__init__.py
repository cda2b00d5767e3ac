"""Fill JSON schemas with values from a text."""
