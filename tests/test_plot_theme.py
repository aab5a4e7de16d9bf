"""Every picture, light and dark: readable, without warnings, whatever names and numbers it is given."""

import io
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
from adaptive_ot.workbench.cli.samples import TOY_COST, moons_with_outliers

NAMES = [
    "$a$ and $b",
    "_hidden",
    "猫 and dog",
    "кошка, Ärger, Ελλάδα",
    "a name that is far too long for any picture " * 3,
]
BACKGROUNDS: dict[Any, str] = {"light": "#ffffff", "dark": "#16191d"}


def traces(cost, *solvers):
    """What solves report, and where the exact ones end."""
    found = []
    for solver in solvers:
        trace: list[Any] = []
        solution = aot.solve(cost, solver=solver, progress=trace.append)
        if isinstance(solver, aot.Exact):
            trace.append(trace[-1]._replace(iterations=solution.iterations, gap=solution.gap))
        found.append(trace)
    return found


@pytest.fixture(scope="module")
def drawings():
    """Functions that draw real results, each by one of the public functions, and return the figure."""
    clouds = moons_with_outliers(size=60)
    cost = aot.DistanceCost(clouds.x, clouds.z, reach=0.3)
    moons, toy, path = aot.solve(cost), aot.solve(TOY_COST), aot.mass_path(TOY_COST)
    entropic = aot.solve(cost, solver=aot.Entropic(0.01))
    labels, others = np.resize(NAMES, 60), np.resize(NAMES[:4], 60)
    curves = [plot.Curve(name, [0.1, 1, 10], [60.0, 80.0, 70.0], [1.0, 2.0, 1.0], default=1) for name in NAMES[:2]]
    lines = [{"step": k, NAMES[k % 5]: k / 7, "accuracy": k / 9, "mass": 0.5, "plan_purity": 0.4} for k in range(9)]
    found = dict(zip(NAMES, traces(cost, aot.Exact(), aot.Entropic(0.1)), strict=False))
    results = np.arange(40.0).reshape(5, 8) % 7
    masses = {name: np.linspace(0.1, 0.9, 4).tolist() for name in NAMES}
    return {
        "transport": lambda: plot.transport(moons).figure,
        "transport without points": lambda: plot.transport(toy).figure,
        "plan": lambda: plot.plan(moons, labels, others).figure,
        "plans": lambda: plot.plans({NAMES[0]: moons, NAMES[1]: entropic, NAMES[2]: moons}, labels, others),
        "label_plan": lambda: plot.label_plan(moons, labels, others).figure,
        "mass_path": lambda: plot.mass_path(path).figure,
        "sensitivity": lambda: plot.sensitivity(curves, (NAMES[0], 50.0), "result"),
        "training": lambda: plot.training(lines, baseline=(NAMES[1], 0.5)),
        "mass_against_overlap": lambda: plot.mass_against_overlap([0.1, 0.5, 0.7, 1.0], masses).figure,
        "convergence": lambda: plot.convergence(found).figure,
        "comparison": lambda: plot.comparison(NAMES, list("abcdefgh"), results, np.ones((5, 8))),
        "comparison of few": lambda: plot.comparison(NAMES, NAMES[:3], results[:, :3], np.ones(5)),
    }


DRAWINGS = [
    "transport",
    "transport without points",
    "plan",
    "plans",
    "label_plan",
    "mass_path",
    "sensitivity",
    "training",
    "mass_against_overlap",
    "convergence",
    "comparison",
    "comparison of few",
]


def contrast(a, b) -> float:
    """WCAG's ratio of luminances."""
    levels = []
    for colour in (a, b):
        rgb = np.array(to_rgb(colour))
        levels.append(np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def rendered(figure) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3]


def inside_a_table(text) -> bool:
    """Numbers in cells have the cell for background; they are judged elsewhere."""
    return bool(text.axes and text.axes.child_axes and text in text.axes.texts)


@pytest.mark.parametrize("theme", BACKGROUNDS)
@pytest.mark.parametrize("name", DRAWINGS)
def test_text_stands_out(drawings, name, theme):
    """Also if the picture is saved when the theme is over; and nothing else may warn."""
    assert set(drawings) == set(DRAWINGS)
    with plot.theme(theme):
        figure = drawings[name]()
    assert isinstance(figure, Figure)
    pixels = rendered(figure)
    background = to_hex(figure.get_facecolor())
    assert background == BACKGROUNDS[theme]
    assert to_hex(pixels[0, 0] / 255) == background
    assert (pixels.mean() > 128) == (theme == "light")
    shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert len(shown) > 5
    for text in shown:
        if not inside_a_table(text):
            assert contrast(text.get_color(), background) >= 4.5, text
    for ax in figure.axes:
        assert same_color(ax.get_facecolor(), background)
        for axis in (ax.xaxis, ax.yaxis):
            for tick in axis.get_major_ticks():
                assert contrast(tick.tick1line.get_color(), background) >= 3
        for spine in ax.spines.values():
            assert not spine.get_visible() or contrast(spine.get_edgecolor(), background) >= 3
    figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.parametrize("name", DRAWINGS)
def test_nothing_is_cut_off(drawings, name):
    figure = drawings[name]()
    figure.canvas.draw()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -0.02


def test_zero_is_the_background():
    solution = aot.solve(TOY_COST)
    with plot.theme("dark"):
        ax: Any = plot.plan(solution)
    colour_of = ax.images[0].cmap
    assert to_hex(colour_of(0.0)) == BACKGROUNDS["dark"]
    against = [contrast(colour_of(share), BACKGROUNDS["dark"]) for share in np.linspace(0, 1, 50)]
    assert (np.diff(against) > 0).all()  # more mass, more light


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_numbers_stand_out_from_their_cells(theme):
    labels = np.arange(6)
    cost = np.where(np.eye(6) > 0, -1.0, 1.0)
    weights = np.array([1.0, 2, 3, 4, 5, 6])
    with plot.theme(theme):
        ax: Any = plot.label_plan(aot.solve(cost, weights, weights), labels, labels)
    image = ax.images[0]
    assert len(ax.texts) == 6
    for text in ax.texts:
        column, row = (int(place) for place in text.get_position())
        assert contrast(text.get_color(), image.cmap(image.norm(image.get_array()[row, column]))) >= 4.5


def test_given_axes_are_painted():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    with plot.theme("dark"):
        plot.plan(aot.solve(TOY_COST), ax=right)
    assert to_hex(figure.get_facecolor()) == to_hex(right.get_facecolor()) == BACKGROUNDS["dark"]
    assert to_hex(left.get_facecolor()) == "#ffffff"


def test_without_a_theme_matplotlib_decides():
    """As ever: pictures follow the settings of who draws, unless a theme is asked for."""
    solution = aot.solve(TOY_COST)
    with matplotlib.rc_context({"figure.facecolor": "navy", "text.color": "yellow", "axes.labelcolor": "yellow"}):
        ax: Any = plot.plan(solution)
        assert (ax.figure.get_facecolor()[:3], ax.title.get_color()) == (to_rgb("navy"), "yellow")
        with plot.theme("light"):
            ax = plot.plan(solution)
        assert (to_hex(ax.figure.get_facecolor()), ax.title.get_color()) == ("#ffffff", "black")
    ax = plot.plan(solution)
    assert (to_hex(ax.figure.get_facecolor()), ax.title.get_color()) == ("#ffffff", "black")


def test_settings_are_left_alone():
    before = dict(matplotlib.rcParams)
    with plot.theme("dark"):
        plot.plan(aot.solve(TOY_COST))
        assert dict(matplotlib.rcParams) == before


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


@pytest.mark.parametrize("name", ["Dark", "", None, 3, ["dark"]])
def test_unknown_themes(name):
    with pytest.raises(aot.InvalidInput, match='name must be one of "light", "dark"'):
        plot.theme(name)


def test_names_as_they_are_read():
    ax: Any = plot.plan(aot.solve(-np.eye(5)), NAMES, NAMES)
    ax.figure.canvas.draw()
    shown = [label.get_text() for label in ax.get_yticklabels()]
    expected = [
        r"\$a\$ and \$b",
        "_hidden",
        "a name that is far...picture",
        "кошка, Ärger, Ελλάδα",
        r"\u732b and dog",
    ]
    assert shown == expected
    legend = plot.mass_against_overlap([0.5], {name: [0.5] for name in NAMES}).get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[1:3] == expected[:2]  # no mathematics, and not left out


def test_fonts_that_are_asked_for_are_used():
    """A font that Matplotlib has, and that has a letter which the first one lacks."""
    with matplotlib.rc_context({"font.family": ["cmr10", "DejaVu Sans", "not installed"]}):
        from adaptive_ot.plot.names import written

        assert written("Ж 猫") == r"Ж \u732b"


@pytest.mark.parametrize("draw", [plot.plan, plot.label_plan])
def test_one_class_and_one_sample(draw):
    for theme in BACKGROUNDS:
        for cost in ([[-1.0]], [[1.0]]):
            with plot.theme(theme):
                ax: Any = draw(aot.solve(cost), ["only"], ["only"])
            ax.figure.canvas.draw()
            assert float(ax.images[0].get_array().sum()) == max(0.0, -cost[0][0])


def test_without_matplotlib(drawings, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.setitem(sys.modules, name, None)
    for name, draw in drawings.items():
        with pytest.raises(aot.MissingDependency, match="matplotlib"):
            print(name, draw())


@pytest.mark.parametrize("draw", [plot.transport, plot.plan, plot.mass_path])
def test_axes_must_be_axes(draw):
    what = aot.mass_path(TOY_COST) if draw is plot.mass_path else aot.solve(TOY_COST)
    with pytest.raises(aot.InvalidInput, match="ax must be an instance of Axes"):
        draw(what, ax="here")
