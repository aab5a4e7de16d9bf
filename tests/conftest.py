"""Settings for all tests."""

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=300)
settings.load_profile("repeatable")
