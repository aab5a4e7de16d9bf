"""What is built around the library: the command line, benchmarks, reports and what they keep on disk."""
