"""Every picture, light and dark: readable, without warnings, whatever names and numbers it is given."""

import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import same_color, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

import adaptive_ot as aot
from adaptive_ot import plot
from adaptive_ot.plot.names import written
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers
from pictures import contrast, texts

NAMES = [
    "$a$ and $b",
    "_hidden",
    "猫 and dog",
    "кошка, Ärger, Ελλάδα",
    "a name that is far too long for any picture " * 3,
]
BACKGROUNDS: dict[Any, str] = {"light": "#ffffff", "dark": "#16191d"}

# Pictures on axes, which may be given, and pictures that are whole figures.
ON_AXES = [
    "transport",
    "transport in space",
    "transport without points",
    "plan",
    "label_plan",
    "mass_path",
    "mass_against_overlap",
    "convergence",
]
FIGURES = ["plans", "sensitivity", "training", "comparison", "comparison of few"]


def traces(cost, *solvers):
    """The progress of solves, and the end of exact ones."""
    found = []
    for solver in solvers:
        trace: list[Any] = []
        solution = aot.solve(cost, solver=solver, progress=trace.append)
        if isinstance(solver, aot.Exact):
            trace.append(trace[-1]._replace(iterations=solution.iterations, gap=solution.gap))
        found.append(trace)
    return found


@pytest.fixture(scope="module")
def drawings() -> dict[str, Any]:
    """Functions that draw real results, each by one of the public functions."""
    clouds = moons_with_outliers(size=60)
    cost = aot.DistanceCost(clouds.x, clouds.z, reach=0.3)
    moons, toy, path = aot.solve(cost), aot.solve(TOY_COST), aot.mass_path(TOY_COST)
    space = aot.solve(aot.DistanceCost(*np.random.default_rng(0).normal(size=(2, 40, 3)), reach=1.0))
    entropic = aot.solve(cost, solver=aot.Entropic(0.01))
    labels, others = np.resize(NAMES, 60), np.resize(NAMES[:4], 60)
    curves = [plot.Curve(name, [0.1, 1, 10], [60.0, 80.0, 70.0], [1.0, 2.0, 1.0], default=1) for name in NAMES[:2]]
    lines = [{"step": k, NAMES[k % 5]: k / 7, "accuracy": k / 9, "mass": 0.5, "plan_purity": 0.4} for k in range(9)]
    found = dict(zip(NAMES, traces(cost, aot.Exact(), aot.Entropic(0.1)), strict=False))
    results = np.arange(40.0).reshape(5, 8) % 7
    masses = {name: np.linspace(0.1, 0.9, 4).tolist() for name in NAMES}
    return {
        "transport": lambda **where: plot.transport(moons, **where),
        "transport in space": lambda **where: plot.transport(space, **where),
        "transport without points": lambda **where: plot.transport(toy, **where),
        "plan": lambda **where: plot.plan(moons, labels, others, **where),
        "label_plan": lambda **where: plot.label_plan(moons, labels, others, **where),
        "mass_path": lambda **where: plot.mass_path(path, **where),
        "mass_against_overlap": lambda **where: plot.mass_against_overlap([0.1, 0.5, 0.7, 1.0], masses, **where),
        "convergence": lambda **where: plot.convergence(found, **where),
        "plans": lambda: plot.plans({NAMES[0]: moons, NAMES[1]: entropic, NAMES[2]: moons}, labels, others),
        "sensitivity": lambda: plot.sensitivity(curves, (NAMES[0], 50.0), "result"),
        "training": lambda: plot.training(lines, baseline=(NAMES[1], 0.5)),
        "comparison": lambda: plot.comparison(NAMES, list("abcdefgh"), results, np.ones((5, 8))),
        "comparison of few": lambda: plot.comparison(NAMES, NAMES[:3], results[:, :3], np.ones(5)),
    }


def figure_of(drawn: Any) -> Any:
    return drawn if isinstance(drawn, Figure) else drawn.figure


def inside_a_table(text) -> bool:
    """Numbers in cells have the cell for background; another test looks at them."""
    return bool(text.axes and text.axes.child_axes and text in text.axes.texts)


@pytest.mark.parametrize("theme", BACKGROUNDS)
@pytest.mark.parametrize("name", [*ON_AXES, *FIGURES])
def test_text_stands_out(drawings, name, theme):
    """Also if the picture is saved when the theme is over; nothing may warn, and settings stay as they are."""
    assert set(drawings) == {*ON_AXES, *FIGURES}
    before = dict(matplotlib.rcParams)
    with plot.theme(theme):
        figure = figure_of(drawings[name]())
        assert dict(matplotlib.rcParams) == before
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    background = to_hex(figure.get_facecolor())
    assert background == BACKGROUNDS[theme] == to_hex(pixels[0, 0] / 255)
    assert (pixels.mean() > 128) == (theme == "light")
    shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert len(shown) > 5
    for text in shown:
        if not inside_a_table(text):
            assert contrast(text.get_color(), background) >= 4.5, text
    for ax in figure.axes:
        assert same_color(ax.get_facecolor(), background)
        for tick in (*ax.xaxis.get_major_ticks(), *ax.yaxis.get_major_ticks()):
            assert contrast(tick.tick1line.get_color(), background) >= 3
        for spine in ax.spines.values():
            assert not spine.get_visible() or contrast(spine.get_edgecolor(), background) >= 3
    figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.parametrize("name", [*ON_AXES, *FIGURES])
def test_nothing_is_cut_off(drawings, name):
    figure = figure_of(drawings[name]())
    figure.canvas.draw()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.02


@pytest.mark.parametrize("name", ON_AXES)
def test_given_axes_are_used_and_painted(drawings, name):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    with plot.theme("dark"):
        assert drawings[name](ax=right) is right
    assert to_hex(figure.get_facecolor()) == to_hex(right.get_facecolor()) == BACKGROUNDS["dark"]
    assert to_hex(left.get_facecolor()) == "#ffffff"
    assert not any(map(len, (left.collections, left.lines, left.images, left.patches, left.texts)))
    with pytest.raises(aot.InvalidInput, match="ax must be an instance of Axes"):
        drawings[name](ax="here")


@pytest.mark.parametrize("background", ["white", "black"])
def test_marks_stand_out_from_any_background(background):
    """The palette keeps a contrast of 1.3 (yellow on white) to 2 and more."""
    strong = (*plot.SIDE_COLOURS, plot.GREY, *plot.CLUSTER_COLOURS[:6])
    assert min(contrast(colour, background) for colour in plot.CLUSTER_COLOURS) > 1.25
    assert min(contrast(colour, background) for colour in strong) > 2


def test_zero_is_the_background():
    with plot.theme("dark"):
        ax: Any = plot.plan(aot.solve(TOY_COST))
    colour_of = ax.images[0].cmap
    assert to_hex(colour_of(0.0)) == BACKGROUNDS["dark"]
    against = [contrast(colour_of(share), BACKGROUNDS["dark"]) for share in np.linspace(0, 1, 50)]
    assert (np.diff(against) > 0).all()  # more mass, more light


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_numbers_stand_out_from_their_cells(theme):
    labels, weights = np.arange(6), np.arange(1.0, 7.0)
    with plot.theme(theme):
        ax: Any = plot.label_plan(aot.solve(np.where(np.eye(6) > 0, -1.0, 1.0), weights, weights), labels, labels)
    image = ax.images[0]
    assert len(ax.texts) == 6
    for text in ax.texts:
        column, row = (int(place) for place in text.get_position())
        assert contrast(text.get_color(), image.cmap(image.norm(image.get_array()[row, column]))) >= 4.5


def test_without_a_theme_matplotlib_decides():
    """Pictures follow the settings of Matplotlib unless a theme is chosen."""

    def colours_now() -> Any:
        ax: Any = plot.plan(aot.solve(TOY_COST))
        return ax.figure.get_facecolor()[:3], ax.title.get_color()

    with matplotlib.rc_context({"figure.facecolor": "navy", "text.color": "yellow", "axes.labelcolor": "yellow"}):
        assert colours_now() == (to_rgb("navy"), "yellow")
        with plot.theme("light"):
            assert colours_now() == ((1, 1, 1), "black")
    assert colours_now() == ((1, 1, 1), "black")


def colour_now() -> Any:
    return plot.mass_path(aot.mass_path(TOY_COST)).title.get_color()


def test_themes_nest_and_end():
    with plot.theme("dark"):
        dark = colour_now()
        with plot.theme("light"):
            assert colour_now() == "black"
        with pytest.raises(ZeroDivisionError), plot.theme("light"):
            raise ZeroDivisionError
        assert colour_now() == dark != "black"
    assert colour_now() == "black"


def test_a_theme_is_for_one_thread():
    with ThreadPoolExecutor(1) as pool, plot.theme("dark"):
        assert pool.submit(colour_now).result() == "black" != colour_now()


def test_names_as_they_are_read():
    ax: Any = plot.plan(aot.solve(-np.eye(5)), NAMES, NAMES)
    ax.figure.canvas.draw()
    expected = [
        r"\$a\$ and \$b",
        "_hidden",
        "a name that is far...picture",
        "кошка, Ärger, Ελλάδα",
        r"\u732b and dog",
    ]
    assert texts(ax.get_yticklabels()) == expected
    legend: Any = plot.mass_against_overlap([0.5], {name: [0.5] for name in NAMES}).get_legend()
    assert texts(legend.get_texts())[1:3] == expected[:2]  # no mathematics, and not left out


def test_chosen_fonts_are_used():
    """A font that Matplotlib has, and that has a letter which the first one lacks."""
    with matplotlib.rc_context({"font.family": ["cmr10", "DejaVu Sans", "not installed"]}):
        assert written("Ж 猫") == r"Ж \u732b"


@pytest.mark.parametrize("draw", [plot.plan, plot.label_plan])
@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_one_class_and_one_sample(draw, theme):
    for cost in ([[-1.0]], [[1.0]]):
        with plot.theme(theme):
            ax: Any = draw(aot.solve(cost), ["only"], ["only"])
        ax.figure.canvas.draw()
        assert float(ax.images[0].get_array().sum()) == max(0.0, -cost[0][0])


def test_global_state_is_left_alone(tmp_path):
    code = (
        "import sys, matplotlib as mpl, adaptive_ot as aot; from adaptive_ot import plot;"
        "assert 'matplotlib.figure' not in sys.modules;"
        "before = dict(mpl.rcParams);"
        "ax = plot.transport(aot.solve(aot.DistanceCost([[0, 0]], [[0, 1]], reach=2)));"
        "ax.figure.savefig('a.png'); assert dict(mpl.rcParams) == before;"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = {"PATH": "", "MPLBACKEND": "tkagg", "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize("missing", ["matplotlib.figure", "matplotlib"])
def test_without_matplotlib(drawings, monkeypatch, missing):
    for name in [name for name in sys.modules if name.startswith(missing)]:
        monkeypatch.setitem(sys.modules, name, None)
    for draw in drawings.values():
        with pytest.raises(aot.MissingDependency, match=r'matplotlib.*pip install "adaptive-ot\[plot\]"'):
            draw()
