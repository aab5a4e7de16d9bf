"""What a command line meant that cyclopts refuses, and what to type instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cyclopts import CycloptsError, MissingArgumentError, UnusedCliTokensError


def instead(error: CycloptsError, arguments: Sequence[str]) -> str:
    """One line about the error, and what to type."""
    from adaptive_ot.workbench.cli.train import field_in_a_file

    error.verbose = False
    try_this = " ".join(["Try: adaptive-ot", *(error.command_chain or ()), "--help"])
    return _omitted(error, arguments) or f"{field_in_a_file(error) or _surplus(error) or error} {try_this}"


def _surplus(error: CycloptsError) -> str:
    """The message about words that are no options and that no argument takes; empty if that is not the trouble."""
    if not isinstance(error, UnusedCliTokensError) or error.app is None:
        return ""
    taken = [each.name.upper() for each in error.app.assemble_argument_collection() if each.index is not None]
    surplus = ", ".join(map(repr, error.unused_tokens or ()))
    return f"{' '.join(error.command_chain or ())} takes only {' '.join(taken) or 'options'}; got also {surplus}."


def _omitted(error: CycloptsError, arguments: Sequence[str]) -> str:
    """The message about an argument that is missing; empty if that is not the trouble, or a name was misspelt."""
    argument = error.argument
    if (
        not isinstance(error, MissingArgumentError)
        or argument is None
        or getattr(error, "keyword", None)
        or "Did you mean" in str(error)
    ):
        return ""
    command = " ".join(error.command_chain or ())
    names = [name for name in argument.names if name.startswith("-")]
    value = argument.name.removeprefix("--").upper()
    typed = shlex.join([*arguments, min(names, key=len)] if names else arguments)
    return f"{command} needs {' or '.join(names) or value}. Type: adaptive-ot {typed} {value}"
