"""Sentences about results that the command line and reports share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adaptive_ot.deep import Result

# Less probable classes are said to be missing; 0.5 would be no evidence.
ABSENT = 0.3

LABELS_IGNORED = "those of the target are ignored: none of them is a class of the source"


def counted(number: int, noun: str) -> str:
    """
    Examples
    --------
    >>> counted(1, "pair"), counted(1200, "pair"), counted(2, "pass")
    ('1 pair', '1,200 pairs', '2 passes')
    """
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def sources_and_targets(sources: int, targets: int, between: str = "and") -> str:
    """
    Examples
    --------
    >>> sources_and_targets(2, 1), sources_and_targets(2, 1, "to")
    ('2 sources and 1 target', '2 sources to 1 target')
    """
    return f"{counted(sources, 'source')} {between} {counted(targets, 'target')}"


def solved_mass(mass: float, most: float | None) -> str:
    """The transported mass of a solve, and its limit if it has one.

    Examples
    --------
    >>> solved_mass(0.5, 1.0), solved_mass(0.5, None)
    ('0.5 of at most 1 (50.0%)', '0.5')
    """
    return f"{mass:.12g}" + ("" if most is None else f" of at most {most:.12g} ({mass / (most or 1.0):.1%})")


def adapted_mass(mass: float, most: float | None) -> str:
    """The transported mass of an adaptation, and its limit if there is one plan.

    Examples
    --------
    >>> adapted_mass(0.5, 1.0), adapted_mass(0.5, None)
    ('0.5 of at most 1', '0.5, where each domain weighs 1')
    """
    return f"{mass:.6g}, where each domain weighs 1" if most is None else f"{mass:.6g} of at most {most:.6g}"


def overlap(estimate: float, low: float, high: float) -> str:
    """The estimated overlap of two domains.

    Examples
    --------
    >>> overlap(0.5, 0.41, 0.6)
    '0.50 of 1, probably between 0.41 and 0.60'
    """
    return f"{estimate:.2f} of 1, probably between {low:.2f} and {high:.2f}"


def absent(presence: dict[str, float]) -> str:
    """The classes that seem to be missing in the target.

    Examples
    --------
    >>> absent({"cat": 1.0, "dog": 0.02}), absent({"cat": 1.0})
    ('dog', 'none')
    """
    return ", ".join(name for name, probability in presence.items() if probability < ABSENT) or "none"


def last_price(price: float) -> str:
    return f"{price:.12g} for the last unit of mass"


def effort(steps: int, seconds: float) -> str:
    return f"{counted(steps, 'step')} in {seconds:.2f} s"


def outliers(targets: int) -> str:
    return f"{counted(targets, 'target')}: at most half of each is matched"


def accuracy(share: float, unknown: int) -> str:
    """The share of target labels that were found; targets of classes unknown to the source count as wrong.

    Examples
    --------
    >>> accuracy(0.75, 1)
    "75.0% of the target's labels, which were not used; 1 target of classes unknown to the source count as wrong"
    """
    wrong = f"; {counted(unknown, 'target')} of classes unknown to the source count as wrong" if unknown else ""
    return f"{share:.1%} of the target's labels, which were not used{wrong}"


def trained(of: Result, chosen: str, judged: str) -> dict[str, str | None]:
    """A training run by label, None where there is nothing to say; how the oracles were `chosen` and `judged`."""
    mass, purity, bad = of.transported_mass, of.plan_purity, of.bad_images
    return {
        **evaluated(of),
        "best": f"{of.best_accuracy:.1%} at step {of.best_step:,} (oracle: {chosen})",
        "mass": None if mass is None else f"{mass:.3g} of 1 transported, over the last tenth",
        "purity": None if purity is None else f"{purity:.1%} of it within a class (oracle: {judged})",
        "left out": f"{counted(bad, 'image')} that could not be used" if bad else None,
        "effort": f"{counted(of.steps, 'step')} in {of.seconds:,.0f} s",
    }


# Columns of a table of scores that tell unknown images, and what they mean.
OPEN_SET = (
    ("score", "AUROC", "OS*", "unknown", "H-score", "rejected"),
    "How well each score tells images of unknown classes, in percent. The threshold of each is set without labels; OS* "
    "is the accuracy averaged over the known classes, unknown the share of the unknown images that are rejected, and "
    "H-score the harmonic mean of both. The unmatched share decides what is called unknown.",
)


def open_set(figures: dict[str, dict[str, float]]) -> list[list[str]]:
    """
    Examples
    --------
    >>> open_set({"entropy": {"threshold": 0.5, "rejected": 0.25, "os_star": 0.875}})
    [['entropy', '', '87.5', '', '', '25.0']]
    """
    names = "auroc", "os_star", "unknown_accuracy", "h_score", "rejected"
    return [
        [score, *(f"{100 * each[name]:.1f}" if name in each else "" for name in names)]
        for score, each in figures.items()
    ]


def evaluated(of: Result) -> dict[str, str | None]:
    return {
        "accuracy": f"{of.accuracy:.1%} of the target's images, after the last step",
        "mean class": f"{of.mean_class_accuracy:.1%}, every class counted once",
    }
