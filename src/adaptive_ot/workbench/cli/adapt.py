"""``adaptive-ot adapt``: features of two domains in, labels for the second or moved features of the first out."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from cyclopts import Parameter

from adaptive_ot import Entropic, Exact, InvalidInput
from adaptive_ot._validation import LARGEST
from adaptive_ot.workbench.cli import adapt_report, outputs, show
from adaptive_ot.workbench.cli.adapt_report import Adaptation
from adaptive_ot.workbench.cli.options import Flag, ModelOptions, OptionalOutput, Whole, configuration, named
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.feature_files import Features, matched, read_features
from adaptive_ot.workbench.files import write_atomically

LARGEST_SEED = 2**32 - 1


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AdaptOptions(ModelOptions):
    """Everything beside the two files.

    Parameters
    ----------
    method
        "joint": a classifier is fitted to plans over features and classes; "labels": labels travel along the plan;
        "mapping": sources are moved to the target, for any classifier.
    standardize
        Bring all features to mean 0 and deviation 1 over both files: for features of different units.
    kappa
        Weight of the distance beside the classes, 0.5 if not given; not for "mapping".
    beta
        Scale of the cost against the entropy, 1 if not given; not for "mapping".
    epsilon
        How much entropy, 0.1 if not given.
    exact
        Without entropy.
    reject
        With "labels": the label of targets that receive none.
    output
        Where to write the result: .csv (index, label, outlier_score; counted from 0), or with "mapping" .npz (x, moved,
        y, and which share of each was transported). Labels that a spreadsheet would run get an apostrophe in a .csv.
    report
        A directory for the summary, the result, pictures of the plan, and a page to look at them: report.html.
    seed
        Decides who is matched with whom where there are too many samples for one plan.
    json
        Print a summary for programs.
    """

    method: Literal["joint", "labels", "mapping"] = "joint"
    standardize: Flag = False
    kappa: float | None = None
    beta: float | None = None
    epsilon: float | None = None
    exact: Flag = False
    reject: str | None = None
    output: OptionalOutput = None
    report: Path | None = None
    seed: Whole = 0
    json: Flag = False


def adapt(source: Path, target: Path, /, *, options: AdaptOptions = AdaptOptions()) -> int:
    """Labels for a target without labels, from a source with labels that only partly matches it.

    Files are .npz or .safetensors (arrays "x", samples x features, and "y"), or .csv or .parquet (a column a feature,
    and one named y or label; columns are matched by name). Labels are numbers or words. Those of the target are only
    used to print the accuracy.

    Parameters
    ----------
    source
        Features and labels.
    target
        Features of the same kind.
    """
    output, report = options.output, options.report
    if output:
        suffix = ".npz" if options.method == "mapping" else ".csv"
        outputs.check_output(output, (suffix,), inputs=(source, target))
    _check(options)
    with named("kappa", "beta", "epsilon", "mass", "tau"):
        estimator = _estimator(options)
    sources, targets = _read(options, source, target)
    known = _with_known_classes(options, sources, targets)
    if report:
        outputs.check_report(report, inputs=(source, target))
    started = time.perf_counter()
    with steps_bar() as progress, named("kappa", "beta", "epsilon", "mass", "tau"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about code that the user did not write
        progress(f"adapting {len(sources.x)} sources and {len(targets.x)} targets")
        try:
            done = _adapted(estimator, options, sources, known)
        except MemoryError:
            given = f"{len(sources.x)} and {len(targets.x)} samples of {sources.x.shape[1]} features"
            raise InvalidInput("source and target", "must fit into memory", given, "Give fewer samples.") from None
    done = done._replace(labels_ignored=known is not targets)
    summary = adapt_report.summary(done, options.method, time.perf_counter() - started)
    if output:
        write_atomically("--output", output, adapt_report.result_of(done))
        summary["output"] = str(output)
    if report:
        about = configuration(options, source=source, target=target)
        summary["report"] = adapt_report.write(report, done, summary, about)
    show.result(summary, options.json, adapt_report.show_summary)
    return 0


def _check(options: AdaptOptions) -> None:
    """Refuse options that do not go together, and values that no estimator would refuse."""
    method, reject = options.method, options.reject
    if options.epsilon is not None and not options.epsilon > 0:
        raise InvalidInput("--epsilon", "must be positive", options.epsilon, "Write --exact to solve without entropy.")
    if options.exact and options.epsilon is not None:
        raise InvalidInput("--exact", "does not go with --epsilon", options.epsilon, "Omit one of them.")
    if options.exact and options.tau is not None:
        raise InvalidInput("--exact", "does not go with --tau", f"{options.tau:g}", "Omit one of them.")
    if options.mass is not None and options.mass > 1:
        raise InvalidInput("--mass", "must be at most 1, which is all", f"{options.mass:g}", "Choose a smaller one.")
    if reject is not None and method != "labels":
        raise InvalidInput("--reject", "goes with --method labels", f"--method {method}", "Omit it.")
    if reject is not None and not reject.strip():
        raise InvalidInput("--reject", "must be a word", "nothing", "Choose one, or omit it.")
    if not 0 <= options.seed <= LARGEST_SEED:
        rule = f"must be a whole number from 0 to {LARGEST_SEED}"
        raise InvalidInput("--seed", rule, options.seed, "Choose another.")
    for name in ("kappa", "beta"):
        given = getattr(options, name)
        if method == "mapping" and given is not None:
            raise InvalidInput(f"--{name}", "goes with --method joint or labels", f"{given:g} with mapping", "Omit it.")


def _estimator(options: AdaptOptions) -> Any:
    from adaptive_ot import adapt
    from adaptive_ot.adapt.matching import EPSILON

    epsilon = None if options.exact else EPSILON if options.epsilon is None else options.epsilon
    parameters: dict[str, Any] = {
        "marginals": options.marginals(epsilon),
        "solver": Exact() if epsilon is None else Entropic(epsilon),
        "random_state": options.seed,
    }
    parameters |= {name: given for name in ("kappa", "beta") if (given := getattr(options, name)) is not None}
    if options.method == "mapping":
        return adapt.TransportAdapter(**parameters)
    if options.method == "labels":
        return adapt.LabelTransportClassifier(**parameters, reject_label=options.reject)
    return adapt.JointTransportClassifier(**parameters)


def _read(options: AdaptOptions, source: Path, target: Path) -> tuple[Features, Features]:
    names = f"source file '{source}'", f"target file '{target}'"
    sources = read_features(source, "optional" if options.method == "mapping" else "required", names[0])
    targets = read_features(target, "optional", names[1])
    if source.samefile(target):
        raise InvalidInput(names[1], "must be another file than the source", "the same", "Give the target's features.")
    targets = matched(names[1], targets, sources, "the source")
    for name, x in zip(names, (sources.x, targets.x), strict=True):
        largest = min(LARGEST, 1e-4 * float(np.finfo(x.dtype).max) ** 0.5)  # squared differences are summed up
        if np.abs(x).max() > largest:
            raise InvalidInput(name, f"must hold numbers up to {largest:.0e}", np.abs(x).max(), "Rescale the features.")
    if options.reject in _classes(sources):
        raise InvalidInput("--reject", "must not be a class of the source", repr(options.reject), "Choose another.")
    return sources, targets


def _with_known_classes(options: AdaptOptions, source: Features, target: Features) -> Features:
    """The target, without its labels if none of them is a class of the source, as where all are -1."""
    known = {*_classes(source), options.reject}
    return target if source.y is None or target.y is None or known & _classes(target) else target._replace(y=None)


def _classes(features: Features) -> set[str]:
    return set() if features.y is None else set(features.y.astype(str).tolist())


def _adapted(estimator: Any, options: AdaptOptions, source: Features, target: Features) -> Adaptation:
    """Fit; the labels of the target stay outside."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=options.standardize, with_std=options.standardize)
    x = scaler.fit_transform(np.concatenate([source.x, target.x]))
    domain = np.repeat([0, -1], [len(source.x), len(target.x)])
    if options.method == "mapping":
        moved = estimator.fit_transform(x, sample_domain=domain)[domain >= 0]
        return Adaptation(estimator, source, target, None, scaler.inverse_transform(moved))
    y: Any = source.y
    hidden = np.concatenate([y, np.resize(y, len(target.x))])  # never looked at
    estimator.fit(x, hidden, sample_domain=domain)
    return Adaptation(estimator, source, target, estimator.predict(x[domain < 0]), None)
