"""Tools around the library: the command line, benchmarks, reports, and their files."""
