"""Sensitivity studies: each parameter of a method alone, around its default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adaptive_ot._validation import describe, nearest
from adaptive_ot.errors import InvalidInput
from adaptive_ot.workbench.benchmark.deep import DeepBenchmark, assemble, configuration
from adaptive_ot.workbench.benchmark.study import Outcome, Study
from adaptive_ot.workbench.benchmark.study_file import Row, located_in, read_study
from adaptive_ot.workbench.benchmark.table import Percent, accuracies, deviation_of, failures, mean_of
from adaptive_ot.workbench.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adaptive_ot.plot import Curve

ABOUT = (
    "Accuracy in percent of the last iterate. Each parameter alone is varied, the others stand at their defaults; "
    "the row of the default is the same in all tables.\n"
)


class Sweep(NamedTuple):
    """The values of one parameter, ascending, its default among them, and the row of the benchmark for each."""

    parameter: str
    default: float
    values: list[float]
    rows: list[str]

    @property
    def labels(self) -> list[str]:
        return [f"{short(value)}{' (default)' * (value == self.default)}" for value in self.values]


def prepare(path: Path, output: Path) -> tuple[Study, DeepBenchmark]:
    """Check everything that can be checked before the work starts.

    Parameters
    ----------
    path
        A study file with one method, "aot" if it names none, and a table [grid]; see docs/deep_benchmark.md.
    output
        The directory of the study.

    Returns
    -------
    Study, DeepBenchmark
        The cells, and the function that computes their numbers.
    """
    content = read_study(path, frozenset({"grid", "baseline"}))
    with located_in(path):
        if len(content.rows) > 1:
            raise InvalidInput("methods", "must be one at most", len(content.rows), "Write a plan for each.")
    row = content.rows[0] if content.rows else content.row({"method": "aot"})
    with located_in(path, row.name):
        settings = configuration(row, output).settings
    with located_in(path):
        sweeps = _sweeps(content.more.get("grid"), row, settings)
        baseline = _baseline(content.more.get("baseline"), row)
    varied = [
        _varied(row, name, sweep.parameter, value)
        for sweep in sweeps
        for value, name in zip(sweep.values, sweep.rows, strict=True)
        if name != row.name
    ]
    content = content._replace(rows=(*baseline, row, *varied))
    more = {"grid": [sweep._asdict() for sweep in sweeps], "baseline": baseline[0].name if baseline else None}
    return assemble(content, output, more)


def markdown(study: Study, outcomes: list[Outcome]) -> str:
    """One table a parameter: a row for every value, and for the baseline."""
    tables = [accuracies(*part_of(study, outcomes, sweep), heading=sweep.parameter) for sweep in sweeps_of(study)]
    return "\n".join(part for part in (*tables, ABOUT, failures(outcomes)) if part)


def draw(study: Study, outcomes: list[Outcome], path: Path) -> None:
    """Draw the tables as a picture."""
    figure = curves(study, outcomes)
    write_atomically("output", path, lambda file: figure.savefig(file, format="png"))


def curves(study: Study, outcomes: list[Outcome]) -> Figure:
    """Means over tasks, with the deviation over seeds if there are several; gaps where nothing has run yet."""
    from adaptive_ot.plot import sensitivity

    baseline, name = None, study.settings["baseline"]
    if name:
        mean = mean_of(Percent.of(study, outcomes).means()[study.methods.index(name)])
        baseline = None if math.isnan(mean) else (name, mean)
    return sensitivity([_curve(study, outcomes, sweep) for sweep in sweeps_of(study)], baseline)


def short(value: float) -> str:
    """
    Examples
    --------
    >>> short(0.5), short(2.0), short(1 / 3)
    ('0.5', '2', '0.3333333333333333')
    """
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def _sweeps(found: Any, row: Row, settings: Mapping[str, Any]) -> list[Sweep]:
    if not (isinstance(found, dict) and found):
        raise InvalidInput("grid", "must be a table of values", describe(found), "Write beta = [0.5, 2] under [grid].")
    numbers = {name: value for name, value in settings.items() if _is_number(value)}
    sweeps = []
    for parameter, values in found.items():
        if parameter not in numbers:
            remedy = f"{nearest(parameter, numbers)}Choose from: {', '.join(numbers)}."
            raise InvalidInput(f"grid '{parameter}'", f"must be a number that '{row.name}' has", "another", remedy)
        if not (isinstance(values, list) and values and all(map(_is_number, values))):
            remedy = f"Write {parameter} = [0.5, 2], say."
            raise InvalidInput(f"grid '{parameter}'", "must be a list of finite numbers", describe(values), remedy)
        default = numbers[parameter]
        ascending = sorted({*values, default})
        rows = [row.name if value == default else f"{parameter} = {short(value)}" for value in ascending]
        sweeps.append(Sweep(parameter, default, ascending, rows))
    return sweeps


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _baseline(method: Any, row: Row) -> list[Row]:
    """Another method under the same conditions."""
    if method is None:
        return []
    if not isinstance(method, str):
        raise InvalidInput("baseline", "must be the name of a method", describe(method), 'Write "source-only", say.')
    conditions = {name: value for name, value in row.options.items() if name not in ("settings", "published")}
    return [row._replace(name=method, options=conditions | {"method": method})]


def _varied(row: Row, name: str, parameter: str, value: float) -> Row:
    settings = row.options.get("settings", {}) | {parameter: value}
    return row._replace(name=name, options=row.options | {"settings": settings})


def sweeps_of(study: Study) -> list[Sweep]:
    """The parameters that the study varies."""
    return [Sweep(**sweep) for sweep in study.settings["grid"]]


def part_of(study: Study, outcomes: list[Outcome], sweep: Sweep) -> tuple[Study, list[Outcome]]:
    """The benchmark as it would be with the values of one parameter for methods."""
    labels = dict(zip(sweep.rows, sweep.labels, strict=True))
    if study.settings["baseline"]:
        labels[study.settings["baseline"]] = study.settings["baseline"]
    part = Study(study.tasks, tuple(labels.values()), study.seeds, study.settings)
    chosen = [outcome for outcome in outcomes if outcome.cell.method in labels]
    return part, [each._replace(cell=each.cell._replace(method=labels[each.cell.method])) for each in chosen]


def _curve(study: Study, outcomes: list[Outcome], sweep: Sweep) -> Curve:
    from adaptive_ot.plot import Curve

    means = Percent.of(*part_of(study, outcomes, sweep)).means()[: len(sweep.rows)]
    deviations = list(map(deviation_of, means)) if len(study.all_seeds) > 1 else None
    return Curve(sweep.parameter, sweep.values, list(map(mean_of, means)), deviations, sweep.default)
