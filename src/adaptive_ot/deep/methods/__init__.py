"""The methods of deep adaptation, one file each."""

from adaptive_ot.deep.methods.alda import ALDA
from adaptive_ot.deep.methods.aot import AOT
from adaptive_ot.deep.methods.caco import CaCo
from adaptive_ot.deep.methods.cdan import CDAN
from adaptive_ot.deep.methods.dann import DANN
from adaptive_ot.deep.methods.deepjdot import DeepJDOT
from adaptive_ot.deep.methods.jumbot import JUMBOT
from adaptive_ot.deep.methods.method import Alignment, Method, Pair
from adaptive_ot.deep.methods.mpot import MPOT
from adaptive_ot.deep.methods.rot import ROT
from adaptive_ot.deep.methods.source_only import SourceOnly

METHODS: dict[str, type[Method]] = {
    "source-only": SourceOnly,
    "aot": AOT,
    "deepjdot": DeepJDOT,
    "jumbot": JUMBOT,
    "mpot": MPOT,
    "rot": ROT,
    "dann": DANN,
    "cdan": CDAN,
    "alda": ALDA,
    "caco": CaCo,
}

__all__ = ["METHODS", "Alignment", "Method", "Pair"]
