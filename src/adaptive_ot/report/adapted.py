"""The page of an adaptation."""

from __future__ import annotations

from adaptive_ot.report.contents import Facts, Note, Page, Part, Picture, Table
from adaptive_ot.report.fields import Fields, counted, folded
from adaptive_ot.report.record import Record
from adaptive_ot.report.solutions import TOO_MANY, explorer

SEVERAL_PLANS = "So many samples take several plans, which are not kept: there is nothing to draw or to look at."

HEADINGS = {
    "labels": (
        "Mass between classes",
        "How much every class sends and receives, and what it has.",
    ),
    "plan": ("Plan", "The mass of every pair of samples, sources down and targets across."),
}


def page_of(record: Record) -> Page:
    """What was matched, and which labels the target got from it."""
    of = record.summary
    sides = " to ".join(counted(of.whole(f"{side}s"), side) for side in ("source", "target"))
    title = f"{of.text('model')}: {sides}"
    parts: list[Part] = [Facts("Result", _result(of))]
    if of.is_given("predicted"):
        counts = of.numbers("predicted")
        share = max(1.0, sum(counts.values()))
        rows = [(label, int(count), round(100 * count / share, 1)) for label, count in counts.items()]
        parts.append(Table("Predicted classes", ("class", "targets", "percent"), rows))
    for name, (heading, text) in HEADINGS.items():
        if name in record.pictures:
            light, dark = record.pictures[name]
            parts.append(Picture(heading, light, dark, text, text))
    if record.match is not None:
        parts.append(explorer(record.match, of.number("mass")))
    else:
        several = (
            "So many samples take several plans, which are not kept: there are no pictures, and no pairs to look at."
        )
        parts.append(Note(several if not record.pictures else TOO_MANY))
    parts += [folded("Configuration", of.table("configuration")), folded("Environment", of.table("environment"))]
    return Page(title, f"An adaptation of adaptive-ot, method {of.text('method')}", parts)


def _result(of: Fields) -> list[tuple[str, str]]:
    rows = [
        ("mass", f"{of.number('mass'):.6g} of 1"),
        ("active sources", f"{of.whole('active_sources'):,} of {of.whole('sources'):,}"),
        ("active targets", f"{of.whole('active_targets'):,} of {of.whole('targets'):,}"),
        ("outliers", f"{counted(of.whole('outlier_targets'), 'target')}: less than half of each is matched"),
        ("features", f"{of.whole('features'):,}"),
        ("effort", f"{of.number('seconds'):.2f} s"),
    ]
    if of.is_given("gap"):  # there is one plan
        rows.insert(1, ("value", f"{of.number('value'):.6g}, what the plan costs"))
        rows.insert(
            2,
            ("certified gap", f"{of.number('gap'):.3g}: the value is at most so far above the optimum without entropy"),
        )
        rows.insert(3, ("violation", f"{of.number('violation'):.3g}: the marginals are off by at most so much"))
    if of.is_given("classes"):
        rows.insert(-1, ("classes", f"{of.whole('classes'):,}"))
    if of.is_given("accuracy"):
        unknown = of.whole("targets_of_unknown_classes")
        wrong = f"; {counted(unknown, 'target')} of classes unknown to the source count as wrong" if unknown else ""
        text = f"{of.number('accuracy'):.1%} of the target's labels, which were not used{wrong}"
        rows.insert(0, ("accuracy", text))
    return rows
