"""Draw the pictures of gallery.md from results computed here: about two minutes on one core.

    python docs/gallery.py              # all of them, into docs/gallery; or some: python docs/gallery.py toy moons

It needs ``pip install ".[cli,deep]"``. `comparison` shows results in benchmarks/results/adapt_pacs.json.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_ot as aot
from adaptive_ot import _partners, plot
from adaptive_ot.plot.canvas import GREY, SIDE_COLOURS, colours, legend, new_figure, panels
from adaptive_ot.workbench.cli.digits import Digits, shifted_digits
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results" / "adapt_pacs.json"

# Tasks from one domain to another, with all classes in both.
DOMAINS = tuple(f"-> {domain}" for domain in ("art_painting", "cartoon", "photo", "sketch"))

# Enough for a screen; few colours keep the files small.
DPI, COLOURS = 90, 96


def toy() -> Any:
    return plot.transport(aot.solve(TOY_COST)).figure


def moons() -> Any:
    return plot.transport(aot.solve(moons_cost())).figure


def torus() -> Any:
    return plot.transport(aot.solve(aot.DistanceCost(on_a_torus(0), on_a_torus(1), reach=0.35))).figure


def plans() -> Any:
    cost = digits_cost()
    solvers = {"exact": aot.Exact()} | {f"epsilon {size}": aot.Entropic(size) for size in (0.01, 0.1, 1.0)}
    return plot.plans({name: aot.solve(cost, solver=solver) for name, solver in solvers.items()}, *digits_labels())


def plan() -> Any:
    return plot.plan(aot.solve(digits_cost()), *digits_labels()).figure


def label_plan() -> Any:
    return plot.label_plan(aot.solve(digits_cost()), *digits_labels()).figure


def mass_path() -> Any:
    return plot.mass_path(aot.mass_path(moons_cost())).figure


def mass_against_overlap() -> Any:
    overlap = np.linspace(0.4, 1.0, 13)
    costs = [moons_cost(share=1 - common) for common in overlap]
    masses = {"adaptive": [aot.solve(cost).mass for cost in costs], "partial, mass 0.75": [0.75] * len(costs)}
    return plot.mass_against_overlap(overlap, masses).figure


def sensitivity() -> Any:
    curves = []
    for parameter, values in {"kappa": (0.1, 0.25, 0.5, 1.0, 2.0), "beta": (0.25, 0.5, 1.0, 2.0, 4.0)}.items():
        found = np.array(
            [[accuracy(seed, adapted(seed, **{parameter: value})) for seed in range(3)] for value in values]
        )
        default = {"kappa": 0.5, "beta": 1.0}[parameter]
        curves.append(plot.Curve(parameter, values, found.mean(axis=1), found.std(axis=1, ddof=1), default))
    baseline = float(np.mean([accuracy(seed, source_only(seed)) for seed in range(3)]))
    return plot.sensitivity(curves, baseline=("source only", baseline))


def training() -> Any:
    return plot.training(trained("aot"), baseline=("source only", trained("source-only")[-1]["accuracy"]))


def convergence() -> Any:
    x, z = np.random.default_rng(0).normal(size=(2, 1500, 16))
    cost = aot.DistanceCost(x, z, reach=5.0)
    small = aot.DistanceCost(x[:150], z[:150], reach=5.0)
    solves = {
        "exact": lambda progress: aot.solve(cost, progress=progress),
        "robust, exact": lambda progress: aot.solve(small, marginals=aot.ChiSquareBall(0.2), progress=progress),
        "epsilon 1": lambda progress: aot.solve(cost, solver=aot.Entropic(1.0), progress=progress),
        "epsilon 0.1": lambda progress: aot.solve(cost, solver=aot.Entropic(0.1), progress=progress),
    }
    traces: dict[str, list[aot.Progress]] = {name: [] for name in solves}
    for name, trace in traces.items():
        solution = solves[name](trace.append)
        if trace[-1].epsilon is None:
            trace.append(trace[-1]._replace(iterations=solution.iterations, gap=solution.gap))
    return plot.convergence(traces).figure


def comparison() -> Any:
    cells = [cell for cell in json.loads(RESULTS.read_text())["cells"] if cell["task"].endswith(DOMAINS)]
    found: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        found.setdefault(cell["method"], {}).setdefault(cell["task"], []).append(100 * cell["numbers"]["accuracy"])
    methods = list(found)
    tasks = sorted(found[methods[0]])
    accuracies = [[np.mean(found[method][task]) for task in tasks] for method in methods]
    return plot.comparison(methods, tasks, accuracies)


def choose_reach() -> Any:
    """The matches at the estimated reach, and the gap that it lies in."""
    clouds = moons_with_outliers(size=500)
    cost = aot.DistanceCost(clouds.x, clouds.z)
    left, right = panels(new_figure((12, 4.5)), 1, 2)[0]
    plot.transport(aot.solve(cost), ax=left)
    squares = cost.block(0, len(clouds.x)) + cost.reach**2
    logs, gap = np.log(squares), _partners.find_gap(squares)
    assert gap is not None
    near = np.exp(np.concatenate([_partners.mean_of_least(side, 5) for side in (logs, logs.T)]) / 2)
    outlier = np.concatenate([clouds.source_outlier, clouds.target_outlier])
    bins = np.geomspace(near.min(), near.max(), 40)
    _, _, bars = right.hist([near[~outlier], near[outlier]], bins, stacked=True, color=SIDE_COLOURS)
    for bar, name in zip(bars, ("inliers", "outliers"), strict=True):
        bar.set_label(name)
    shade = right.axvspan(gap.low**0.5, gap.high**0.5, color=GREY, alpha=0.25, label="gap", zorder=0)
    line = right.axvline(cost.reach, color=colours().text, label=f"reach {cost.reach:.2f}")
    right.set(xscale="log", xlabel="distance to the five nearest partners", ylabel="points")
    legend(right, [*bars, shade, line])
    return right.figure


def choose_epsilon() -> Any:
    """Mass over epsilon: where pairs pay, and where none pays."""
    x, z = np.random.default_rng(0).normal(size=(2, 60, 2))
    costs = {
        "some pairs pay": aot.DistanceCost(x, z, reach=1.0),
        "no pair pays": np.random.default_rng(0).random((30, 30)),
    }
    (ax,) = panels(new_figure((8, 4.5)), 1, 1)[0]
    sizes, handles = np.geomspace(1e-3, 100, 41), []
    for (name, cost), colour in zip(costs.items(), SIDE_COLOURS, strict=True):
        masses = [aot.solve(cost, solver=aot.Entropic(size)).mass for size in sizes]
        handles += ax.plot(sizes, masses, color=colour, label=name)
        exact = {"color": colour, "linestyle": ":", "label": "exact"}
        handles.append(ax.axhline(aot.solve(cost).mass, **exact))
        chosen = aot.solve(cost, solver=aot.Entropic())
        point = {"color": colour, "marker": "o", "linestyle": "none", "label": f"default: {chosen.epsilon:.2g}"}
        handles += ax.plot([chosen.epsilon], [chosen.mass], **point)
    ax.set(xscale="log", xlabel="epsilon", ylabel="mass moved", ylim=(-0.03, 1.03))
    legend(ax, handles, ncols=2, loc="center left")
    return ax.figure


def choose_kappa() -> Any:
    """Accuracy on digits over the weight of distances against that of classes."""
    values = (0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    found = np.array([[accuracy(seed, adapted(seed, kappa=value)) for seed in range(3)] for value in values])
    curve = plot.Curve("kappa", values, found.mean(axis=1), found.std(axis=1, ddof=1), 0.5)
    return plot.sensitivity(
        [curve], baseline=("source only", float(np.mean([accuracy(k, source_only(k)) for k in range(3)])))
    )


def choose_mass() -> Any:
    """The price of mass with outliers and without."""
    left, right = panels(new_figure((12, 4.5)), 1, 2)[0]
    clouds = moons_with_outliers(size=500)
    x, z = np.random.default_rng(0).normal(size=(2, 500, 2))
    for ax, name, cost in (
        (left, "a fifth are outliers", aot.DistanceCost(clouds.x, clouds.z, reach=0.3)),
        (right, "no outliers", aot.DistanceCost(x, z, reach=0.3)),
    ):
        plot.mass_path(aot.mass_path(cost), ax=ax)
        ax.set_title(name)
    return left.figure


def moons_cost(share: float = 0.2) -> aot.DistanceCost:
    clouds = moons_with_outliers(share=share)
    return aot.DistanceCost(clouds.x, clouds.z, reach=0.3)


def on_a_torus(seed: int, inliers: int = 200, outliers: int = 40) -> np.ndarray:
    """Points of a torus in R^3, and others anywhere around it."""
    rng = np.random.default_rng(seed)
    around, across = rng.uniform(0, 2 * np.pi, (2, inliers))
    radius = 1.0 + 0.35 * np.cos(across)
    torus = np.column_stack([radius * np.cos(around), radius * np.sin(around), 0.35 * np.sin(across)])
    return np.concatenate([torus, rng.uniform(-1.5, 1.5, (outliers, 3))])


@cache
def digits(seed: int = 0) -> Digits:
    return shifted_digits(seed)


@cache
def adapted(seed: int = 0, **settings: Any) -> Any:
    """The classifier of the demo, fitted on both domains; no label of the target is read."""
    from adaptive_ot.adapt import JointTransportClassifier
    from adaptive_ot.workbench.benchmark.method import stacked

    both, labels, domain = stacked(digits(seed).x, digits(seed).y, digits(seed).z)
    return JointTransportClassifier(**settings).fit(both, labels, sample_domain=domain)


def source_only(seed: int) -> Any:
    """The same classifier, fitted on the source alone."""
    from adaptive_ot.adapt import JointTransportClassifier

    return JointTransportClassifier().fit(digits(seed).x, digits(seed).y)


def accuracy(seed: int, model: Any) -> float:
    """In percent, on the digits of the target."""
    here = digits(seed)
    return 100 * float(np.mean(model.predict(here.z[~here.outlier]) == here.true_class[~here.outlier]))


def digits_cost() -> aot.JointCost:
    return aot.JointCost(digits().x, digits().z, np.eye(10)[digits().y], adapted().predict_proba(digits().z))


def digits_labels() -> tuple[np.ndarray, np.ndarray]:
    """The labels of the source, and those of the target, which only sort the pictures."""
    return digits().y.astype(str), np.where(digits().outlier, "outlier", digits().true_class.astype(str))


@cache
def trained(method: str) -> list[dict[str, Any]]:
    """The metrics of a short training run on these digits; its target lacks three classes and has no outliers."""
    from adaptive_ot import deep

    here = digits()
    known = ~here.outlier
    sides = {"plain": (here.x, here.y), "scan": (here.z[known], here.true_class[known])}
    arrays = {}
    for name, (pixels, labels) in sides.items():
        images = (255 * pixels.reshape(-1, 8, 8)).clip(0, 255).astype(np.uint8)
        arrays |= {f"{name}_train_x": images, f"{name}_train_y": labels}
    with tempfile.TemporaryDirectory() as folder:
        root, output = Path(folder) / "digits.npz", Path(folder) / "run"
        np.savez(root, **arrays)
        task = {"dataset": "digits", "root": root, "source": "plain", "target": "scan", "output": output}
        deep.train(deep.configure(**task, method=method, iterations=120, evaluate_every=10, device="cpu"))
        return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


# The gallery shows these in both themes.
ALSO_DARK = ("toy", "torus", "label_plan", "choose_reach")

PICTURES: dict[str, Callable[[], Any]] = {
    draw.__name__: draw
    for draw in (
        toy,
        moons,
        torus,
        plan,
        plans,
        label_plan,
        mass_path,
        mass_against_overlap,
        sensitivity,
        training,
        convergence,
        comparison,
        choose_reach,
        choose_epsilon,
        choose_kappa,
        choose_mass,
    )
}


def save(figure: Any, path: Path) -> None:
    """As a PNG with a palette."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path.relative_to(HERE.parent), f"{path.stat().st_size / 1000:.0f} KB")


def main(names: list[str]) -> None:
    for name in names or PICTURES:
        with plot.theme("light"):
            save(PICTURES[name](), HERE / "gallery" / f"{name}.png")
        if name in ALSO_DARK:
            with plot.theme("dark"):
                save(PICTURES[name](), HERE / "gallery" / f"{name}_dark.png")


if __name__ == "__main__":
    main(sys.argv[1:])
