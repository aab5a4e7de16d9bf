"""The page of an adaptation."""

from __future__ import annotations

from adaptive_ot.workbench.report.contents import Facts, Note, Page, Part, Table
from adaptive_ot.workbench.report.fields import Fields, counted, folded
from adaptive_ot.workbench.report.record import Record
from adaptive_ot.workbench.report.solutions import TOO_MANY, explorer, weigh_the_same

SEVERAL_PLANS = (
    "So many samples take several plans, which are not kept: there are no pictures, and no pairs to look at."
)

ROOMS = "Sources do not weigh the same: classes of the source weigh no more than they seem to weigh in the target."

LABELS_IGNORED = "those of the target are ignored: none of them is a class of the source"


def page_of(record: Record) -> Page:
    """What was matched, and which labels the target got from it."""
    of, match = record.summary, record.match
    sides = " to ".join(counted(of.whole(f"{side}s"), side) for side in ("source", "target"))
    parts: list[Part] = [Facts("Result", _result(of))]
    if of.values.get("labels_ignored"):
        parts.append(Note(f"Labels: {LABELS_IGNORED}."))
    if match is not None and not weigh_the_same(match.source.weights):
        parts.append(Note(ROOMS))
    if of.is_given("predicted"):
        counts = of.counts("predicted")
        share = max(1, sum(counts.values()))
        rows = [(label, count, round(100 * count / share, 1)) for label, count in counts.items()]
        parts.append(Table("Predicted classes", ("class", "targets", "percent"), rows))
    parts += record.shown(_about_pictures(of))
    if match is not None:
        parts.append(explorer(match, of.whole("pairs"), of.amount("mass")))
    else:
        parts.append(Note(TOO_MANY if record.pictures else SEVERAL_PLANS))
    parts += [folded("Configuration", of.table("configuration")), folded("Environment", of.table("environment"))]
    title = f"{of.text('model')}: {sides}"
    return Page(title, f"An adaptation of adaptive-ot, method {of.text('method')}", parts)


def mass_in_words(mass: float, most: float | None) -> str:
    """How much moves, of how much, and why not of all.

    Examples
    --------
    >>> mass_in_words(0.5, 1.0), mass_in_words(0.5, None)
    ('0.5 of at most 1', '0.5, where each domain weighs 1')
    """
    if most is None:
        return f"{mass:.6g}, where each domain weighs 1"
    limit = "" if most > 1 - 1e-9 else ": classes of the source may send no more than the target seems to hold of them"
    return f"{mass:.6g} of at most {most:.6g}{limit}"


def accuracy_in_words(accuracy: float, unknown: int) -> str:
    """How many labels of the target were found; some may be of classes that the source does not have.

    Examples
    --------
    >>> accuracy_in_words(0.75, 1)
    "75.0% of the target's labels, which were not used; 1 target of classes unknown to the source count as wrong"
    """
    wrong = f"; {counted(unknown, 'target')} of classes unknown to the source count as wrong" if unknown else ""
    return f"{accuracy:.1%} of the target's labels, which were not used{wrong}"


def _about_pictures(of: Fields) -> dict[str, tuple[str, str]]:
    """Headings and captions by name; where the target has no labels, predictions stand in for them."""
    classes = "How much every class sends and receives, and what it has."
    plan = "The mass of every pair of samples, sources down and targets across, sorted by class where that is known."
    if not of.is_given("predicted") or of.is_given("accuracy"):
        return {"labels": ("Mass between classes", classes), "plan": ("Plan", plan)}
    classes = "How much every class of the source sends, and every predicted class of the target receives."
    plan = "The mass of every pair of samples: sources down by class, targets across by predicted class."
    return {
        "labels": ("Mass between classes and predicted classes", classes),
        "plan": ("Plan by class and predicted class", plan),
    }


def _result(of: Fields) -> list[tuple[str, str]]:
    most = of.amount("most_mass") if of.is_given("most_mass") else None
    sources, targets = of.whole("sources"), of.whole("targets")
    accuracy = []
    if of.is_given("accuracy"):
        words = accuracy_in_words(of.share("accuracy"), of.whole("targets_of_unknown_classes"))
        accuracy = [("accuracy", words)]
    active = [of.whole("active_sources", most=sources), of.whole("active_targets", most=targets)]
    return [
        *accuracy,
        ("mass", mass_in_words(of.amount("mass"), most)),
        *(_certificate(of) if of.is_given("gap") else []),  # there is one plan
        ("active sources", f"{active[0]:,} of {sources:,}: more than half of an equal weight is matched"),
        ("active targets", f"{active[1]:,} of {targets:,}: more than half of each is matched"),
        (
            "outliers",
            f"{counted(of.whole('outlier_targets', most=targets), 'target')}: at most half of each is matched",
        ),
        ("features", f"{of.whole('features'):,}"),
        *([("classes", f"{of.whole('classes'):,}")] if of.is_given("classes") else []),
        ("effort", f"{of.amount('seconds'):.2f} s"),
    ]


def _certificate(of: Fields) -> list[tuple[str, str]]:
    return [
        ("value", f"{of.number('value'):.6g}, what the plan costs"),
        ("certified gap", f"{of.number('gap'):.3g}: the value is at most so far above the optimum without entropy"),
        ("violation", f"{of.amount('violation'):.3g}: the marginals are off by at most so much"),
    ]
