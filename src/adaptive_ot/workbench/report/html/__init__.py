"""How the contents of a page become HTML."""
