"""The commands and their options; what they do is in the modules beside this one, imported when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from adaptive_ot import __version__
from adaptive_ot.workbench.cli import deep_app, report_app
from adaptive_ot.workbench.cli.options import Whole

app = App(
    name="adaptive-ot",
    help="Adaptive optimal transport: align two datasets that only partly match.",
    version=__version__,
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)


@app.command
def solve(
    cost: Path,
    targets: Path | None = None,
    /,
    *,
    reach: float | None = None,
    source_weights: Path | None = None,
    target_weights: Path | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    equal: Annotated[bool, Parameter(negative=())] = False,
    mass: float | None = None,
    tau: float | None = None,
    rho: float | None = None,
    epsilon: float | None = None,
    entropy: Literal["augmented", "product", "counting"] | None = None,
    tolerance: float = 1e-9,
    max_pivots: Whole | None = None,
    max_iterations: Whole | None = None,
    report: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Solve a problem from a cost matrix, or from two point files and a reach.

    Adaptive transport, unless --equal, --mass, --tau or --rho asks for another model; see docs/choosing.md.

    Files are .npy, .csv (numbers separated by commas; a first line without any number is a header) or .npz (one array,
    or one named "cost" for a cost, "x" for points, "weights" for weights; a cost may also come from
    scipy.sparse.save_npz).

    Parameters
    ----------
    cost
        Cost matrix, sources x targets, of any sign; or the source points, one a row.
    targets
        Target points, one a row; then the first file holds the source points.
    reach
        With two point files: the distance at which matching stops to pay. The cost is |x - z|^2 - reach^2.
    source_weights
        A weight for every source; by default 1/n each.
    target_weights
        A weight for every target; by default 1/m each.
    output
        Where to write the plan: .npz (read it with scipy.sparse.load_npz), .csv (source, target, mass; counted from 0)
        or .npy (dense).
    equal
        Balanced transport: move everything.
    mass
        Partial transport: move exactly so much.
    tau
        Unbalanced transport, with --epsilon: marginals may differ from the weights, for this price of divergence.
    rho
        Robust transport: move everything between reweightings inside a chi-square ball of this size.
    epsilon
        Solve with this much entropy, in units of the cost; exactly if not given.
    entropy
        With --epsilon: what the entropy is relative to, "augmented" if not given; see docs/entropic.md.
    tolerance
        The certified gap may be this large relative to the sum, without signs, of the terms of the value and of its
        bound; see docs/exact.md. With --epsilon: the error of the column sums relative to the target weight.
    max_pivots
        Give up after about this many simplex pivots.
    max_iterations
        With --epsilon: give up after about this many passes over all pairs.
    report
        A directory for the summary, the match, pictures, and a page to look at them: report.html. See docs/report.md.
    json
        Print a summary for programs.
    """
    from adaptive_ot.workbench.cli.inputs import Inputs
    from adaptive_ot.workbench.cli.solving import Model, Request, run

    inputs = Inputs(cost, targets, reach, source_weights, target_weights)
    limits = tolerance, max_pivots, max_iterations
    return run(Request(inputs, Model(equal, mass, tau, rho), output, epsilon, entropy, *limits, report, json))


@app.command
def path(
    cost: Path,
    targets: Path | None = None,
    /,
    *,
    reach: float | None = None,
    source_weights: Path | None = None,
    target_weights: Path | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    plot: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """What it costs to move every mass: which one to choose for partial transport.

    Files are as for "solve".

    Parameters
    ----------
    cost
        Cost matrix, sources x targets, of any sign; or the source points, one a row.
    targets
        Target points, one a row; then the first file holds the source points.
    reach
        With two point files: the distance at which matching stops to pay; without, prices are squared distances.
    source_weights
        A weight for every source; by default 1/n each.
    target_weights
        A weight for every target; by default 1/m each.
    output
        Where to write the corners of the path, as .csv: mass, least cost of moving it, price of a unit from there on.
    plot
        Where to draw the path: .png, .svg or .pdf.
    json
        Print a summary for programs.
    """
    from adaptive_ot.workbench.cli.inputs import Inputs
    from adaptive_ot.workbench.cli.walking import Request, run

    return run(Request(Inputs(cost, targets, reach, source_weights, target_weights), output, plot, json))


@app.command
def adapt(
    source: Path,
    target: Path,
    /,
    *,
    method: Literal["joint", "labels", "mapping"] = "joint",
    standardize: Annotated[bool, Parameter(negative=())] = False,
    kappa: float | None = None,
    beta: float | None = None,
    epsilon: float | None = None,
    exact: Annotated[bool, Parameter(negative=())] = False,
    equal: Annotated[bool, Parameter(negative=())] = False,
    mass: float | None = None,
    tau: float | None = None,
    reject: str | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    report: Path | None = None,
    seed: Whole = 0,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
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
    equal
        Balanced transport: match everything.
    mass
        Partial transport: match exactly so much of 1.
    tau
        Unbalanced transport: marginals may differ from the weights, for this price of divergence.
    reject
        With "labels": what to call targets that receive none.
    output
        Where to write the result: .csv (index, label, outlier_score; counted from 0), or with "mapping" .npz (x, moved,
        y, and which share of each was transported). Labels that a spreadsheet would run get an apostrophe in a .csv.
    report
        A directory for the summary, the result, pictures of the plan, and a page to look at them: report.html.
    seed
        Who is matched with whom where there are too many samples for one plan.
    json
        Print a summary for programs.
    """
    from adaptive_ot.workbench.cli.adapting import Request, run
    from adaptive_ot.workbench.cli.solving import Model

    model = Model(equal, mass, tau, None)
    return run(
        Request(
            source, target, method, standardize, kappa, beta, epsilon, exact, model, reject, output, report, seed, json
        )
    )


benchmark = App(name="benchmark", help="Compare methods of domain adaptation; what is finished survives a crash.")
app.command(benchmark)


@benchmark.command
def features(
    *datasets: Path,
    output: Annotated[Path, Parameter(alias="-o")],
    method: Annotated[list[str] | None, Parameter(negative=())] = None,
    task: Annotated[list[str] | None, Parameter(negative=())] = None,
    seeds: Whole = 3,
    samples: Whole = 1000,
    drop: Whole = 0,
    outliers: float = 0.0,
    jobs: Whole = 1,
) -> int:
    """Adapt from every domain of a dataset to every other, by our methods, POT and SKADA.

    The same command goes on where it was stopped. See docs/benchmark.md.

    Parameters
    ----------
    datasets
        A directory with a file of features and labels for every domain (.npz, .csv, .parquet or .safetensors), or an
        .npz file with images NAME_train_x and labels NAME_train_y of every domain.
    output
        The directory for the results.
    method
        One of the methods in docs/benchmark.md, as "AOT (joint)"; give it several times for several. All, if not given.
    task
        One of the tasks, as SOURCE:TARGET; give it several times for several. All, if not given.
    seeds
        How many times samples are drawn.
    samples
        Samples of either domain.
    drop
        So many classes are missing in the target.
    outliers
        This share of the target belongs to no class.
    jobs
        Processes side by side, with one thread each if there are several.
    """
    from adaptive_ot.workbench.cli.benchmarking import Features, features

    return features(Features(datasets, output, method or [], task or [], seeds, samples, drop, outliers, jobs))


@benchmark.command
def deep(plan: Path, /, *, output: Annotated[Path, Parameter(alias="-o")], jobs: Whole = 1) -> int:
    """Train networks on images: the tasks, methods and seeds of a plan file.

    The same command goes on where it was stopped, in the middle of a training, too. See docs/deep_benchmark.md.

    Parameters
    ----------
    plan
        A .toml file with the dataset, the recipe, the tasks, the seeds, and a table for every method.
    output
        The directory for the results.
    jobs
        Trainings side by side, with one thread of the CPU each if there are several.
    """
    from adaptive_ot.workbench.cli import benchmarking

    return benchmarking.deep(plan, output, jobs)


@benchmark.command
def sensitivity(plan: Path, /, *, output: Annotated[Path, Parameter(alias="-o")], jobs: Whole = 1) -> int:
    """Vary the parameters of a method one at a time, and draw what comes of it.

    The same command goes on where it was stopped. See docs/deep_benchmark.md.

    Parameters
    ----------
    plan
        A .toml file as for "benchmark deep", with one method and the values of its parameters in a table [grid].
    output
        The directory for the results.
    jobs
        Trainings side by side, with one thread of the CPU each if there are several.
    """
    from adaptive_ot.workbench.cli import benchmarking

    return benchmarking.sensitivity(plan, output, jobs)


app.command(deep_app.train)
app.command(deep_app.evaluate)
app.command(deep_app.predict)
app.command(report_app.report)
app.command(report_app.figures)


@app.command
def doctor() -> int:
    """Show what is installed and what will run where, and solve two problems with known answers."""
    from adaptive_ot.workbench.cli.doctor import run

    return run()


@app.command
def demo(*, output: Annotated[Path, Parameter(alias="-o")] = Path("demo")) -> int:
    """A toy problem, two moons with outliers, and handwritten digits adapted to another scan of them, to look at.

    Parameters
    ----------
    output
        The directory for the pictures, and for a report of the digits.
    """
    from adaptive_ot.workbench.cli.demo import run

    return run(output)
