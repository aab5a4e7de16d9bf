"""The page of a solve or an adaptation, from its record."""

from __future__ import annotations

from adaptive_ot.solution import Status
from adaptive_ot.workbench import wording
from adaptive_ot.workbench.report.contents import Facts, Note, Page, Part, Picture, Table
from adaptive_ot.workbench.report.fields import Fields, folded
from adaptive_ot.workbench.report.matches import BY_CLASS, MOST_SAMPLES, explorer, weigh_the_same
from adaptive_ot.workbench.report.record import SOLVE, Record

TOO_MANY = f"There are too many samples to look at them one by one: a side may have {MOST_SAMPLES:,}."
SEVERAL_PLANS = (
    "This many samples take several plans, which are not kept: there are no pictures, and no pairs to look at."
)
CAPPED = "Sources do not weigh the same: each class of the source weighs what the target seems to hold of it."
COLUMNS = "Here samples have the names of the paper, which count from 1: x1 is source #0, z1 is target #0."

CONVERGED = frozenset(status.name.lower() for status in Status if status.succeeded)

Rows = list[tuple[str, str]]
# By the name of a picture: its heading and its caption.
Captions = dict[str, tuple[str, str]]


def page_of(record: Record) -> Page:
    """The result, its pictures and its match."""
    of, match = record.summary, record.match
    if record.kind == SOLVE:
        subtitle, parts, captions = "A solve of adaptive-ot", _solved(of), _captions_of_solve(record)
    else:
        subtitle = f"An adaptation of adaptive-ot, method {of.text('method')}"
        parts, captions = _adapted(record), _captions_of_adaptation(of)
    for name, (heading, text) in captions.items():
        if name in record.pictures:
            parts.append(Picture(heading, *record.pictures[name], text, text))
    if match is not None:
        parts.append(explorer(match, of.whole("pairs"), of.amount("mass")))
    else:
        parts.append(Note(TOO_MANY if record.pictures else SEVERAL_PLANS))
    parts += [folded(heading, of.table(heading.lower())) for heading in ("Configuration", "Environment")]
    sides = wording.sources_and_targets(of.whole("sources"), of.whole("targets"), "to")
    return Page(f"{of.text('model')}: {sides}", subtitle, parts)


def _solved(of: Fields) -> list[Part]:
    parts: list[Part] = []
    if of.text("status") not in CONVERGED:
        parts.append(Note(f"The solver did not reach its tolerance: {of.text('message')}.", "warning"))
    if not of.whole("pairs"):
        parts.append(Note("Nothing moves: no pair pays off."))
    rows = [("status", of.text("message")), ("value", f"{of.number('value'):.12g}")]
    if of.number("regularised_value") != of.number("value"):
        rows.append(("with entropy", f"{of.number('regularised_value'):.12g}, the minimised objective"))
    rows += _certificate(of, "of the exact problem")
    rows.append(("mass", wording.solved_mass(of.amount("mass"), _most_mass(of))))
    if of.number("price"):
        rows.append(("price", wording.last_price(of.number("price"))))
    rows += [
        ("active", " and ".join(f"{_active(of, side)} {side}" for side in ("sources", "targets"))),
        ("left alone", wording.sources_and_targets(of.whole("outlier_sources"), of.whole("outlier_targets"))),
        ("clusters", f"{of.whole('clusters'):,}"),
        ("pairs with mass", f"{of.whole('pairs'):,}"),
        ("effort", wording.effort(of.whole("steps"), of.amount("seconds"))),
    ]
    return [*parts, Facts("Result", rows)]


def _adapted(record: Record) -> list[Part]:
    of, match = record.summary, record.match
    rows: Rows = []
    if of.is_given("accuracy"):
        unknown = of.whole("targets_of_unknown_classes")
        rows.append(("accuracy", wording.accuracy(of.amount("accuracy", most=1.0), unknown)))
    rows.append(("mass", wording.adapted_mass(of.amount("mass"), _most_mass(of))))
    if of.is_given("gap"):  # there is one plan
        rows += [("value", f"{of.number('value'):.6g}, the cost of the plan"), *_certificate(of, "without entropy")]
    if of.is_given("overlap"):
        rows.append(("adapted", f"{'yes' if of.values.get('adapted') else 'no'}. {of.text('reason')}"))
        rows.append(("overlap", f"{of.amount('overlap', most=1.0):.2f} of 1, estimated"))
    rows += [
        ("active sources", f"{_active(of, 'sources')}: more than half of an equal weight is matched"),
        ("active targets", f"{_active(of, 'targets')}: more than half of each is matched"),
        ("outliers", wording.outliers(of.whole("outlier_targets", most=of.whole("targets")))),
        ("features", f"{of.whole('features'):,}"),
        *([("classes", f"{of.whole('classes'):,}")] if of.is_given("classes") else []),
        ("effort", f"{of.amount('seconds'):.2f} s"),
    ]
    parts: list[Part] = [Facts("Result", rows)]
    if of.values.get("labels_ignored"):
        parts.append(Note(f"Labels: {wording.LABELS_IGNORED}."))
    if match is not None and not weigh_the_same(match.source.weights):
        parts.append(Note(CAPPED))
    if of.is_given("predicted"):
        counts = of.counts("predicted")
        total = max(1, sum(counts.values()))
        shares = [(label, count, round(100 * count / total, 1)) for label, count in counts.items()]
        parts.append(Table("Predicted classes", ("class", "targets", "percent"), shares))
    return parts


def _certificate(of: Fields, optimum: str) -> Rows:
    return [
        ("certified gap", f"{of.number('gap'):.3g}: the value is at most this far above the optimum {optimum}"),
        ("violation", f"{of.amount('violation'):.3g}: the marginals are off by at most this much"),
    ]


def _most_mass(of: Fields) -> float | None:
    return of.amount("most_mass") if of.is_given("most_mass") else None


def _active(of: Fields, side: str) -> str:
    return f"{of.whole(f'active_{side}', most=of.whole(side)):,} of {of.whole(side):,}"


def _captions_of_solve(record: Record) -> Captions:
    points = "Lines join what is matched; hollow points are left alone."
    in_columns = record.match is not None and record.match.source.values is None
    return {
        "transport": ("Points", f"{points} {COLUMNS}" if in_columns else points),
        "plan": ("Plan", "The mass of every pair, sources down and targets across, both counted from 0."),
        "convergence": ("Convergence", "How the certified bound closed in on the answer."),
    }


def _captions_of_adaptation(of: Fields) -> Captions:
    """Without labels of the target, the pictures show predicted classes."""
    plan = "The mass of every pair of samples, sources down and targets across, sorted by class where that is known."
    if not of.is_given("predicted") or of.is_given("accuracy"):
        return {"labels": BY_CLASS, "plan": ("Plan", plan)}
    classes = "How much every class of the source sends, and every predicted class of the target receives."
    plan = "The mass of every pair of samples: sources down by class, targets across by predicted class."
    return {
        "labels": ("Mass between classes and predicted classes", classes),
        "plan": ("Plan by class and predicted class", plan),
    }
