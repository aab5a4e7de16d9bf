"""Benchmarks: many methods on many tasks, with results that survive whatever happens to the process."""
