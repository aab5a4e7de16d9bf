"""Settings for all tests."""

from hypothesis import settings

# The same examples on every machine, however slow, and nothing left on disk.
settings.register_profile("repeatable", max_examples=300, deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")
