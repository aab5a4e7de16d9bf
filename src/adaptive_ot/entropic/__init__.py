"""The entropic engine: a Newton ascent of the dual, and the sums over all pairs that it asks for."""
