"""Records: what a run depends on as plain names and values, and what another run has otherwise."""

from __future__ import annotations

from typing import Any

from adaptive_ot._validation import describe


def differences(here: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """What the record over there says otherwise, by name.

    Examples
    --------
    >>> differences({"seeds": 2, "data": {"digits": "a"}}, {"seeds": 3, "data": {"digits": "a"}})
    ['seeds 3, not 2']
    >>> differences({"tasks": ["a", "b"]}, {"tasks": ["b", "c"]})
    ['tasks with c and without a']
    """
    ours, theirs, nothing = flat(here), flat(there), object()
    return [
        _difference(name, theirs.get(name), ours.get(name))
        for name in ours | theirs
        if ours.get(name, nothing) != theirs.get(name, nothing)
    ]


def flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Names of names in one, as in "data pets photo.npz"."""
    names = {}
    for name, value in record.items():
        names |= flat(value, f"{prefix}{name} ") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return names


def _difference(name: str, there: Any, here: Any) -> str:
    if not (isinstance(there, list) and isinstance(here, list)):
        return f"{name} {describe(there)}, not {describe(here)}"
    more, less = ([str(each) for each in one if each not in other] for one, other in ((there, here), (here, there)))
    parts = [f"{word} {', '.join(names)}" for word, names in (("with", more), ("without", less)) if names]
    return f"{name} {' and '.join(parts) or 'in another order'}"
