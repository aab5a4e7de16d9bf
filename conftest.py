"""Modules whose optional dependency is missing have no doctests to collect."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/adaptive_ot/solvers/softmin/triton.py"]
