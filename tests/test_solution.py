"""What a Solution offers beyond its numbers, and what becomes of the inputs."""

from __future__ import annotations

import dataclasses
import pickle
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy import sparse

import adaptive_ot as aot
import problems
from check import check_solution


def random_solution(seed, n=9, m=8):
    rng = np.random.default_rng(seed)
    cost = rng.integers(-5, 9, (n, m)).astype(float)
    return aot.solve(cost, rng.integers(0, 5, n).astype(float), rng.integers(0, 5, m).astype(float))


# Clusters


def clusters_by_hand(plan):
    """Grow each component from its first source until nothing is added."""
    components = []
    left = set(np.flatnonzero(plan.any(axis=1)).tolist())
    while left:
        sources, targets, grown = {min(left)}, set(), True
        while grown:
            more_targets = {int(j) for i in sources for j in np.flatnonzero(plan[i])}
            more_sources = {int(i) for j in more_targets for i in np.flatnonzero(plan[:, j])}
            grown = more_sources != sources or more_targets != targets
            sources, targets = more_sources | sources, more_targets
        components.append((sorted(sources), sorted(targets), plan[sorted(sources)].sum()))
        left -= sources
    return components


@pytest.mark.parametrize("seed", range(30))
def test_clusters(seed):
    solution = random_solution(seed)
    clusters = solution.clusters()
    expected = clusters_by_hand(solution.plan)
    found = [(c.sources.tolist(), c.targets.tolist(), pytest.approx(c.mass, rel=1e-14)) for c in clusters]
    assert sorted(found, key=lambda c: c[0]) == expected
    masses = [cluster.mass for cluster in clusters]
    assert masses == sorted(masses, reverse=True)
    assert sum(masses) == pytest.approx(solution.mass, rel=1e-14)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 2)])
def test_no_mass_no_clusters(shape):
    assert aot.solve(np.ones(shape)).clusters() == []


# Labels


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("names", [["cat", "dog", "owl"], [3, 1, 2], [2.5, -1.0, 0.0], [True, False, True]])
def test_by_label(seed, names):
    solution = random_solution(seed)
    rng = np.random.default_rng(seed)
    source_labels = [names[k] for k in rng.integers(0, 3, 9)]
    target_labels = [names[k] for k in rng.integers(0, 2, 8)]
    table = solution.by_label(source_labels, target_labels)
    assert table.source_labels.tolist() == sorted(set(source_labels))
    assert table.target_labels.tolist() == sorted(set(target_labels))
    for a, source in enumerate(table.source_labels):
        for b, target in enumerate(table.target_labels):
            pairs = [
                solution.plan[i, j]
                for i in range(9)
                for j in range(8)
                if source_labels[i] == source and target_labels[j] == target
            ]
            assert table.mass[a, b] == pytest.approx(sum(pairs), rel=1e-14, abs=1e-300)
    assert table.mass.dtype == np.float64


def test_by_label_without_mass():
    table = aot.solve(np.ones((2, 3))).by_label(["a", "b"], ["c", "c", "d"])
    assert table.mass.dtype == np.float64
    np.testing.assert_array_equal(table.mass, np.zeros((2, 2)))


def test_by_label_without_points():
    table = aot.solve(np.ones((0, 2))).by_label([], ["a", "b"])
    assert table.mass.shape == (0, 2)


# Barycentric map


@pytest.mark.parametrize("kind", ["dense", "sparse", "points"])
def test_barycentric_map(kind):
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((30, 3)) + 5, rng.standard_normal((25, 3)) + 5
    x[:4] += 100  # far from everything
    mu, nu = rng.random(30), rng.random(25)
    dense = problems.distance_matrix(x, z, reach=2.0)
    cost = {"dense": dense, "sparse": sparse.csr_array(np.minimum(dense, 0)), "points": aot.DistanceCost(x, z, 2.0)}[
        kind
    ]
    solution = aot.solve(cost, mu, nu)
    mapped = solution.barycentric_map(z) if kind == "points" else solution.barycentric_map(z, x)
    plan = solution.sparse_plan.toarray()
    idle = 0
    for i in range(30):
        if plan[i].sum() > 0:
            np.testing.assert_allclose(mapped[i], np.average(z, axis=0, weights=plan[i]), rtol=1e-12)
        else:
            idle += 1
            np.testing.assert_array_equal(mapped[i], x[i])
    assert idle >= 4
    assert mapped.shape == (30, 3)
    assert mapped.dtype == np.float64


def test_barycentric_map_needs_no_sources_where_all_move():
    solution = aot.solve([[-1.0, 1.0], [1.0, -1.0]])
    np.testing.assert_array_equal(solution.barycentric_map([[3.0], [4.0]]), [[3.0], [4.0]])


def test_barycentric_map_asks_for_sources_that_stay():
    solution = aot.solve([[-1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(aot.InvalidInput, match="source_points") as caught:
        solution.barycentric_map([[3.0], [4.0]])
    assert caught.value.argument == "source_points"
    np.testing.assert_array_equal(solution.barycentric_map([[3.0], [4.0]], [[7.0], [8.0]]), [[3.0], [8.0]])


def test_barycentric_map_leaves_the_sources_alone():
    x = np.array([[0.0], [9.0]])
    cost = aot.DistanceCost(x, [[1.0], [5.0]], reach=2.0)
    solution = aot.solve(cost)
    solution.barycentric_map([[1.0], [5.0]])[:] = -77.0
    np.testing.assert_array_equal(x, [[0.0], [9.0]])
    np.testing.assert_array_equal(solution.barycentric_map([[1.0], [5.0]]), [[1.0], [9.0]])


def test_barycentric_map_into_other_features():
    """Targets may be mapped in a space of their own; sources that stay are then given in that space."""
    solution = aot.solve(aot.DistanceCost([[0.0], [9.0]], [[1.0], [5.0]], reach=2.0))
    mapped = solution.barycentric_map([[1.0, 2.0], [3.0, 4.0]], source_points=[[0.0, 0.0], [7.0, 8.0]])
    np.testing.assert_array_equal(mapped, [[1.0, 2.0], [7.0, 8.0]])


# Printing, and other manners


def test_printing():
    toy = problems.toy()
    text = str(aot.solve(*toy.problem))
    for part in [
        "6 x 5",
        "optimal",
        "-0.733333333333",
        "0.733333333333 of at most 1",
        "5 of 6 sources",
        "4 of 5 targets",
    ]:
        assert part in text
    assert repr(aot.solve([[-1.0]])).startswith("<Solution of 1 x 1: value -1, mass 1, gap")


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
def test_printing_of_empty_problems(shape):
    solution = aot.solve(np.ones(shape))
    assert f"{shape[0]} x {shape[1]}" in str(solution)
    assert "value 0" in repr(solution)


def test_solution_is_frozen():
    solution = aot.solve([[-1.0]])
    with pytest.raises(dataclasses.FrozenInstanceError):
        solution.value = 3.0  # type: ignore[misc]


def test_support_lists_the_plan():
    solution = random_solution(3)
    rows, columns, mass = solution.support
    dense = np.zeros((9, 8))
    dense[rows, columns] = mass
    np.testing.assert_array_equal(dense, solution.plan)
    assert (np.diff(rows * 8 + columns) > 0).all()
    assert (mass > 0).all()


def test_solution_survives_pickling():
    solution = random_solution(4)
    copy = pickle.loads(pickle.dumps(solution))
    np.testing.assert_array_equal(copy.plan, solution.plan)
    assert (copy.value, copy.gap, copy.status) == (solution.value, solution.gap, solution.status)


# Types of answers


@pytest.mark.parametrize("given", [np.float64, np.float32, np.float16, np.int8, np.int64, np.uint8, bool])
def test_dense_types(given):
    cost = (np.arange(12).reshape(3, 4) % 5 - (0 if given in (np.uint8, bool) else 3)).astype(given)
    answer = np.float32 if given in (np.float32, np.float16) else np.float64
    check_solution(aot.solve(cost), cost.astype(float), np.full(3, 1 / 3), np.full(4, 1 / 4), dtype=answer)


@pytest.mark.parametrize("weight_type", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("cost_type", [np.float64, np.float32])
def test_weights_do_not_decide_the_type(cost_type, weight_type):
    cost = np.array([[-1, 2, -3], [-2, -2, 1]], cost_type)
    mu, nu = np.array([1, 2], weight_type), np.array([1, 1, 3], weight_type)
    check_solution(aot.solve(cost, mu, nu), cost, mu, nu, dtype=cost_type)


@pytest.mark.parametrize("given", [np.float64, np.float32, np.int64])
def test_sparse_types(given):
    dense = np.array([[-1, 0, -3], [0, -2, 1]], given)
    answer = np.float32 if given is np.float32 else np.float64
    forbidden = np.where(dense == 0, np.inf, dense)
    solution = aot.solve(sparse.csr_array(dense))
    check_solution(solution, forbidden, np.full(2, 1 / 2), np.full(3, 1 / 3), dtype=answer, sparse_plan=True)


@pytest.mark.parametrize("given", [np.float64, np.float32, np.int64])
def test_point_types(given):
    x, z = np.array([[0, 1], [5, 5]], given), np.array([[1, 1], [9, 9], [0, 0]], given)
    cost = problems.distance_matrix(x.astype(float), z.astype(float), 2.0)
    answer = np.float32 if given is np.float32 else np.float64
    solution = aot.solve(aot.DistanceCost(x, z, 2.0))
    check_solution(solution, cost, np.full(2, 1 / 2), np.full(3, 1 / 3), dtype=answer, sparse_plan=True, cost_scale=4.0)
    assert solution.barycentric_map(z).dtype == answer


def test_lists_and_tuples():
    solution = aot.solve([(-1, 2), (3, -4)], (1, 2), [2, 1])
    check_solution(solution, np.array([[-1.0, 2], [3, -4]]), np.array([1.0, 2]), np.array([2.0, 1]))
    assert solution.value == -5.0


# Inputs are never modified, however they are laid out


def layouts(array):
    """The same numbers in every memory layout, writable or not."""
    wide = np.zeros([2 * size for size in array.shape], array.dtype)
    wide[tuple(slice(None, None, 2) for _ in array.shape)] = array
    locked = array.copy()
    locked.flags.writeable = False
    flipped = tuple(slice(None, None, -1) for _ in array.shape)
    return {
        "contiguous": array.copy(),
        "fortran": np.asfortranarray(array),
        "strided": wide[tuple(slice(None, None, 2) for _ in array.shape)],
        "negative strides": array[flipped].copy()[flipped],
        "read-only": locked,
        "unaligned": np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1).reshape(array.shape),
        "big-endian": array.astype(array.dtype.newbyteorder(">")),
    }


LAYOUTS = list(layouts(np.zeros((1, 1))))
ROUTES = {"small": (6, 7), "column generation": (300, 310)}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_layouts(layout, dtype, route):
    rng = np.random.default_rng(5)
    n, m = ROUTES[route]
    arrays = [rng.standard_normal((n, m)).astype(dtype) - 1, rng.random(n).astype(dtype), rng.random(m).astype(dtype)]
    given = [layouts(array)[layout] for array in arrays]
    before = [array.copy() for array in given]
    solution = aot.solve(*given)
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    check_solution(solution, *arrays, dtype=dtype)
    assert solution.value == aot.solve(*arrays).value


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_point_layouts(layout, route):
    rng = np.random.default_rng(6)
    n, m = ROUTES[route]
    arrays = [rng.random((n, 2)), rng.random((m, 2)), rng.random((n, 3)), rng.random((m, 3))]
    given = [layouts(array)[layout] for array in arrays]
    before = [array.copy() for array in given]
    solution = aot.solve(aot.JointCost(*given))
    solution.barycentric_map(given[1])
    solution.barycentric_map(given[1], given[0])
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert solution.value == aot.solve(aot.JointCost(*arrays)).value


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.lil_array])
def test_sparse_input_is_untouched(container):
    matrix = container(np.array([[-1.0, 0.0, -3.0], [0.0, -2.0, 1.0]]))
    before = matrix.copy()
    aot.solve(matrix)
    assert type(matrix) is container
    np.testing.assert_array_equal(matrix.toarray(), before.toarray())


def test_untidy_sparse_input_is_untouched():
    """Unsorted indices, a pair stored twice, room to spare: read right and left as it was."""
    matrix = sparse.csr_array(([-3.0, -1.0, -2.0, -1.0], [2, 0, 1, 1], [0, 2, 4]), shape=(2, 3))
    matrix.data, matrix.indices = np.append(matrix.data, 99.0), np.append(matrix.indices, 0)
    before = [array.copy() for array in (matrix.data, matrix.indices, matrix.indptr)]
    solution = aot.solve(matrix, [1.0, 1.0], [1.0, 1.0, 1.0])
    assert solution.value == -6.0
    for array, copy in zip((matrix.data, matrix.indices, matrix.indptr), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_stored_zeros_and_positive_costs_carry_nothing():
    matrix = sparse.coo_array(([0.0, 5.0, -1.0], ([0, 0, 1], [0, 1, 1])), shape=(2, 2))
    assert aot.solve(matrix).mass == 0.5


def test_plan_does_not_alias_the_solution():
    solution = aot.solve([[-1.0, 2.0], [3.0, -2.0]])
    solution.plan[:] = 7.0
    np.testing.assert_array_equal(solution.sparse_plan.toarray(), np.eye(2) / 2)


# Outliers, and what notebooks show


def test_outliers_are_the_points_that_are_not_active():
    rng = np.random.default_rng(0)
    costs = rng.normal(1.0, 1.0, (6, 5, 7))
    for solver in (aot.Exact(), aot.Entropic(0.05)):
        batch = aot.solve(costs, solver=solver)
        sources, targets = batch.outliers
        assert 0 < len(sources) < 6 * 5
        assert 0 < len(targets) < 6 * 7
        for b, solution in enumerate(batch):
            for mine, all_of_them, active in (
                (solution.outliers.sources, sources, solution.active_source),
                (solution.outliers.targets, targets, solution.active_target),
            ):
                assert mine.tolist() == [k for k, carries in enumerate(active) if not carries]
                assert all_of_them[all_of_them[:, 0] == b, 1].tolist() == mine.tolist()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (0, 2, 3), (2, 0, 3)])
def test_outliers_of_nothing(shape):
    *batch, n, m = shape
    found = aot.solve(np.ones(shape)).outliers
    columns = (2,) if batch else ()
    problems = batch[0] if batch else 1
    assert (found.sources.shape, found.targets.shape) == ((problems * n, *columns), (problems * m, *columns))
    assert found.sources.dtype == np.int64


def test_outliers_come_in_the_library_of_the_cost():
    torch = pytest.importorskip("torch")
    solution = aot.solve(torch.tensor([[-1.0, 2.0], [3.0, 4.0]]))
    assert torch.equal(solution.outliers.targets, torch.tensor([1]))


class Cells(HTMLParser):
    """The texts of a page, and its tags."""

    def __init__(self, page):
        super().__init__()
        self.texts, self.tags = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.extend(data.strip().split())


@pytest.mark.parametrize(
    "make",
    [
        lambda: aot.solve([[-1.0, 2.0], [3.0, 4.0]]),
        lambda: aot.solve([[1.0, 2.0], [3.0, 4.0]]),  # with a note
        lambda: aot.solve(np.empty((0, 2, 3))),
        lambda: aot.solve(np.ones((2, 2, 3))),
        lambda: aot.mass_path([[-3.0, 1.0], [2.0, 4.0]]),
        lambda: aot.match([[3, 2, -1], [2, -4, -1]]),
    ],
)
def test_a_notebook_shows_what_print_shows(make):
    """The same words in a table that loads nothing and runs nothing."""
    answer = make()
    page = Cells(answer._repr_html_())
    assert page.texts == str(answer).split()
    assert set(page.tags) <= {"table", "caption", "b", "tr", "th", "td"}


def test_a_notebook_obeys_no_markup():
    @dataclasses.dataclass(frozen=True)
    class Sly(aot.AtMost):
        title = "<script>alert('&')</script>"

    solution = aot.solve([[-1.0]], marginals=Sly())
    page = Cells(solution._repr_html_())
    assert "script" not in page.tags
    assert page.texts[0].startswith("<script>")
