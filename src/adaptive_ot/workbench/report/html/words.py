"""What a match comes to, in sentences."""

from __future__ import annotations

from typing import Any

from adaptive_ot.plot.names import TURNING
from adaptive_ot.workbench.report.contents import Match
from adaptive_ot.workbench.report.fields import counted
from adaptive_ot.workbench.report.html.explorer import ROUNDING, WORTH_A_LOOK

MOST_NAMES = 12

# The sides, and what their samples do.
SIDES = {"source": "send", "target": "receive"}


def summary(match: Match, data: dict[str, Any]) -> list[str]:
    """How much moved, and which classes only one side has."""
    source, target = data["source"], data["target"]
    sizes = f"{counted(len(source['names']), 'source')} and {counted(len(target['names']), 'target')}."
    if not data["count"]:
        return [f"{sizes} Nothing was matched: no pair carries mass.", *_missing(data)]
    moved = f"{counted(data['count'], 'pair')} {'carries' if data['count'] == 1 else 'carry'}"
    if data["traces"]:
        moved = f"{counted(data['count'], 'pair')}, and traces on {counted(data['traces'], 'other')}, carry"
    shares = " and ".join(f"{_percent(sum(data[s]['moved']), sum(data[s]['weights']))} of the {s}" for s in SIDES)
    told = f"{sizes} {moved} mass {data['mass']:.4g}: {shares}."
    return [told, *_traces(data), *_missing(data), *_left_out(match, data)]


def pairs(data: dict[str, Any]) -> str:
    carry = f"carry {'more than traces of ' if data['traces'] else ''}mass"
    if data["count"] > data["most"]["all"]:
        return f"The {data['most']['all']:,} strongest of {data['count']:,} pairs that {carry}."
    return f"All {data['count']:,} pairs that {carry}, the strongest first."


def left(data: dict[str, Any], side: str) -> str:
    """How many of a side were left alone."""
    own, verb = data[side], SIDES[side]
    alone = sum(own["moved"][k] <= ROUNDING * own["weights"][k] for k in own["left"])
    if not own["left"]:
        return f"None: of every {side}, at least half of its mass is matched."
    told = f"{len(own['left']):,} of {counted(len(own['names']), side)}: less than half of its mass is matched"
    nothing = f"; {alone:,} {verb}{'s' if alone == 1 else ''} nothing" if alone else ""
    return f"{told}{nothing}. Most mass left first."


def disagreements(data: dict[str, Any]) -> str:
    """How often plan and prediction differ, and who is right if that is known."""
    plan, predicted, truth = data["plan"], data["target"]["predicted"], data["target"]["class"]
    matched = sum(label >= 0 for label in plan)
    differ = data["disagreements"]
    if not differ:
        return f"None: plan and prediction agree on all of {counted(matched, 'matched target')}."
    told = f"They differ on {len(differ):,} of {counted(matched, 'matched target')}."
    if truth is None:
        return told
    by_plan = sum(plan[k] == truth[k] for k in differ)
    by_prediction = sum(predicted[k] == truth[k] for k in differ)
    neither = len(differ) - by_plan - by_prediction
    return (
        f"{told} The plan is right on {by_plan:,} of them, the prediction on {by_prediction:,}, neither on {neither:,}."
    )


def _traces(data: dict[str, Any]) -> list[str]:
    """What does not appear in lists and maps."""
    if not data["traces"]:
        return []
    rule = f"less than {_percent(WORTH_A_LOOK, 1)} of the strongest pair of the source and of the target"
    return [f"Traces are {rule}, and what hardly matched samples move: they count in sums, but are not listed."]


def _missing(data: dict[str, Any]) -> list[str]:
    """Classes that only one side has."""
    source, target = data["source"], data["target"]
    if "samples" in (source["kind"], target["kind"]):
        return []
    told = []
    for own, other, name in ((source, target, "source"), (target, source, "target")):
        only = [
            group
            for group, here, there in zip(own["groups"], own["sizes"], other["sizes"], strict=True)
            if here and not there
        ]
        if only:
            told.append(f"Classes only in the {name}{_by(own, other)}: {_some(only)}.")
    return told


def _by(own: dict[str, Any], other: dict[str, Any]) -> str:
    return " (by prediction)" if "predicted class" in (own["kind"], other["kind"]) else ""


def _left_out(match: Match, data: dict[str, Any]) -> list[str]:
    """What the page has no room for."""
    told = []
    without = sum(uri is None for side in SIDES for uri in data[side]["images"] or ())
    if without:
        told.append(
            f"The page has no room for the images of {counted(without, 'sample')}; those in the lists went first."
        )
    for side, given in (("source", match.source), ("target", match.target)):
        if len(given.columns) > len(data[side]["columns"]):
            told.append(
                f"Of the {side}, the first {len(data[side]['columns'])} of {len(given.columns):,} values are shown."
            )
    return told


def _some(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(map(_isolated, names[:MOST_NAMES])) + (f" and {more:,} more" if more > 0 else "")


def _isolated(name: str) -> str:
    """A name that cannot turn the words of a sentence around it from right to left."""
    if name.isascii():
        return name
    return f"\N{FIRST STRONG ISOLATE}{''.join(each for each in name if each not in TURNING)}\N{POP DIRECTIONAL ISOLATE}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g}\N{NO-BREAK SPACE}%" if whole else "nothing"
