"""The kinds of cost: a dense array, a SciPy sparse matrix, or two point clouds whose cost matrix never exists.

All of them implement `Cost`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind, is_sparse, to_numpy
from adaptive_ot._partners import estimated_reach

if TYPE_CHECKING:
    from scipy import sparse

# Up to this many pairs, the median distance is taken over all pairs; beyond that, over a fixed sample.
PAIRS_FOR_MEDIAN = 1_000_000

# About how many rows and columns a point cost samples.
ROWS_SAMPLED, COLUMNS_SAMPLED = 16, 2048

# How many numbers are held at once where pairs are evaluated one by one.
NUMBERS_AT_ONCE = 4_000_000


NO_GRADIENT = "Pass {}.detach(), or a matrix such as torch.cdist(x, z)**2 - reach**2 to aot.autodiff.transport_value."


class Cost(ABC):
    """The interface through which engines read a cost.

    `layout` says how the pairs are stored: ``"dense"``, ``"sparse"`` (only stored pairs are allowed) or ``"points"``
    (the matrix is never formed). Each engine chooses its method by the layout.
    """

    layout: Literal["dense", "sparse", "points"]
    shape: tuple[int, int]
    kind: ArrayKind
    least = -math.inf  # a lower bound on all costs, unaffected by rounding
    estimated: Mapping[str, str] = MappingProxyType({})  # the numbers that were estimated, in words, by name

    @abstractmethod
    def block(self, start: int, stop: int) -> np.ndarray:
        """Rows start:stop as a dense array, +inf where a pair is forbidden."""

    @abstractmethod
    def part(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The costs of all pairs of these rows and columns, +inf where a pair is forbidden."""

    @abstractmethod
    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The costs of single pairs in float64."""

    @abstractmethod
    def transposed(self) -> Cost:
        """The cost with sources and targets exchanged."""

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Blocks of rows, each with the index of its first row."""
        n, m = self.shape
        step = max(1, NUMBERS_AT_ONCE // max(1, m))
        for start in range(0, n, step):
            yield start, self.block(start, min(start + step, n))

    def row_minima(self) -> np.ndarray:
        """The smallest cost of every source; +inf if all its pairs are forbidden."""
        return np.concatenate([np.zeros(0), *(rows.min(axis=1, initial=np.inf) for _, rows in self.blocks())])

    def column_minima(self, f: np.ndarray) -> np.ndarray:
        """The smallest C_ij - f_i of every target; +inf if all its pairs are forbidden."""
        lowest = np.full(self.shape[1], np.inf)
        for start, rows in self.blocks():
            np.minimum(lowest, (rows - f[start : start + len(rows), None]).min(axis=0), out=lowest)
        return lowest

    @abstractmethod
    def sample(self) -> Any:
        """All stored costs, or the costs of some pairs if the matrix is never formed."""

    def allowed_pairs(self) -> sparse.csr_array | None:
        """A matrix with a one for every pair that may carry mass, or None if all pairs may."""
        return None

    def check_highest(self) -> None:
        """Refuse costs that are too large to be summed; the check of the coordinates bounds those of points."""
        if self.layout != "points":
            check.highest_cost(self.sample())

    @property
    def positions(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Source and target points, if the cost is made from points that have coordinates."""
        return None


class ArrayCost(Cost):
    """A dense cost matrix."""

    layout = "dense"

    def __init__(self, cost: Any) -> None:
        self.kind = ArrayKind.of(cost)
        self.array = check.dense_cost(cost)
        self.shape: tuple[int, int] = tuple(self.array.shape)

    @classmethod
    def checked(cls, array: Any, kind: ArrayKind) -> ArrayCost:
        """From an array that was checked before, and the kind of the array that the user passed."""
        cost = cls.__new__(cls)
        cost.kind, cost.array, cost.shape = kind, array, tuple(array.shape)
        return cost

    def block(self, start: int, stop: int) -> np.ndarray:
        return to_numpy(self.array[start:stop])

    def part(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return to_numpy(self.array[rows.tolist()][:, columns.tolist()]).astype(np.float64)

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return to_numpy(self.array[rows, columns]).astype(np.float64)

    def transposed(self) -> ArrayCost:
        return ArrayCost.checked(self.array.T, self.kind)

    def sample(self) -> Any:
        return self.array

    def allowed_pairs(self) -> sparse.csr_array | None:
        if math.prod(self.shape) == 0 or float(self.array.max()) < math.inf:
            return None
        from scipy import sparse

        return sparse.csr_array(np.isfinite(to_numpy(self.array)).astype(np.float64))


class SparseCost(Cost):
    """Only stored pairs may carry mass."""

    layout = "sparse"

    def __init__(self, cost: Any) -> None:
        self.kind = ArrayKind.of(cost)
        self.matrix = check.sparse_cost(cost if self.kind.library == "numpy" else to_numpy(cost))
        n, m = cost.shape
        self.shape = (n, m)

    def pairs_below(self, limit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and costs of the stored pairs that cost less than `limit`, by row, then column."""
        pairs = self.matrix.tocoo()
        lower = pairs.data < limit
        rows, columns = (index[lower].astype(np.int64) for index in pairs.coords)
        return rows, columns, pairs.data[lower]

    def block(self, start: int, stop: int) -> np.ndarray:
        return _filled(self.matrix[start:stop])

    def part(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return _filled(self.matrix[rows][:, columns])

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        stored = self.matrix.tocoo()
        m = max(1, self.shape[1])
        keys, wanted = stored.coords[0].astype(np.int64) * m + stored.coords[1], rows * m + columns
        place = np.searchsorted(keys, wanted)
        keys, costs = np.append(keys, -1), np.append(stored.data, np.inf)  # the last entry stands for every absent pair
        return np.where(keys[place] == wanted, costs[place], np.inf)

    def transposed(self) -> SparseCost:
        return SparseCost(self.matrix.T)

    def column_minima(self, f: np.ndarray) -> np.ndarray:
        pairs = self.matrix.tocoo()
        rows, columns = pairs.coords
        lowest = np.full(self.shape[1], np.inf)
        np.minimum.at(lowest, columns, pairs.data - f[rows])
        return lowest

    def sample(self) -> np.ndarray:
        return self.matrix.data

    def allowed_pairs(self) -> sparse.csr_array | None:
        if self.matrix.nnz == math.prod(self.shape):
            return None
        from scipy import sparse

        matrix = self.matrix
        return sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=self.shape)


class PointCost(Cost):
    """distance_weight |x_i - z_j|^2 - class_weight <p_i, q_j> - offset, from points and class scores in float64.

    `arrays` are x, z, p and q as they came: NumPy arrays, or tensors on a GPU, which get to the host when they are read
    as `x` to `q`.
    """

    layout = "points"

    def __init__(
        self,
        kind: ArrayKind,
        x: Any,
        z: Any,
        p: Any,
        q: Any,
        *,
        distance_weight: float,
        class_weight: float,
        offset: float,
    ) -> None:
        self.kind = kind
        self.arrays = x, z, p, q
        self.dimension, self.classes = int(x.shape[1]), int(p.shape[1])
        self.distance_weight = distance_weight
        self.class_weight = class_weight
        self.offset = offset
        self.shape = (int(x.shape[0]), int(z.shape[0]))
        self.least = -math.inf if self.classes else -offset  # no distance is negative

    x = cached_property(lambda self: to_numpy(self.arrays[0]))
    z = cached_property(lambda self: to_numpy(self.arrays[1]))
    p = cached_property(lambda self: to_numpy(self.arrays[2]))
    q = cached_property(lambda self: to_numpy(self.arrays[3]))

    @property
    def positions(self) -> tuple[np.ndarray, np.ndarray] | None:
        return (self.x, self.z) if self.dimension else None

    def block(self, start: int, stop: int) -> np.ndarray:
        from scipy.spatial.distance import cdist

        costs = -self.class_weight * (self.p[start:stop] @ self.q.T) - self.offset
        if self.dimension:
            costs += self.distance_weight * cdist(self.x[start:stop], self.z, "sqeuclidean")
        return costs

    def part(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        x, z, p, q = self.arrays
        chosen, wanted = rows.tolist(), columns.tolist()
        return self.between(x[chosen], z[wanted], p[chosen], q[wanted]).block(0, len(rows))

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        costs = self.distance_weight * squared_distances(self.x, self.z, rows, columns) - self.offset
        for part in _parts(len(rows), self.classes):
            costs[part] -= self.class_weight * np.einsum("ij,ij->i", self.p[rows[part]], self.q[columns[part]])
        return costs

    def sample(self) -> np.ndarray:
        n, m = self.shape
        return self._thinned(1 + n // ROWS_SAMPLED, 1 + m // COLUMNS_SAMPLED).block(0, n)

    def _thinned(self, by_row: int, by_column: int) -> PointCost:
        """The cost of every so many points."""
        x, z, p, q = self.arrays
        return self.between(x[::by_row], z[::by_column], p[::by_row], q[::by_column])

    def transposed(self) -> PointCost:
        x, z, p, q = self.arrays
        return self.between(z, x, q, p)

    def between(self, x: Any, z: Any, p: Any, q: Any) -> PointCost:
        """The same cost between other points."""
        return PointCost(
            self.kind,
            x,
            z,
            p,
            q,
            distance_weight=self.distance_weight,
            class_weight=self.class_weight,
            offset=self.offset,
        )


class DistanceCost(PointCost):
    """The cost |x_i - z_j|^2 - reach^2: pairs closer than `reach` attract mass.

    Parameters
    ----------
    x, z
        Source and target points, one per row. The cost matrix is never formed.
    reach
        The distance beyond which a match no longer pays off. By default it is estimated from the points: it lies in the
        gap between points with and without a near partner; without such a gap, nearly everything may match. `reach`
        holds it, and `estimate` says what it was estimated from. See docs/numbers.md.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> solution = aot.solve(aot.DistanceCost([[0.0], [9.0]], [[1.0], [5.0]], reach=2.0))
    >>> solution.mass, solution.value
    (0.5, -1.5)
    >>> import numpy as np
    >>> x, z = np.random.default_rng(0).normal(size=(2, 100, 3))
    >>> x[:20] += 50  # outliers
    >>> aot.DistanceCost(x, z)
    DistanceCost(100 x 100 points in R^3, reach=9.901, estimated: 10 % of 200 points have no near partner)
    """

    def __init__(self, x: Any, z: Any, reach: float | None = None) -> None:
        kind, source, target = _point_pair(x, z)
        self.estimate = estimated_reach(source, target) if reach is None else None
        remedy = "Omit reach to have it estimated." if isinstance(reach, str) else ""
        reach = self.estimate.reach if self.estimate else check.number("reach", reach, minimum=0.0, remedy=remedy)
        super().__init__(
            kind,
            source,
            target,
            np.zeros((len(source), 0)),
            np.zeros((len(target), 0)),
            distance_weight=1.0,
            class_weight=0.0,
            offset=reach**2,
        )
        self.reach = reach
        if self.estimate:
            self.estimated = {"reach": f"{reach:.4g}, {self.estimate}"}

    def __repr__(self) -> str:
        reach = self.estimated.get("reach", f"{self.reach:g}")
        return f"DistanceCost({self.shape[0]} x {self.shape[1]} points in R^{self.dimension}, reach={reach})"


class JointCost(PointCost):
    """The domain-adaptation cost: near points with agreeing classes attract each other.

    By default the cost is scale-free, beta (kappa |x - z|^2 / median |x - z|^2 - <p, q>), so one setting serves every
    feature extractor. With `alpha` the cost is the published form alpha |x - z|^2 - beta <p, q>.

    Parameters
    ----------
    x, z
        Features of the sources and targets, one per row.
    p, q
        Class scores of the same points: one-hot source labels and predicted target probabilities.
    kappa
        Weight of the squared distance, measured in units of the median squared distance.
    beta
        Weight of the classes, and scale of the whole cost in the scale-free form.
    alpha
        Absolute weight of the squared distance; replaces `kappa`.

    Examples
    --------
    >>> import numpy as np, adaptive_ot as aot
    >>> x, z = np.array([[0.0], [1.0]]), np.array([[0.1], [1.2]])
    >>> p, q = np.eye(2), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> aot.solve(aot.JointCost(x, z, p, q)).plan.toarray()
    array([[0.5, 0. ],
           [0. , 0.5]])
    """

    def __init__(
        self, x: Any, z: Any, p: Any, q: Any, *, kappa: float = 0.5, beta: float = 1.0, alpha: float | None = None
    ) -> None:
        kind, source, target = _point_pair(x, z)
        meant.no_gradient(NO_GRADIENT, p=p, q=q)
        check.same_place("x", kind, "p", p)
        check.same_place("x", kind, "q", q)
        source_classes, target_classes = check.scores("p", p), check.scores("q", q)
        check.same_columns("p", source_classes, "q", target_classes)
        check.same_rows("x", source, "p", source_classes)
        check.same_rows("z", target, "q", target_classes)
        beta = check.number("beta", beta, minimum=0.0)
        if alpha is None:
            kappa = check.number("kappa", kappa, minimum=0.0)
            distance_weight = beta * kappa / check.spread(median_squared_distance(to_numpy(source), to_numpy(target)))
        else:
            distance_weight = check.number("alpha", alpha, minimum=0.0)
        self.kappa = kappa if alpha is None else None
        super().__init__(
            kind,
            source,
            target,
            source_classes,
            target_classes,
            distance_weight=distance_weight,
            class_weight=beta,
            offset=0.0,
        )

    def __repr__(self) -> str:
        n, m = self.shape
        return f"JointCost({n} x {m} points in R^{self.dimension}, {self.classes} classes)"


def as_cost(cost: Any) -> Cost:
    """Wrap any cost that a user may pass."""
    if isinstance(cost, PointCost):
        return cost
    if is_sparse(cost):
        return SparseCost(cost)
    return ArrayCost(cost)


def _filled(matrix: Any) -> np.ndarray:
    """A dense array of a sparse matrix, +inf where nothing is stored."""
    part = matrix.tocoo()
    dense = np.full(part.shape, np.inf)
    dense[part.coords] = part.data
    return dense


def squared_distances(x: np.ndarray, z: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """|x_i - z_j|^2 for single pairs, by differences, so that no digits cancel."""
    result = np.empty(len(rows))
    for part in _parts(len(rows), x.shape[1]):
        difference = x[rows[part]] - z[columns[part]]
        result[part] = np.einsum("ij,ij->i", difference, difference)
    return result


def median_squared_distance(x: np.ndarray, z: np.ndarray) -> float:
    """The typical squared distance."""
    rows, columns = pairs_for_median(len(x), len(z))
    return float(np.median(squared_distances(x, z, rows, columns))) if len(rows) else 0.0


def pairs_for_median(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs whose median distance is typical: all, or a fixed sample."""
    if n * m <= PAIRS_FOR_MEDIAN:
        rows, columns = (index.ravel() for index in np.indices((n, m)))
        return rows, columns
    rng = np.random.default_rng(0)
    return rng.integers(0, n, PAIRS_FOR_MEDIAN // 4), rng.integers(0, m, PAIRS_FOR_MEDIAN // 4)


def _parts(pairs: int, width: int) -> Iterator[slice]:
    """Cut a list of pairs so that gathering `width` numbers for each stays small."""
    step = max(1, NUMBERS_AT_ONCE // max(1, width))
    for start in range(0, pairs, step):
        yield slice(start, start + step)


def _point_pair(x: Any, z: Any) -> tuple[ArrayKind, Any, Any]:
    meant.no_file(x=x, z=z)
    kind = ArrayKind.of(x)
    meant.no_gradient(NO_GRADIENT, x=x, z=z)
    check.same_place("x", kind, "z", z)
    source, target = check.cloud("x", x), check.cloud("z", z)
    check.same_columns("x", source, "z", target)
    return kind, source, target
