"""Solvers: small frozen dataclasses of numbers, and the functions that carry them out."""
