"""A match in sentences, from the data of `explore`."""

from __future__ import annotations

from typing import Any

from adaptive_ot.plot.names import TURNING
from adaptive_ot.workbench.report.html.explorer import ROUNDING, WORTH_A_LOOK
from adaptive_ot.workbench.wording import counted, sources_and_targets

MOST_NAMES = 12

# The sides, and what their samples do.
SIDES = {"source": "send", "target": "receive"}


def summary(data: dict[str, Any]) -> list[str]:
    """How much moved, which classes only one side has, and what the page leaves out."""
    source, target = data["source"], data["target"]
    sizes = f"{sources_and_targets(len(source['names']), len(target['names']))}."
    if not data["count"]:
        return [f"{sizes} Nothing was matched: no pair carries mass.", *_missing(data)]
    moved = f"{counted(data['count'], 'pair')} {'carries' if data['count'] == 1 else 'carry'}"
    if data["traces"]:
        moved = f"{counted(data['count'], 'pair')}, and traces on {counted(data['traces'], 'other')}, carry"
    shares = " and ".join(f"{_percent(sum(data[s]['moved']), sum(data[s]['weights']))} of the {s}" for s in SIDES)
    sentences = [f"{sizes} {moved} mass {data['mass']:.4g}: {shares}."]
    if data["traces"]:
        rule = f"less than {_percent(WORTH_A_LOOK, 1)} of the strongest pair of the source and of the target"
        samples = "what hardly matched samples move"
        sentences.append(f"Traces are {rule}, and {samples}: they count in sums, but are not listed.")
    return [*sentences, *_missing(data), *_left_out(data)]


def pairs(data: dict[str, Any]) -> str:
    carry = f"carry {'more than traces of ' if data['traces'] else ''}mass"
    if data["count"] > data["most"]["all"]:
        return f"The {data['most']['all']:,} strongest of {data['count']:,} pairs that {carry}."
    return f"All {data['count']:,} pairs that {carry}, the strongest first."


def left(data: dict[str, Any], side: str) -> str:
    """How many samples of a side were left alone."""
    own, verb = data[side], SIDES[side]
    alone = sum(own["moved"][k] <= ROUNDING * own["weights"][k] for k in own["left"])
    if not own["left"]:
        return f"None: at least half of the mass of every {side} is matched."
    have = "has less than half of its mass" if len(own["left"]) == 1 else "have less than half of their mass"
    count = f"{len(own['left']):,} of {counted(len(own['names']), side)} {have} matched"
    nothing = f"; {alone:,} {verb}{'s' if alone == 1 else ''} nothing" if alone else ""
    return f"{count}{nothing}. Most mass left first."


def disagreements(data: dict[str, Any]) -> str:
    """How often plan and prediction differ, and which is right if that is known."""
    plan, predicted, truth = data["plan"], data["target"]["predicted"], data["target"]["class"]
    matched = counted(sum(label >= 0 for label in plan), "matched target")
    differ = data["disagreements"]
    if not differ:
        return f"None: plan and prediction agree on all of {matched}."
    count = f"They differ on {len(differ):,} of {matched}."
    if truth is None:
        return count
    right, other = (sum(by[k] == truth[k] for k in differ) for by in (plan, predicted))
    neither = len(differ) - right - other
    return f"{count} The plan is right on {right:,} of them, the prediction on {other:,}, neither on {neither:,}."


def _missing(data: dict[str, Any]) -> list[str]:
    """Classes that only one side has."""
    sides = data["source"], data["target"]
    kinds = {side["kind"] for side in sides}
    if "samples" in kinds:
        return []
    by = " (by prediction)" if "predicted class" in kinds else ""
    sentences = []
    for name, (own, other) in zip(SIDES, (sides, sides[::-1]), strict=True):
        sizes = zip(own["groups"], own["sizes"], other["sizes"], strict=True)
        only = [group for group, here, there in sizes if here and not there]
        if only:
            sentences.append(f"Classes only in the {name}{by}: {_some(only)}.")
    return sentences


def _left_out(data: dict[str, Any]) -> list[str]:
    """Images and values for which the page has no room."""
    sentences = []
    without = sum(uri is None for side in SIDES for uri in data[side]["images"] or ())
    if without:
        samples = counted(without, "sample")
        sentences.append(f"The page has no room for the images of {samples}; those in the lists went first.")
    for side in SIDES:
        shown, width = len(data[side]["columns"]), data[side]["width"]
        if width > shown:
            sentences.append(f"Of the {side}, the first {shown} of {width:,} values are shown.")
    return sentences


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(map(_isolated, names[:MOST_NAMES])) + (f" and {more:,} more" if more > 0 else "")


def _isolated(name: str) -> str:
    """A name that cannot turn the words around it from right to left."""
    if name.isascii():
        return name
    return f"\N{FIRST STRONG ISOLATE}{''.join(each for each in name if each not in TURNING)}\N{POP DIRECTIONAL ISOLATE}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g}\N{NO-BREAK SPACE}%" if whole else "nothing"
