"""``adaptive-ot adapt``: features of two domains in, labels for the second or moved features of the first out."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from rich.console import Console
from sklearn.preprocessing import StandardScaler

from adaptive_ot import Entropic, Exact, InvalidInput
from adaptive_ot._validation import LARGEST
from adaptive_ot.adapt import JointTransportClassifier, LabelTransportClassifier, TransportAdapter
from adaptive_ot.adapt.matching import EPSILON
from adaptive_ot.workbench.cli import adapted, files
from adaptive_ot.workbench.cli.adapted import Adapted
from adaptive_ot.workbench.cli.options import named
from adaptive_ot.workbench.cli.progress import steps_bar
from adaptive_ot.workbench.cli.solving import Model
from adaptive_ot.workbench.feature_files import Features, matched, read_features
from adaptive_ot.workbench.files import write_atomically

OPTIONS = ("kappa", "beta", "epsilon", "mass", "tau")
LARGEST_SEED = 2**32 - 1


class Request(NamedTuple):
    """What the user typed."""

    source: Path
    target: Path
    method: Literal["joint", "labels", "mapping"]
    standardize: bool
    kappa: float | None
    beta: float | None
    epsilon: float | None
    exact: bool
    model: Model
    reject: str | None
    output: Path | None
    report: Path | None
    seed: int
    json: bool


def run(request: Request) -> int:
    """Check everything, adapt, print a summary, write the result and the report."""
    inputs, output, report = (request.source, request.target), request.output, request.report
    if output:
        files.check_output(output, adapted.suffixes(request.method), inputs=inputs)
    with named(*OPTIONS):
        estimator = _estimator(request)
    source, target = _read(request)
    known = _with_known_classes(request, source, target)
    if report:
        files.check_report(report, inputs=inputs)
    started = time.perf_counter()
    with steps_bar() as progress, named(*OPTIONS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, about what the user did not write
        progress(f"adapting {len(source.x)} sources and {len(target.x)} targets")
        try:
            done = _adapted(estimator, request, source, known)
        except MemoryError:
            given = f"{len(source.x)} and {len(target.x)} samples of {source.x.shape[1]} features"
            raise InvalidInput("source and target", "must fit into memory", given, "Give fewer samples.") from None
    done = done._replace(labels_ignored=known is not target)
    summary = adapted.summary(done, request.method, time.perf_counter() - started)
    if output:
        write_atomically("--output", output, adapted.result_of(done))
        summary["output"] = str(output)
    if report:
        summary["report"] = adapted.write_report(report, done, summary, _configuration(request))
    if request.json:
        print(json.dumps(summary, indent=2))
    else:
        adapted.show_summary(Console(), summary)
    return 0


def _configuration(request: Request) -> dict[str, Any]:
    """What was asked for, options that were not given left out."""
    given = request.model._asdict() | request._asdict()
    kept = {name: value for name, value in given.items() if name not in ("model", "output", "report", "json")}
    return {name: str(value) if isinstance(value, Path) else value for name, value in kept.items() if value is not None}


def _estimator(request: Request) -> Any:
    """The estimator for the method, after options that do not go together are refused."""
    if request.exact and request.epsilon is not None:
        raise InvalidInput("--exact", "does not go with --epsilon", request.epsilon, "Leave one of them away.")
    if request.exact and request.model.tau is not None:
        raise InvalidInput("--exact", "does not go with --tau", f"{request.model.tau:g}", "Leave one of them away.")
    if request.model.mass is not None and request.model.mass > 1:
        rule = "must be at most 1, which is all"
        raise InvalidInput("--mass", rule, f"{request.model.mass:g}", "Choose a smaller one.")
    if request.reject is not None and request.method != "labels":
        raise InvalidInput("--reject", "goes with --method labels", f"--method {request.method}", "Leave it away.")
    if request.reject is not None and not request.reject.strip():
        raise InvalidInput("--reject", "must be a word", "nothing", "Choose one, or leave it away.")
    if not 0 <= request.seed <= LARGEST_SEED:
        rule = f"must be a whole number from 0 to {LARGEST_SEED}"
        raise InvalidInput("--seed", rule, request.seed, "Choose another.")
    epsilon = None if request.exact else EPSILON if request.epsilon is None else request.epsilon
    options: dict[str, Any] = {
        "marginals": request.model.marginals(epsilon),
        "solver": Exact() if epsilon is None else Entropic(epsilon),
        "random_state": request.seed,
    }
    scales = {name: given for name in ("kappa", "beta") if (given := getattr(request, name)) is not None}
    if request.method == "mapping":
        for name, given in scales.items():
            rule = "goes with --method joint or labels"
            raise InvalidInput(f"--{name}", rule, f"{given:g} with mapping", "Leave it away.")
        return TransportAdapter(**options)
    if request.method == "labels":
        return LabelTransportClassifier(**options, **scales, reject_label=request.reject)
    return JointTransportClassifier(**options, **scales)


def _read(request: Request) -> tuple[Features, Features]:
    names = f"source file '{request.source}'", f"target file '{request.target}'"
    needed: Literal["required", "optional"] = "optional" if request.method == "mapping" else "required"
    source = read_features(request.source, needed, names[0])
    target = read_features(request.target, "optional", names[1])
    if request.source.samefile(request.target):
        raise InvalidInput(names[1], "must be another file than the source", "the same", "Give the target's features.")
    target = matched(names[1], target, source, "the source")
    for name, x in zip(names, (source.x, target.x), strict=True):
        largest = min(LARGEST, 1e-4 * float(np.finfo(x.dtype).max) ** 0.5)  # squared differences are summed up
        if np.abs(x).max() > largest:
            raise InvalidInput(name, f"must hold numbers up to {largest:.0e}", np.abs(x).max(), "Rescale the features.")
    if request.reject in _classes(source):
        raise InvalidInput("--reject", "must not be a class of the source", repr(request.reject), "Choose another.")
    return source, target


def _with_known_classes(request: Request, source: Features, target: Features) -> Features:
    """The target, without labels if they are all -1, say: nothing that a label could be compared with."""
    known = {*_classes(source), request.reject}
    return target if source.y is None or target.y is None or known & _classes(target) else target._replace(y=None)


def _classes(features: Features) -> set[str]:
    return set() if features.y is None else set(features.y.astype(str).tolist())


def _adapted(estimator: Any, request: Request, source: Features, target: Features) -> Adapted:
    """Fit; the labels of the target stay outside."""
    x = np.concatenate([source.x, target.x])
    scaler = StandardScaler(with_mean=request.standardize, with_std=request.standardize)
    x = scaler.fit_transform(x)
    domain = np.repeat([0, -1], [len(source.x), len(target.x)])
    if request.method == "mapping":
        moved = estimator.fit_transform(x, sample_domain=domain)[domain >= 0]
        return Adapted(estimator, source, target, None, scaler.inverse_transform(moved))
    y: Any = source.y
    hidden = np.concatenate([y, np.resize(y, len(target.x))])  # never looked at
    estimator.fit(x, hidden, sample_domain=domain)
    return Adapted(estimator, source, target, estimator.predict(x[domain < 0]), None)
