"""The demo: its data are what it says, its table is what a direct computation gives, its pictures are there."""

import re
from base64 import b64decode
from contextlib import redirect_stdout
from io import BytesIO, StringIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import adaptive_ot as aot
from adaptive_ot.adapt import JointTransportClassifier
from adaptive_ot.workbench.cli import digits_demo, main
from adaptive_ot.workbench.cli.digits import MISSING, Digits, shifted_digits
from adaptive_ot.workbench.cli.samples import moons_with_outliers
from reports import read_page


def few(seed=0):
    """A third of the digits, for speed."""
    return Digits(*(each[::3] for each in shifted_digits(seed)))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the demo prints and where it draws, for a third of the digits."""
    folder, printed = tmp_path_factory.mktemp("demo") / "made" / "pictures", StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(digits_demo, "shifted_digits", few)
        patch.setenv("COLUMNS", "80")
        assert main(["demo", "--output", str(folder)]) == 0
    return printed.getvalue(), folder


def test_it_shows_all_three_problems(demo):
    shown, _ = demo
    assert "x1 x2 x3 with z1 z2, mass 0.400000" in shown
    assert "x4 x5 with z3 z4, mass 0.333333" in shown
    assert "inactive    x6 and z5" in shown
    assert "of all masses up to 1, 0.780 pays" in shown
    assert "those of targets are only used for this table and for sorting, never to fit" in shown


def test_every_picture_is_written(demo):
    shown, folder = demo
    pictures = {path.name: path for path in folder.iterdir() if path.is_file()}
    assert set(pictures) == {"moons.png", "moons_path.png", "plan.png", "labels.png", "left_alone.png"}
    for picture in pictures.values():
        assert str(picture) in shown
        assert picture.read_bytes()[1:4] == b"PNG"


def test_it_ends_with_a_report_of_the_digits(demo):
    """Whose numbers are those of the first draw, and whose images are the digits."""
    shown, folder = demo
    assert f"report      {folder / 'digits' / 'report.html'}, with 7 files beside it" in " ".join(shown.split("\n"))
    digits = few(0)
    model = digits_demo.fitted(digits, aot.AtMost())
    page = read_page(folder / "digits" / "report.html")
    assert f"mass {model.transported_mass_:.6g} of at most " in page.text
    assert page.data["mass"] == pytest.approx(model.transported_mass_, rel=1e-5)
    assert (len(page.data["source"]["names"]), len(page.data["target"]["names"])) == (len(digits.x), len(digits.z))
    address = page.data["target"]["images"][-1]
    image = np.asarray(Image.open(BytesIO(b64decode(address.removeprefix("data:image/png;base64,")))))
    assert image.shape == (48, 48)
    np.testing.assert_allclose(1 - image[3::6, 3::6] / 255, digits.z[-1].reshape(8, 8), atol=0.003)


DIRECT = {
    "Kantorovich: all moves": aot.Equal(),
    "partial, mass 0.5": aot.FixedMass(0.5),
    "unbalanced, tau 0.5": aot.SoftKL(0.5),
    "adaptive": aot.AtMost(),
}


@pytest.mark.parametrize("name", DIRECT)
def test_the_table_is_a_direct_computation(demo, name):
    """Fitted and judged anew, labels of targets replaced by ones that would mislead."""
    accuracies, masses, shares = [], [], []
    for digits in map(few, range(digits_demo.DRAWS)):
        model = JointTransportClassifier(marginals=DIRECT[name]).fit(
            np.concatenate([digits.x, digits.z]),
            np.concatenate([digits.y, (digits.true_class + 1) % 10]),
            sample_domain=np.repeat([1, -2], [len(digits.x), len(digits.z)]),
        )
        right = model.predict(digits.z) == digits.true_class
        accuracies.append(right[~digits.outlier].mean())
        masses.append(model.transported_mass_)
        left = model.target_share_ <= 0.5
        shares.append([left[digits.outlier].mean(), left[~digits.outlier].mean()])
    (row,) = (line for line in demo[0].splitlines() if line.strip().startswith(f"{name} "))
    numbers = re.findall(r"[\d.]+", row.replace(name, ""))
    accuracy, spread = 100 * np.mean(accuracies), 100 * np.std(accuracies, ddof=1)
    outliers, kept = 100 * np.mean(shares, axis=0)
    assert numbers == [
        f"{accuracy:.1f}", f"{spread:.1f}", f"{np.mean(masses):.2f}", f"{outliers:.0f}", f"{kept:.0f}"
    ]  # fmt: skip


def test_the_table_without_adaptation(demo):
    accuracies = []
    for digits in map(few, range(digits_demo.DRAWS)):
        model = JointTransportClassifier().fit(digits.x, digits.y)
        accuracies.append(np.mean((model.predict(digits.z) == digits.true_class)[~digits.outlier]))
    (row,) = (line for line in demo[0].splitlines() if line.strip().startswith("source only "))
    assert row.split()[2] == f"{np.mean(accuracies):.1%}"
    assert row.split()[-3:] == ["-", "-", "-"]  # there is no plan


def test_digits_are_halves_with_classes_missing():
    digits = shifted_digits()
    everything: Any = load_digits()
    originals = {image.tobytes() for image in everything.images / 16.0}
    assert {image.tobytes() for image in digits.x} <= originals
    assert len(digits.x) == 1797 // 2
    assert set(digits.y) == set(range(10))
    assert set(digits.true_class) == set(range(10)) - set(MISSING)
    assert abs(digits.outlier.mean() - 0.15) < 1e-3
    assert 0 <= digits.z.min() <= digits.z.max() <= 1


def test_digits_are_drawn_anew_for_every_seed():
    first, again, other = shifted_digits(0), shifted_digits(0), shifted_digits(1)
    np.testing.assert_array_equal(first.z, again.z)
    assert not np.array_equal(first.y, other.y)


def test_outliers_are_like_no_digit():
    """They are farther from all digits of the target than digits are from each other."""
    digits = shifted_digits()
    true, strange = digits.z[~digits.outlier], digits.z[digits.outlier]
    between = np.linalg.norm(true[:, None] - true, axis=2) + np.diag(np.full(len(true), np.inf))
    away = np.linalg.norm(strange[:, None] - true, axis=2)
    assert np.quantile(away.min(axis=1), 0.05) > np.quantile(between.min(axis=1), 0.95)


def test_common_mass():
    """Half of the source is a 1, a quarter of the target, another quarter an outlier that looks like one."""
    x, z = np.zeros((4, 64)), np.zeros((4, 64))
    digits = Digits(x, np.array([0, 0, 1, 1]), z, np.array([0, 0, 1, 1]), np.array([False, False, False, True]))
    assert digits_demo.common_mass(digits) == 0.75


def test_left_alone_frames_true_outliers():
    digits = few()
    score = np.linspace(0, 1, len(digits.z))  # outliers come last, so they are the highest
    active = score < 0.5
    figure = digits_demo.left_alone(digits, score, active)
    framed = [sum(ax.spines["left"].get_visible() for ax in half.axes) for half in figure.subfigs]
    assert [len(half.axes) for half in figure.subfigs] == [48, 48]
    assert framed == [digits.outlier.sum(), 0]
    assert f"{digits.outlier.sum()} of 48 true outliers" in figure.subfigs[0].get_suptitle()
    highest = figure.subfigs[0].axes[0].images[0].get_array()
    np.testing.assert_array_equal(highest, digits.z[-1].reshape(8, 8))


def test_adaptive_transport_leaves_outliers_alone():
    """On all digits: nearly all outliers are left alone, and adaptation helps."""
    digits = shifted_digits()
    without, adapted = (
        digits_demo.judge(digits, digits_demo.fitted(digits, marginals)) for marginals in (None, aot.AtMost())
    )
    assert adapted.outliers_left > 0.95
    assert adapted.digits_left < 0.4
    assert 0.4 < adapted.mass <= digits_demo.common_mass(digits)
    assert adapted.accuracy > without.accuracy + 0.3


def test_moons_tell_outliers_from_inliers():
    clouds = moons_with_outliers()
    assert np.mean(clouds.source_outlier) == np.mean(clouds.target_outlier) == 0.2
    solution = aot.solve(aot.DistanceCost(clouds.x, clouds.z, reach=0.3))
    for active, outlier in (
        (solution.active_source, clouds.source_outlier),
        (solution.active_target, clouds.target_outlier),
    ):
        assert np.mean(~active[outlier]) > 0.9
        assert np.mean(active[~outlier]) > 0.9
