"""The differences between NumPy and PyTorch, hidden behind one interface."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import device, is_torch_array

if TYPE_CHECKING:
    from scipy import sparse


@dataclass(frozen=True)
class ArrayKind:
    """Library, device and floating type of an array that the user passed, and of the answer that the user expects."""

    library: str
    device: Any
    dtype: np.dtype

    @classmethod
    def of(cls, array: Any) -> ArrayKind:
        """The kind of `array`; anything below or beside float32 is answered in the nearest of float32 and float64."""
        if is_torch_array(array):
            name = str(array.dtype).removeprefix("torch.")
            single = name in ("float32", "float16", "bfloat16")
            return cls("torch", device(array), np.dtype(np.float32 if single else np.float64))
        dtype = np.dtype(getattr(array, "dtype", np.float64))
        single = dtype.kind == "f" and dtype.itemsize <= 4
        return cls("numpy", "cpu", np.dtype(np.float32 if single else np.float64))

    @property
    def on_gpu(self) -> bool:
        return self.library == "torch" and self.device.type == "cuda"

    def present(self, values: Any) -> Any:
        """`values` in this library, on this device; floating values in this precision."""
        if is_torch_array(values):  # already on this device
            return values.to(getattr(sys.modules["torch"], self.dtype.name)) if values.is_floating_point() else values
        if values.dtype.kind == "f":
            with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
                values = values.astype(self.dtype, copy=False)
        if self.library == "numpy":
            return values
        import torch

        return torch.from_numpy(values).to(self.device)

    def present_plan(self, plan: Any) -> Any:
        """A dense plan in this library, on this device, in this precision, rounded down."""
        return self.present(rounded_down(plan, self.dtype))

    def present_sparse(self, plan: sparse.csr_array) -> Any:
        """A sparse plan: SciPy CSR for NumPy, a coalesced sparse tensor for PyTorch."""
        from scipy import sparse

        if self.library == "numpy":
            return sparse.csr_array((rounded_down(plan.data, self.dtype), plan.indices, plan.indptr), shape=plan.shape)
        import torch

        coordinates = plan.tocoo()
        indices = torch.from_numpy(np.stack(coordinates.coords).astype(np.int64))
        values = torch.from_numpy(rounded_down(coordinates.data, self.dtype))
        with warnings.catch_warnings():
            # torch 2.11 warns about its own default for checking invariants; CSR entries are sorted and unique already.
            warnings.filterwarnings("ignore", message="Sparse invariant checks", category=UserWarning)
            return torch.sparse_coo_tensor(indices, values, plan.shape, device=self.device, is_coalesced=True)


def rounded_down(mass: Any, dtype: np.dtype) -> Any:
    """Non-negative numbers in this precision, none larger than before: the marginals of a plan must not grow."""
    rounded: Any
    if is_torch_array(mass):
        integers: Any = sys.modules["torch"]
        rounded = mass.to(getattr(integers, dtype.name))
    else:
        integers = np
        with np.errstate(over="ignore"):
            rounded = mass.astype(dtype, copy=False)
    if rounded is not mass and dtype == np.float32:
        # Read as integers, the bits of non-negative numbers have the same order as the numbers.
        bits = rounded.view(integers.int32)
        bits -= (rounded > mass).view(integers.int8)
    return rounded


def is_sparse(array: Any) -> bool:
    """Whether `array` is a SciPy sparse matrix or a sparse tensor."""
    if is_torch_array(array):
        return str(array.layout) != "torch.strided"
    # SciPy's sparse module takes a while to import; whoever holds a sparse matrix has already imported it.
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and loaded.issparse(array)


def to_numpy(array: Any) -> Any:
    """A NumPy view of `array` if possible, otherwise a copy; sparse matrices become SciPy CSR."""
    if is_sparse(array):
        from scipy import sparse

        if is_torch_array(array):
            array = array.detach().to_sparse_coo().coalesce().cpu()
            array = sparse.coo_array((array.values().numpy(), tuple(array.indices().numpy())), shape=tuple(array.shape))
        return sparse.csr_array(array)
    if is_torch_array(array):
        array = array.detach().cpu().resolve_conj().resolve_neg()
        return array.float().numpy() if str(array.dtype) == "torch.bfloat16" else array.numpy()
    return np.asarray(array)
