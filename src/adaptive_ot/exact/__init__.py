"""The exact engine: a network simplex over few pairs, and pricing over all of them."""
