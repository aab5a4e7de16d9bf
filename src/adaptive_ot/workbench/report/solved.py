"""The page of a solve."""

from __future__ import annotations

from adaptive_ot.solution import Status
from adaptive_ot.workbench.report.contents import Facts, Match, Note, Page, Part
from adaptive_ot.workbench.report.fields import Fields, counted, folded
from adaptive_ot.workbench.report.record import Record
from adaptive_ot.workbench.report.solutions import TOO_MANY, explorer

FINE = frozenset(status.name.lower() for status in Status if status.succeeded)

COLUMNS = "Here samples have the names of the paper, which count from 1: x1 is source #0, z1 is target #0."


def page_of(record: Record) -> Page:
    """What was solved, and how sure that is."""
    of = record.summary
    model, sources, targets = of.text("model"), of.whole("sources"), of.whole("targets")
    parts: list[Part] = []
    if of.text("status") not in FINE:
        parts.append(Note(f"The solver did not reach its tolerance: {of.text('message')}.", "warning"))
    if not of.whole("pairs"):
        parts.append(Note("Nothing moves: no pair pays."))
    parts.append(Facts("Result", _result(of)))
    parts += record.shown(_about_pictures(record.match))
    match = record.match
    parts.append(Note(TOO_MANY) if match is None else explorer(match, of.whole("pairs"), of.amount("mass")))
    parts += [folded("Configuration", of.table("configuration")), folded("Environment", of.table("environment"))]
    title = f"{model}: {counted(sources, 'source')} to {counted(targets, 'target')}"
    return Page(title, "A solve of adaptive-ot", parts)


def _about_pictures(match: Match | None) -> dict[str, tuple[str, str]]:
    """Headings and captions by name."""
    points = "Lines join what is matched; hollow points are left alone."
    in_columns = match is not None and match.source.values is None
    return {
        "transport": ("Points", f"{points} {COLUMNS}" if in_columns else points),
        "plan": ("Plan", "The mass of every pair, sources down and targets across, both counted from 0."),
        "convergence": ("Convergence", "How the certified bound closed in on the answer."),
    }


def _result(of: Fields) -> list[tuple[str, str]]:
    """The summary with its certificate, in words."""
    mass = f"{of.amount('mass'):.12g}"
    if of.is_given("most_mass"):
        most = of.amount("most_mass")
        mass += f" of at most {most:.12g} ({of.amount('mass') / (most or 1.0):.1%})"
    with_entropy = f"{of.number('regularised_value'):.12g}, which is what was minimised"
    return [
        ("status", of.text("message")),
        ("value", f"{of.number('value'):.12g}"),
        *([("with entropy", with_entropy)] if of.number("regularised_value") != of.number("value") else []),
        (
            "certified gap",
            f"{of.number('gap'):.3g}: the value is at most so far above the optimum of the exact problem",
        ),
        ("violation", f"{of.amount('violation'):.3g}: the marginals are off by at most so much"),
        ("mass", mass),
        *([("price", f"{of.number('price'):.12g} for the last unit of mass")] if of.number("price") else []),
        ("active", " and ".join(_active(of, side) for side in ("sources", "targets"))),
        ("left alone", " and ".join(counted(of.whole(f"outlier_{side}s"), side) for side in ("source", "target"))),
        ("clusters", f"{of.whole('clusters'):,}"),
        ("pairs with mass", f"{of.whole('pairs'):,}"),
        ("effort", f"{counted(of.whole('steps'), 'step')} in {of.amount('seconds'):.2f} s"),
    ]


def _active(of: Fields, side: str) -> str:
    return f"{of.whole(f'active_{side}', most=of.whole(side)):,} of {of.whole(side):,} {side}"
