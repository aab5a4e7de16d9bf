"""All checks of user input, with their error messages."""

from __future__ import annotations

import copy
import math
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence, Sized
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_torch_array

from adaptive_ot._arrays import ArrayKind, is_sparse, to_numpy
from adaptive_ot.errors import InvalidInput, OutOfRange

if TYPE_CHECKING:
    from scipy import sparse

# Squares, products with weights, and their sums must stay finite in float64. Class scores enter a triple product.
LARGEST = 1e100
SMALLEST = 1 / LARGEST
LARGEST_SCORE = 1e50
LARGEST_INTEGER = 2**63 - 1

# Smaller squared distances have too few digits for a division.
SMALLEST_SQUARE = 1e-290

# Lower limit of the largest weight of a side: sums and products of smaller weights would lose digits.
SMALLEST_HEAVIEST = 1e-300

# NumPy's letters for booleans, signed and unsigned integers, and floating-point numbers.
REAL = "biuf"


def number(name: str, value: Any, *, minimum: float = -LARGEST, maximum: float = LARGEST, remedy: str = "") -> float:
    """Return a real number from `minimum` to `maximum`; by default, one whose square is finite in float64."""
    try:
        result = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        result = math.nan
    if not minimum <= result <= maximum:
        rule = f"must be a number from {minimum:g} to {maximum:g}"
        raise InvalidInput(name, rule, describe(value), remedy or f"Choose another {name}.")
    return result


def whole_number(name: str, value: Any, *, minimum: int, maximum: int = LARGEST_INTEGER) -> int:
    """Return an integer from `minimum` to `maximum`; by default, up to the largest 64-bit integer."""
    try:
        result = operator.index(value)
    except TypeError:
        result = minimum - 1
    if not minimum <= result <= maximum:
        rule = f"must be a whole number from {minimum}{'' if maximum == LARGEST_INTEGER else f' to {maximum}'}"
        raise InvalidInput(name, rule, describe(value), f"Choose another {name}.")
    return result


def place(index: Any, size: int) -> int:
    """Return the place from 0 that an index of a problem means in a batch of this size."""
    try:
        return range(size)[operator.index(index)]
    except TypeError:
        remedy = "Index one problem after the other; plan, value and so on hold the answers to all."
        raise InvalidInput("index", "must be a whole number or a slice", describe(index), remedy) from None
    except IndexError:
        rule = f"must be from {-size} to {size - 1} in a batch of {size}" if size else "finds nothing in an empty batch"
        raise OutOfRange("index", rule, index, "Problems count from 0.") from None


def dense_cost(cost: Any) -> np.ndarray | Any:
    """Return a 2-D floating-point array without NaN or -inf: C-contiguous NumPy, or the torch tensor on a GPU."""
    remedy = "Reshape it; for points use DistanceCost(x, z)."
    return _dense_costs(cost, 2, "two dimensions (sources x targets)", remedy)


def cost_batch(cost: Any) -> np.ndarray | Any:
    """Return a 3-D floating-point array without NaN or -inf: C-contiguous NumPy, or the torch tensor on a GPU."""
    array = _dense_costs(cost, 3, "three dimensions (problems x sources x targets)", "Reshape it.")
    if is_torch_array(array) or array.flags.writeable:
        return array
    return array.copy()  # kernels would be compiled again for read-only arrays


def _dense_costs(cost: Any, dimensions: int, axes: str, remedy: str) -> np.ndarray | Any:
    on_gpu = ArrayKind.of(cost).on_gpu
    array = gpu_cost(cost) if on_gpu else real_array("cost", cost)
    if array.ndim != dimensions:
        raise InvalidInput("cost", f"must have {axes}", f"{array.ndim} with shape {tuple(array.shape)}", remedy)
    if not on_gpu:
        array = _native_floats(array)
    # The minimum is NaN if any entry is: this takes one pass and allocates nothing.
    lowest = float(array.min()) if 0 not in array.shape else 0.0
    if not lowest >= -LARGEST:
        host = to_numpy(array).astype(np.float64)
        at = tuple(int(k) for k in np.argwhere(~(host >= -LARGEST))[0])
        _reject_cost(host[at], at)
    return array if on_gpu else np.ascontiguousarray(array)


def gpu_cost(given: Any) -> Any:
    """Return a tensor on a GPU as float32 or float64, without a look at its values."""
    if given.dtype.is_complex:
        raise InvalidInput("cost", "must hold real numbers", f"dtype {given.dtype}", "Take the real part.")
    tensor = given.detach()
    if not tensor.dtype.is_floating_point:
        return tensor.double()
    return tensor if tensor.dtype.itemsize >= 4 else tensor.float()


def sparse_cost(cost: Any) -> sparse.csr_array:
    """Return a float64 CSR copy without duplicates; NaN and -inf are refused."""
    if cost.ndim != 2:
        raise InvalidInput("cost", "must have two dimensions", cost.ndim, "Reshape it.")
    matrix = csr("cost", cost)
    matrix.sum_duplicates()
    bad = ~(matrix.data >= -LARGEST)
    if bad.any():
        at = int(np.argmax(bad))
        row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
        _reject_cost(matrix.data[at], (row, int(matrix.indices[at])))
    return matrix


def csr(name: str, given: Any) -> sparse.csr_array:
    """Return a float64 CSR copy of a SciPy matrix whose indices are valid."""
    from scipy import sparse

    if given.dtype.kind not in REAL:
        raise InvalidInput(name, "must hold real numbers", f"dtype {given.dtype}", "Convert it to float64.")
    try:
        # The check and the summing of duplicates work in place, and a copy made by SciPy would share the arrays.
        given = copy.deepcopy(given)
        # By default SciPy trusts indices, and its compiled code would read out of bounds where they are wrong.
        if hasattr(given, "check_format"):
            given.check_format(full_check=True)
        return sparse.csr_array(given, dtype=np.float64)
    except ValueError as error:
        raise InvalidInput(name, "must be a valid sparse matrix", error, "Build it from rows and columns.") from None


def weights(name: str, given: Any, size: int, kind: ArrayKind, problems: int | None = None) -> np.ndarray:
    """Return non-negative finite weights of the right length as float64; uniform weights of total 1 for None.

    For a batch, the result has one row per problem; the given weights may have this shape, or one row for all problems.
    """
    shape = (size,) if problems is None else (problems, size)
    if given is None:
        return np.full(shape, 1.0 / size) if size else np.zeros(shape)
    same_place("cost", kind, name, given)
    array = real_array(name, given).astype(np.float64)
    _check_weights_shape(name, array, shape)
    if array.size == 0:
        return np.zeros(shape)
    if not array.min() >= 0:
        raise InvalidInput(name, "must be non-negative", _first(array, ~(array >= 0)), "Use 0 to leave a point out.")
    if not array.max() <= LARGEST:
        raise InvalidInput(
            name, f"must be at most {LARGEST:g}", _first(array, array > LARGEST), "Scale the weights down."
        )
    heaviest = array.max(axis=-1)
    faint = (heaviest > 0) & (heaviest < SMALLEST_HEAVIEST)
    if faint.any():
        rule = f"must reach {SMALLEST_HEAVIEST:g} at one point, or be 0 everywhere"
        raise InvalidInput(name, rule, f"at most {heaviest[faint].flat[0]:g}", "Scale the weights up.")
    return array if array.shape == shape else np.broadcast_to(array, shape).copy()


def gpu_weights(name: str, given: Any, size: int, costs: Any) -> Any:
    """Return weights of a batch of costs on a GPU in float64; floating tensors there are not looked at."""
    shape, kind = (len(costs), size), ArrayKind.of(costs)
    if given is None:
        return costs.new_ones(shape).double() / size
    if not is_torch_array(given) or is_sparse(given) or not given.is_floating_point():
        return sys.modules["torch"].from_numpy(weights(name, given, size, kind, len(costs))).to(costs.device)
    same_place("cost", kind, name, given)
    _check_weights_shape(name, given, shape)
    return given.detach().double().expand(shape)


def _check_weights_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    size, batch = shape[-1], len(shape) == 2
    if tuple(array.shape) not in ((size,), shape):
        rule = f"must have shape ({size},){f' or {shape}' if batch else ''} to match the cost"
        remedy = f"Give {size} weight{'' if size == 1 else 's'}{' per problem' if batch else ''}."
        raise InvalidInput(name, rule, tuple(array.shape), remedy)


def points(name: str, given: Any, rows: int | None = None) -> np.ndarray:
    """Return a finite 2-D float64 array with one point per row."""
    array = _matrix(name, given, "points x features", "Use array[:, None] for 1-D points.", LARGEST)
    if rows is not None and len(array) != rows:
        raise InvalidInput(name, f"must have {rows} rows", len(array), "Give one point per row.")
    return array


def cloud(name: str, given: Any) -> Any:
    """The same as `points`, but those on a GPU stay there, as a tensor."""
    tensor = _tensor_on_gpu(given, LARGEST)
    return points(name, given) if tensor is None else tensor


def scores(name: str, given: Any) -> Any:
    """Return a finite 2-D float64 array with the class scores of one point per row, a tensor if they are on a GPU."""
    tensor = _tensor_on_gpu(given, LARGEST_SCORE)
    if tensor is not None:
        return tensor
    return _matrix(
        name, given, "points x classes", "One-hot encode labels, as in np.eye(classes)[labels].", LARGEST_SCORE
    )


def _tensor_on_gpu(given: Any, largest: float) -> Any:
    """A valid 2-D array on a GPU as a float64 tensor; None for any other, which `_matrix` judges on the host."""
    if is_sparse(given) or not ArrayKind.of(given).on_gpu or given.ndim != 2 or not given.is_floating_point():
        return None
    tensor = given.detach().double().contiguous()
    return tensor if not tensor.numel() or float(tensor.abs().max()) <= largest else None


def _matrix(name: str, given: Any, axes: str, advice: str, largest: float) -> np.ndarray:
    array = real_array(name, given)
    if array.ndim != 2:
        raise InvalidInput(name, f"must have two dimensions ({axes})", f"shape {array.shape}", advice)
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float64)
    if not array.flags.writeable:
        array = array.copy()  # kernels would be compiled again for a read-only array
    if array.size and not np.abs(array).max() <= largest:
        row, column = (int(k) for k in np.argwhere(~(np.abs(array) <= largest))[0])
        given_here = f"{array[row, column]} at ({row}, {column})"
        raise InvalidInput(name, f"must hold finite numbers up to {largest:g}", given_here, "Remove or rescale it.")
    return array


def spread(typical: float) -> float:
    """Return the typical squared distance as a divisor, or 1 if all points coincide."""
    if 0 < typical < SMALLEST_SQUARE:
        rule = f"must be farther from z than {SMALLEST_SQUARE**0.5:g}, or coincide with z"
        raise InvalidInput("x", rule, f"a median distance of {typical**0.5:g}", "Scale the features up.")
    return typical or 1.0


def potential(name: str, given: Any, size: int) -> np.ndarray:
    """Return one potential per point as float64."""
    array = real_array(name, given)
    if array.shape != (size,):
        raise InvalidInput(name, f"must have shape ({size},)", array.shape, "Give one potential per point.")
    array = array.astype(np.float64)
    if not (array > -np.inf).all():
        raise InvalidInput(name, "must not contain NaN or -inf", "at least one", "Use a large negative number instead.")
    return array


def plan(given: Any, shape: tuple[int, int]) -> Any:
    """Return a finite dense array or float64 SciPy CSR array of the right shape."""
    array = given if is_sparse(given) else real_array("plan", given)
    if tuple(array.shape) != shape:
        raise InvalidInput("plan", f"must have the shape of the cost {shape}", tuple(array.shape), "Transpose it?")
    entries: Any = array
    if is_sparse(array):
        array = csr("plan", to_numpy(array) if is_torch_array(array) else array)
        entries = array.data
    # Both are NaN if any entry is.
    if not (float(entries.min(initial=0)) >= -LARGEST and float(entries.max(initial=0)) <= LARGEST):
        rule = f"must hold finite numbers up to {LARGEST:g}"
        raise InvalidInput("plan", rule, "NaN, infinity or more", "Remove these entries.")
    return array


def same_columns(first: str, a: np.ndarray, second: str, b: np.ndarray) -> None:
    """Check that both arrays hold points of the same dimension."""
    if a.shape[1] != b.shape[1]:
        raise InvalidInput(
            second,
            f"must have as many columns as {first} ({a.shape[1]})",
            b.shape[1],
            "Use the same features for both.",
        )


def same_rows(first: str, a: np.ndarray, second: str, b: np.ndarray) -> None:
    """Check that both arrays describe the same points."""
    if a.shape[0] != b.shape[0]:
        raise InvalidInput(
            second, f"must have as many rows as {first} ({a.shape[0]})", b.shape[0], "Give one row per point."
        )


def same_place(first: str, kind: ArrayKind, second: str, array: Any) -> None:
    """Check that two arrays share their library and device; plain sequences are always accepted."""
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


def labels(name: str, given: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes of the labels, and the index of the class of every point."""
    try:
        array = to_numpy(given)
        classes, members = np.unique(array, return_inverse=True)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(name, "must be labels that can be sorted", error, "Use integers or text.") from None
    if array.shape != (size,):
        raise InvalidInput(name, f"must have shape ({size},)", array.shape, "Give one label per point.")
    return classes, members


def mask(name: str, given: Any, size: int) -> np.ndarray:
    """Return which of the points are meant, by a mask of them all or by their indices."""
    array = real_array(name, given)
    if array.dtype.kind == "b" and array.shape == (size,):
        return array
    if array.ndim != 1 or (array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= size)):
        rule = f"must be a mask of shape ({size},), or indices below {size}"
        raise InvalidInput(name, rule, describe(given), "Give one or the other.")
    result = np.zeros(size, np.bool_)
    result[array.astype(np.int64)] = True
    if np.count_nonzero(result) < array.size:  # as does a mask of 0 and 1, which would mean the first two points
        remedy = f"Give a boolean mask, as {name}=mask.astype(bool) makes one, or distinct indices."
        raise InvalidInput(name, "must not repeat an index", describe(given), remedy)
    return result


def numbers(name: str, given: Any, *shapes: tuple[int, ...], missing: bool = False) -> np.ndarray:
    """Return finite numbers in one of these shapes, by default one-dimensional; NaN marks `missing` ones if allowed.

    Examples
    --------
    >>> numbers("mass", [1, 2], (2,), (2, 3))
    array([1., 2.])
    """
    try:
        array = np.asarray(given)
        array = array.astype(float) if array.dtype.kind in REAL + "O" else np.array(None)
    except (ValueError, TypeError, RuntimeError):
        array = np.array(None)
    if array.dtype != float:
        raise InvalidInput(name, "must hold numbers", describe(given), "Give numbers.")
    if array.shape not in shapes if shapes else array.ndim != 1:
        rule = f"must have shape {' or '.join(map(str, shapes))}" if shapes else "must be a sequence of numbers"
        raise InvalidInput(name, rule, f"shape {array.shape}", "Give one number for each.")
    if not (np.isfinite(array) | (missing & np.isnan(array))).all():
        remedy = "Use NaN for missing numbers." if missing else "Leave it out."
        raise InvalidInput(name, "must be finite", f"{array[~np.isfinite(array)][0]}", remedy)
    return array


def named_number(name: str, given: Any, *, missing: bool = False) -> tuple[str, float]:
    """Return a name and a finite number, or NaN if it may be `missing`."""
    if not (isinstance(given, tuple) and len(given) == 2):
        raise InvalidInput(name, "must be a name and a number", describe(given), 'As in ("source only", 0.5).')
    return str(given[0]), float(numbers(f"{name}[1]", [given[1]], (1,), missing=missing)[0])


def sequence(name: str, given: Any, remedy: str) -> None:
    """Check that `given` is a list, a tuple or an array, but not text."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):
        raise InvalidInput(name, "must be a list", describe(given), remedy)


def not_empty(name: str, given: Sized, remedy: str) -> None:
    """Check that `given` has entries."""
    if not len(given):
        raise InvalidInput(name, "must hold at least one", "none", remedy)


def mapping(name: str, given: Any) -> None:
    """Check that `given` has at least one value under a name."""
    instance(name, given, Mapping)
    not_empty(name, given, "Give one under its name.")


def tensor(name: str, value: Any) -> None:
    """Check that `value` is a dense floating-point torch tensor, as derivatives require."""
    if not is_torch_array(value) or is_sparse(value):
        remedy = "Call .to_dense()." if is_torch_array(value) else "Convert it with torch.as_tensor."
        raise InvalidInput(name, "must be a dense torch tensor", describe(value), remedy)
    if not value.is_floating_point():
        raise InvalidInput(
            name, "must hold floating-point numbers", f"dtype {value.dtype}", "Call .float() or .double()."
        )


def choice(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Check that `value` is one of the options."""
    if not (isinstance(value, str) and value in options):
        allowed = ", ".join(f'"{option}"' for option in options)
        raise InvalidInput(
            name, f"must be one of {allowed}", describe(value), f"{nearest(value, options)}Choose one of them."
        )


def nearest(given: Any, known: Iterable[str]) -> str:
    """Return a hint with the known name closest to `given`, as the beginning of a remedy; empty if none is close.

    Examples
    --------
    >>> nearest("Passed", ["batch", "passes"]), nearest("colour", ["batch", "passes"])
    ("Did you mean 'passes'? ", '')
    """
    names = {each.casefold(): each for each in known}
    near = get_close_matches(str(given)[:100].casefold(), names, 1)
    return f"Did you mean '{names[near[0]]}'? " if near else ""


def function(name: str, value: Any) -> None:
    """Check that `value` is callable."""
    if not callable(value):
        raise InvalidInput(name, "must be a function", describe(value), "Give a function of one argument, or None.")


def instance(name: str, value: Any, *kinds: type) -> None:
    """Check that `value` is an instance of one of the classes."""
    if not isinstance(value, kinds):
        allowed = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidInput(
            name, f"must be an instance of {allowed}", describe(value), f"Give an instance of {allowed}."
        )


def real_array(name: str, given: Any) -> np.ndarray:
    if np.ma.isMaskedArray(given):
        raise InvalidInput(name, "must not be a masked array", "one", "Fill it first; +inf in a cost forbids a pair.")
    try:
        array = to_numpy(given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(
            name, "must be an array of numbers", error, "Check for ragged rows or mixed types."
        ) from None
    if not isinstance(array, np.ndarray):
        raise InvalidInput(name, "must be a dense array", describe(given), "Call .toarray() first.")
    if array.dtype.kind not in REAL:
        raise InvalidInput(name, "must hold real numbers", f"dtype {array.dtype}", "Convert it to float64.")
    return array


def _native_floats(array: np.ndarray) -> np.ndarray:
    """Convert to float32 or float64 in native byte order, the only types that kernels support."""
    single = array.dtype.kind == "f" and array.dtype.itemsize == 4
    with np.errstate(over="ignore"):  # larger numbers become infinite
        return array.astype(np.float32 if single else np.float64, copy=False)


def _first(array: np.ndarray, wrong: np.ndarray) -> str:
    """Describe the first wrong entry and its position."""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{array[at]} at index {at[0] if len(at) == 1 else at}"


def highest_cost(values: Any) -> None:
    """Check that sums of costs stay finite where pairs of positive cost may carry mass."""
    if 0 in values.shape or not float(values.max()) > LARGEST:
        return
    host = to_numpy(values)
    bad = (host > LARGEST) & (host < np.inf)
    if bad.any():
        rule = f"must be at most {LARGEST:g}, or +inf, where positive costs can carry mass"
        raise InvalidInput("cost", rule, _first(host, bad), "Forbid a pair with +inf instead.")


def _reject_cost(value: float, at: tuple[int, ...]) -> None:
    if math.isnan(value):
        raise InvalidInput("cost", "must not contain NaN", f"NaN at {at}", "Forbid a pair with +inf instead.")
    raise InvalidInput("cost", f"must not be below {-LARGEST:g}", f"{value} at {at}", "Use a smaller finite reward.")


def describe(value: Any) -> str:
    """Return a short description of a value."""
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
