"""Pages that show what was matched, and what was left alone."""
