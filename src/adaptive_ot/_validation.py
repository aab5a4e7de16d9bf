"""Every check of what a user hands in, and the message it gets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_torch_array

from adaptive_ot._arrays import ArrayKind, to_numpy
from adaptive_ot.errors import InvalidInput

if TYPE_CHECKING:
    from scipy import sparse

# Squares, products and their sums must stay finite in float64.
LARGEST = 1e150

# NumPy's letters for booleans, signed and unsigned integers, and floating numbers.
REAL = "biuf"


def number(name: str, value: Any, *, minimum: float = -math.inf, strict: bool = False) -> float:
    """A finite real number, at least (or, if strict, above) `minimum`."""
    rule = "must be a finite number"
    if minimum > -math.inf:
        rule += f" {'above' if strict else 'of at least'} {minimum:g}"
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(name, rule, _describe(value), f"Give {name} as a single number.") from None
    if not math.isfinite(result) or result < minimum or (strict and result == minimum):
        raise InvalidInput(name, rule, value, f"Choose another {name}.")
    return result


def dense_cost(cost: Any) -> np.ndarray | Any:
    """A two-dimensional floating array without NaN or -inf: C-contiguous NumPy, or the torch tensor if on a GPU."""
    kind = ArrayKind.of(cost)
    array = _real_gpu_tensor("cost", cost) if kind.on_gpu else _real_array("cost", cost)
    if array.ndim != 2:
        raise InvalidInput(
            "cost",
            "must have two dimensions (sources x targets)",
            f"{array.ndim} with shape {tuple(array.shape)}",
            "Reshape it; for points use DistanceCost(x, z, reach).",
        )
    if not kind.on_gpu:
        # Native byte order: kernels know no other.
        single = array.dtype.kind == "f" and array.dtype.itemsize == 4
        array = array.astype(np.float32 if single else np.float64, copy=False)
    # The minimum is NaN if anything is: one pass, nothing allocated.
    lowest = float(array.min()) if 0 not in array.shape else 0.0
    if not lowest >= -LARGEST:
        host = to_numpy(array)
        row, column = (int(k) for k in np.argwhere(~(host >= -LARGEST))[0])
        _reject_cost(host[row, column], (row, column))
    return array if kind.on_gpu else np.ascontiguousarray(array)


def sparse_cost(cost: Any) -> sparse.csr_array:
    """A float64 CSR copy, without duplicates, of a matrix free of NaN and -inf."""
    from scipy import sparse

    if cost.ndim != 2:
        raise InvalidInput("cost", "must have two dimensions", cost.ndim, "Reshape it.")
    if cost.dtype.kind not in REAL:
        raise InvalidInput("cost", "must hold real numbers", f"dtype {cost.dtype}", "Convert it to float64.")
    try:
        cost = cost.copy()  # checking prunes, and summing duplicates changes, the matrix at hand
        # SciPy trusts indices unless told to look; its compiled code would follow wrong ones out of bounds.
        if hasattr(cost, "check_format"):
            cost.check_format(full_check=True)
        matrix = sparse.csr_array(cost, dtype=np.float64)
    except ValueError as error:
        raise InvalidInput("cost", "must be a valid sparse matrix", error, "Build it from rows and columns.") from None
    matrix.sum_duplicates()
    bad = ~(matrix.data >= -LARGEST)
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        _reject_cost(matrix.data[at], (row, int(matrix.indices[at])))
    return matrix


def weights(name: str, given: Any, size: int, kind: ArrayKind) -> np.ndarray:
    """Non-negative finite weights of the right length as float64; uniform with total 1 if None was given."""
    if given is None:
        return np.full(size, 1.0 / size) if size else np.zeros(0)
    same_place("cost", kind, name, given)
    array = _real_array(name, given).astype(np.float64)
    if array.shape != (size,):
        raise InvalidInput(name, f"must have shape ({size},) to match the cost", array.shape, f"Give {size} weights.")
    if size == 0:
        return array
    lowest = array.min()
    if not lowest >= 0:
        at = int(np.argmin(array >= 0))
        raise InvalidInput(name, "must be non-negative", f"{array[at]} at index {at}", "Use 0 to leave a point out.")
    if not array.max() <= LARGEST:
        at = int(np.argmin(array <= LARGEST))
        raise InvalidInput(
            name, f"must be at most {LARGEST:g}", f"{array[at]} at index {at}", "Scale the weights down."
        )
    return array


def points(name: str, given: Any) -> np.ndarray:
    """A finite two-dimensional float64 array, one point (or one row of class scores) per row."""
    array = _real_array(name, given)
    if array.ndim != 2:
        raise InvalidInput(
            name,
            "must have two dimensions (points x features)",
            f"shape {array.shape}",
            "Use array[:, None] for 1-D points.",
        )
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not array.flags.writeable:
        array = array.copy()  # for a read-only array the kernels would be compiled anew
    if array.size and not np.abs(array).max() <= LARGEST:
        row, column = (int(k) for k in np.argwhere(~(np.abs(array) <= LARGEST))[0])
        raise InvalidInput(
            name,
            f"must hold finite numbers up to {LARGEST:g}",
            f"{array[row, column]} at ({row}, {column})",
            "Remove or rescale the point.",
        )
    return array


def same_columns(first: str, a: np.ndarray, second: str, b: np.ndarray) -> None:
    """Both arrays describe points of the same dimension."""
    if a.shape[1] != b.shape[1]:
        raise InvalidInput(
            second,
            f"must have as many columns as {first} ({a.shape[1]})",
            b.shape[1],
            "Use the same features for both.",
        )


def same_rows(first: str, a: np.ndarray, second: str, b: np.ndarray) -> None:
    """Both arrays describe the same points."""
    if a.shape[0] != b.shape[0]:
        raise InvalidInput(
            second, f"must have as many rows as {first} ({a.shape[0]})", b.shape[0], "Give one row a point."
        )


def same_place(first: str, kind: ArrayKind, second: str, array: Any) -> None:
    """Arrays given together live in the same library and on the same device; plain sequences fit anywhere."""
    if not (is_torch_array(array) or isinstance(array, np.ndarray)):
        return
    other = ArrayKind.of(array)
    if other.library != kind.library:
        raise InvalidInput(
            second,
            f"must come from the same library as {first} ({kind.library})",
            other.library,
            "Convert one of them.",
        )
    if other.device != kind.device:
        raise InvalidInput(
            second, f"must be on the device of {first} ({kind.device})", other.device, "Move one of them."
        )


def labels(name: str, given: Any, size: int) -> np.ndarray:
    """One label a point."""
    array = to_numpy(given)
    if array.shape != (size,):
        raise InvalidInput(name, f"must have shape ({size},)", array.shape, "Give one label a point.")
    return array


def instance(name: str, value: Any, *kinds: type) -> None:
    """`value` belongs to one of these classes."""
    if not isinstance(value, kinds):
        allowed = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidInput(
            name, f"must be an instance of {allowed}", _describe(value), f"Give an instance of {allowed}."
        )


def _real_gpu_tensor(name: str, given: Any) -> Any:
    if given.dtype.is_complex:
        raise InvalidInput(name, "must hold real numbers", f"dtype {given.dtype}", "Take the real part.")
    tensor = given.detach()
    return tensor if tensor.dtype.is_floating_point else tensor.double()


def _real_array(name: str, given: Any) -> np.ndarray:
    if np.ma.isMaskedArray(given):
        raise InvalidInput(name, "must not be a masked array", "one", "Fill it first; +inf in a cost forbids a pair.")
    try:
        array = to_numpy(given)
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            name, "must be an array of numbers", str(error), "Check for ragged rows or mixed types."
        ) from None
    if not isinstance(array, np.ndarray):
        raise InvalidInput(name, "must be a dense array", _describe(given), "Call .toarray() first.")
    if array.dtype.kind not in REAL:
        raise InvalidInput(name, "must hold real numbers", f"dtype {array.dtype}", "Convert it to float64.")
    return array


def _reject_cost(value: float, at: tuple[int, int]) -> None:
    if math.isnan(value):
        raise InvalidInput("cost", "must not contain NaN", f"NaN at {at}", "Forbid a pair with +inf instead.")
    raise InvalidInput("cost", f"must not be below {-LARGEST:g}", f"{value} at {at}", "Use a smaller finite reward.")


def _describe(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
