"""The page of a solve."""

from __future__ import annotations

from adaptive_ot.report.contents import Facts, Note, Page, Part, Picture
from adaptive_ot.report.fields import Fields, counted, folded
from adaptive_ot.report.record import Record
from adaptive_ot.report.solutions import TOO_MANY, explorer
from adaptive_ot.solution import Status

FINE = frozenset(status.name.lower() for status in Status if status.succeeded)

HEADINGS = {
    "transport": ("Points", "Lines join what is matched; hollow points are left alone."),
    "plan": ("Plan", "The mass of every pair, sources down and targets across."),
    "convergence": ("Convergence", "How the certified bound closed in on the answer."),
}


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
    for name, (light, dark) in record.pictures.items():
        if name in HEADINGS:
            heading, text = HEADINGS[name]
            parts.append(Picture(heading, light, dark, text, text))
    parts.append(Note(TOO_MANY) if record.match is None else explorer(record.match, of.number("mass")))
    parts += [folded("Configuration", of.table("configuration")), folded("Environment", of.table("environment"))]
    title = f"{model}: {counted(sources, 'source')} to {counted(targets, 'target')}"
    return Page(title, "A solve of adaptive-ot", parts)


def _result(of: Fields) -> list[tuple[str, str]]:
    """The summary with its certificate, in words."""
    mass = f"{of.number('mass'):.12g}"
    if of.is_given("most_mass"):
        most = of.number("most_mass")
        mass += f" of at most {most:.12g} ({of.number('mass') / (most or 1.0):.1%})"
    rows = [
        ("status", of.text("message")),
        ("value", f"{of.number('value'):.12g}"),
        (
            "certified gap",
            f"{of.number('gap'):.3g}: the value is at most so far above the optimum of the exact problem",
        ),
        ("violation", f"{of.number('violation'):.3g}: the marginals are off by at most so much"),
        ("mass", mass),
        ("active", " and ".join(_active(of, side) for side in ("sources", "targets"))),
        ("left alone", " and ".join(counted(of.whole(f"outlier_{side}s"), side) for side in ("source", "target"))),
        ("clusters", f"{of.whole('clusters'):,}"),
        ("pairs with mass", f"{of.whole('pairs'):,}"),
        ("effort", f"{counted(of.whole('steps'), 'step')} in {of.number('seconds'):.2f} s"),
    ]
    if of.number("price"):
        rows.insert(5, ("price", f"{of.number('price'):.12g} for the last unit of mass"))
    if of.number("regularised_value") != of.number("value"):
        rows.insert(2, ("with entropy", f"{of.number('regularised_value'):.12g}, which is what was minimised"))
    return rows


def _active(of: Fields, side: str) -> str:
    return f"{of.whole(f'active_{side}'):,} of {of.whole(side):,} {side}"
