"""The methods of deep adaptation, one file each."""

from adaptive_ot.deep.methods.alda import Alda
from adaptive_ot.deep.methods.aot import AOT
from adaptive_ot.deep.methods.caco import Caco
from adaptive_ot.deep.methods.cdan import Cdan
from adaptive_ot.deep.methods.dann import Dann
from adaptive_ot.deep.methods.deepjdot import DeepJDOT
from adaptive_ot.deep.methods.jumbot import JUMBOT
from adaptive_ot.deep.methods.method import Alignment, Method, Pair
from adaptive_ot.deep.methods.mpot import MPOT
from adaptive_ot.deep.methods.rot import Rot
from adaptive_ot.deep.methods.source_only import SourceOnly

METHODS: dict[str, type[Method]] = {
    "source-only": SourceOnly,
    "aot": AOT,
    "deepjdot": DeepJDOT,
    "jumbot": JUMBOT,
    "mpot": MPOT,
    "rot": Rot,
    "dann": Dann,
    "cdan": Cdan,
    "alda": Alda,
    "caco": Caco,
}

__all__ = ["METHODS", "Alignment", "Method", "Pair"]
