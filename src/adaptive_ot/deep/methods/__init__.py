"""The methods of deep adaptation, one file each."""

from adaptive_ot.deep.methods.method import Alignment, Method, Pair
from adaptive_ot.deep.methods.source_only import SourceOnly

METHODS: dict[str, type[Method]] = {
    "source-only": SourceOnly,
}

__all__ = ["METHODS", "Alignment", "Method", "Pair"]
