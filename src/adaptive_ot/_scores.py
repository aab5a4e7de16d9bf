"""What speaks for each pair of a matching, from any form in which a user gives it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind, is_sparse, to_numpy
from adaptive_ot.errors import InvalidInput

if TYPE_CHECKING:
    from adaptive_ot.exact.listed import Pairs

# Sums of so many integers, and differences of potentials, are exact in float64.
LARGEST_WHOLE = 2**40


@dataclass(frozen=True)
class Meaning:
    """How numbers become costs: ``sign * number - limit``; a pair is worth making if its cost is negative.

    Scores have the sign -1 and no limit. Costs have the sign 1, and the limit is the price of leaving both alone.
    """

    name: str
    sign: float
    limit: float
    whole: bool

    @classmethod
    def of(cls, name: str, values: np.ndarray, limit: float | None) -> Meaning:
        """Scores without a limit, and costs with one; integers stay integers."""
        whole = values.dtype.kind in "biu" and (limit is None or isinstance(limit, int | np.integer))
        if limit is None:
            return cls(name, -1.0, 0.0, whole)
        most = float(LARGEST_WHOLE) if whole else check.LARGEST
        return cls(name, 1.0, check.number("limit", limit, minimum=-most, maximum=most), whole)

    def costs(self, values: np.ndarray) -> np.ndarray:
        """The costs of these numbers in float64."""
        return self.sign * values.astype(np.float64) - self.limit

    def scores(self, costs: np.ndarray) -> np.ndarray:
        """What these costs are worth."""
        return np.rint(-costs).astype(np.int64) if self.whole else 0.0 - costs

    @property
    def most(self) -> float:
        """The largest reward that a number may stand for."""
        return float(LARGEST_WHOLE) if self.whole else check.LARGEST

    def check(self, values: np.ndarray, coordinates: Callable[[], tuple[np.ndarray, ...]] | None = None) -> None:
        """Refuse NaN, infinite rewards, and integers too large to be exact; errors name the index or coordinates."""
        if values.size == 0:
            return
        best = -self.sign * float(values.max() if self.sign < 0 else values.min())  # NaN if any number is
        if best <= self.most:
            return
        wrong = ~(-self.sign * values.astype(np.float64) <= self.most)
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        number = values[at]
        place = at if coordinates is None else tuple(int(index[at]) for index in coordinates())
        where = f"{number} at {place[0] if len(place) == 1 else place}"
        if np.isnan(number):
            forbidding = "-inf" if self.sign < 0 else "+inf"
            raise InvalidInput(self.name, "must not contain NaN", where, f"Use {forbidding} to forbid a pair.")
        if self.whole:
            rule = "must stay within 2**40 where integers are exact"
            raise InvalidInput(self.name, rule, where, "Convert it to float64.")
        bound = f"above {self.most:g}" if self.sign < 0 else f"below {-self.most:g}"
        raise InvalidInput(self.name, f"must not be {bound}", where, "Use a smaller finite number.")


class Scores(ABC):
    """The question of a matching: which pairs are worth making, and how much."""

    shape: tuple[int, int]
    kind: ArrayKind
    meaning: Meaning

    @property
    @abstractmethod
    def listed(self) -> Pairs:
        """The pairs worth making, with their costs."""

    @abstractmethod
    def cost(self) -> Any:
        """The cost of every pair, as `certify` takes it."""


class DenseScores(Scores):
    """A matrix of numbers."""

    def __init__(self, values: np.ndarray, kind: ArrayKind, meaning: Meaning) -> None:
        self.values, self.kind, self.meaning, self.shape = values, kind, meaning, values.shape

    @property
    def listed(self) -> Pairs:
        from adaptive_ot.exact.listed import Pairs

        costs = self.cost()
        rows, columns = np.nonzero(costs < 0)
        start = np.append(0, np.cumsum(np.bincount(rows, minlength=self.shape[0])))
        return Pairs(start, columns.astype(np.int32), costs[rows, columns])

    def cost(self) -> np.ndarray:
        return self.meaning.costs(self.values)


class ListedScores(Scores):
    """Candidate pairs; all others are forbidden."""

    def __init__(self, listed: Pairs, shape: tuple[int, int], kind: ArrayKind, meaning: Meaning) -> None:
        self._listed, self.shape, self.kind, self.meaning = listed, shape, kind, meaning

    @property
    def listed(self) -> Pairs:
        return self._listed

    def cost(self) -> Any:
        from scipy import sparse

        start, column, cost = self.listed
        return sparse.csr_array((cost, column, start), shape=self.shape)


class StackedScores(Sequence[DenseScores]):
    """Matrices of the same shape in one array."""

    def __init__(self, values: np.ndarray, kind: ArrayKind, meaning: Meaning) -> None:
        self.values, self.kind, self.meaning = values, kind, meaning

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> DenseScores: ...
    @overload
    def __getitem__(self, index: slice) -> list[DenseScores]: ...
    def __getitem__(self, index: int | slice) -> DenseScores | list[DenseScores]:
        if isinstance(index, slice):
            return [self[b] for b in range(len(self))[index]]
        return DenseScores(self.values[index], self.kind, self.meaning)


def dense_values(name: str, given: Any, dimensions: int) -> np.ndarray:
    """A matrix of real numbers, or many of them."""
    array = check.real_array(name, given)
    if array.ndim != dimensions:
        rule = f"must have {'two dimensions (sources x targets)' if dimensions == 2 else 'three dimensions'}"
        raise InvalidInput(name, rule, f"{array.ndim} with shape {array.shape}", "Reshape it.")
    return array


def as_scores(name: str, given: Any, limit: float | None) -> Scores:
    """The question that a matrix asks, dense or sparse; the values of a dense one are not checked yet."""
    kind = ArrayKind.of(given)
    if not is_sparse(given):
        values = dense_values(name, given, 2)
        return DenseScores(values, kind, Meaning.of(name, values, limit))
    from adaptive_ot.exact.listed import Pairs

    matrix = check.csr(name, given if kind.library == "numpy" else to_numpy(given))
    whole = to_numpy(given).dtype if kind.library == "numpy" else matrix.dtype
    matrix.sum_duplicates()
    meaning = Meaning.of(name, np.empty(0, whole), limit)
    meaning.check(matrix.data, lambda: matrix.tocoo().coords)
    n, m = given.shape
    pairs = Pairs(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), meaning.costs(matrix.data))
    return ListedScores(pairs.only(pairs.cost < 0), (n, m), kind, meaning)


def pair_scores(given: Any, shape: Any, limit: float | None) -> ListedScores:
    """The question that a list of pairs asks: sources, targets, and scores (or costs, if there is a limit)."""
    from adaptive_ot.exact.listed import Pairs, first_repeat

    meant.no_triples(given)
    if not (isinstance(given, tuple | list) and len(given) == 3):
        raise InvalidInput("pairs", "must be (sources, targets, scores)", check.describe(given), "Give three arrays.")
    names = ("pairs[0]", "pairs[1]", "pairs[2]")
    try:
        rows, columns, values = (check.real_array(name, side) for name, side in zip(names, given, strict=True))
    except InvalidInput as error:
        raise meant.numbered(error) from None
    for name, side in zip(names, (rows, columns, values), strict=True):
        if side.shape != (values.size,):
            rule = "must be one-dimensional and as long as the others"
            raise InvalidInput(name, rule, f"shape {side.shape}", "Give one entry for every pair.")
    largest = [_largest_index(name, side) for name, side in zip(names, (rows, columns), strict=False)]
    if shape is None:
        shape = largest[0] + 1, largest[1] + 1
    elif not (isinstance(shape, tuple | list) and len(shape) == 2):
        raise InvalidInput("shape", "must be two numbers", check.describe(shape), "Give (sources, targets).")
    n, m = (check.whole_number("shape", size, minimum=0, maximum=2**31 - 2) for size in shape)
    for name, most, size in zip(names, largest, (n, m), strict=False):
        if most >= size:
            raise InvalidInput(name, f"must be below {size}, the size in shape", most, "Give a larger shape.")
    meaning = Meaning.of("pairs[2]", values, limit)
    meaning.check(values)
    index = rows.astype(np.int64, copy=False), columns.astype(np.int64, copy=False)  # empty ones may hold any type
    pairs = Pairs.sorted(*index, meaning.costs(values), (n, m))
    twice = first_repeat(pairs)
    if twice >= 0:
        source = int(np.searchsorted(pairs.start, twice, side="right")) - 1
        repeated = f"({source}, {pairs.column[twice]}) twice"
        raise InvalidInput("pairs", "must not repeat", repeated, "Keep the best score of every pair.")
    return ListedScores(pairs.only(pairs.cost < 0), (n, m), ArrayKind.of(given[2]), meaning)


def _largest_index(name: str, index: np.ndarray) -> int:
    if index.size == 0:
        return -1
    if index.dtype.kind not in "iu":
        whole = index.dtype.kind == "f" and (index == np.floor(index)).all()
        remedy = "Convert it with .astype(int)." if whole else "Number sources and targets from 0."
        raise InvalidInput(name, "must hold integers", f"dtype {index.dtype}", remedy)
    if index.min() < 0:
        raise InvalidInput(name, "must not be negative", int(index.min()), "Number sources and targets from 0.")
    return int(index.max())


def capacities(name: str, given: Any, size: int) -> np.ndarray | None:
    """Capacities as integers; None if all of them are 1."""
    if given is None:
        return None
    array = check.real_array(name, given)
    if array.ndim == 0:
        array = np.full(size, array)
    if array.shape != (size,):
        rule = f"must be one number or have shape ({size},)"
        raise InvalidInput(name, rule, f"shape {array.shape}", "Give one capacity for each.")
    bad = ~((array >= 0) & (array < 2**63) & (array == np.floor(array)))
    if bad.any():
        at = int(np.argmax(bad))
        given_here = f"{array[at]} at index {at}"
        raise InvalidInput(name, "must hold whole numbers from 0", given_here, "Use 0 to leave a point out.")
    return None if (array == 1).all() else array.astype(np.int64)
