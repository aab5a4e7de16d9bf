"""Torch in, torch out, and the same numbers as NumPy."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import adaptive_ot as aot
import problems
from check import check_solution

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

PRECISIONS = [torch.float32, torch.float64]


def numpy_type(dtype):
    return np.float32 if dtype is torch.float32 else np.float64


def random_inputs(dtype, n=20, m=25):
    generator = torch.Generator().manual_seed(0)
    cost = torch.randn(n, m, generator=generator, dtype=dtype)
    return cost, torch.rand(n, generator=generator, dtype=dtype), torch.rand(m, generator=generator, dtype=dtype)


def random_clouds(dtype, n=30, m=40):
    generator = torch.Generator().manual_seed(1)
    x, z = (torch.randn(size, 3, generator=generator, dtype=dtype) for size in (n, m))
    p, q = (torch.rand(size, 4, generator=generator, dtype=dtype).softmax(dim=1) for size in (n, m))
    return x, z, p, q


def assert_same_as_numpy(solution, reference):
    """Field by field; the torch answer holds the very same numbers."""
    for name in ("value", "mass", "gap", "violation", "iterations", "status"):
        assert getattr(solution, name) == getattr(reference, name)
    for name in (
        "source_marginal", "target_marginal", "source_potential", "target_potential", "active_source", "active_target",
    ):  # fmt: skip
        np.testing.assert_array_equal(getattr(solution, name).numpy(), getattr(reference, name))
    np.testing.assert_array_equal(solution.sparse_plan.toarray(), reference.sparse_plan.toarray())


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("shape", [(20, 25), (320, 400)])
def test_dense(dtype, shape):
    inputs = random_inputs(dtype, *shape)
    arrays = [tensor.numpy() for tensor in inputs]
    solution = aot.solve(*inputs)
    check_solution(solution, *arrays, dtype=numpy_type(dtype), library="torch")
    assert solution.plan.dtype == solution.source_potential.dtype == dtype
    assert solution.plan.device == inputs[0].device
    assert solution.active_source.dtype == torch.bool
    assert_same_as_numpy(solution, aot.solve(*arrays))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("kind", ["distance", "joint"])
def test_points(dtype, kind):
    clouds, mu, nu = (
        random_clouds(dtype),
        torch.full((30,), 1 / 30, dtype=dtype),
        torch.full((40,), 1 / 40, dtype=dtype),
    )
    precise = [tensor.double().numpy() for tensor in clouds]
    if kind == "joint":
        mu, nu = torch.rand(30, dtype=dtype), torch.rand(40, dtype=dtype)
        given, again = (aot.JointCost(*side) for side in (clouds, [tensor.numpy() for tensor in clouds]))
        cost, scale = problems.joint_matrix(*precise), 1.0
    else:
        given, again = (aot.DistanceCost(x, z, reach=1.5) for x, z in (clouds[:2], [c.numpy() for c in clouds[:2]]))
        cost, scale = problems.distance_matrix(precise[0], precise[1], 1.5), 1.5**2
    solution, options = aot.solve(given, mu, nu), {"library": "torch", "sparse_plan": True, "cost_scale": scale}
    check_solution(solution, cost, mu.numpy(), nu.numpy(), dtype=numpy_type(dtype), **options)
    assert solution.plan.layout == torch.sparse_coo
    assert solution.plan.is_coalesced()
    assert_same_as_numpy(solution, aot.solve(again, mu.numpy(), nu.numpy()))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_sparse_tensor(dtype, layout):
    """Only stored pairs may carry mass, as with SciPy."""
    dense = torch.tensor([[-1.0, 0.0, -3.0], [0.0, -2.0, 1.0]], dtype=dtype)
    solution = aot.solve(dense.to_sparse(layout=layout))
    forbidden = np.where(dense.numpy() == 0, np.inf, dense.numpy())
    weights = np.full(2, 1 / 2), np.full(3, 1 / 3)
    check_solution(solution, forbidden, *weights, dtype=numpy_type(dtype), library="torch", sparse_plan=True)


@pytest.mark.parametrize("kind", ["dense", "points"])
def test_inputs_that_require_gradients(kind):
    """They are refused, unless gradients are off anyway: `solve` would drop theirs."""
    cost, mu, nu = random_inputs(torch.float64)
    x, z, _, _ = random_clouds(torch.float64, 20, 25)
    tensors = [cost, mu, nu, x, z]

    def solved():
        return aot.solve(cost if kind == "dense" else aot.DistanceCost(x, z, 1.5), mu, nu)

    plain = solved()
    for tensor in tensors:
        tensor.requires_grad_()
    with torch.no_grad():
        solution = solved()
    assert solution.value == plain.value
    for tensor in (solution.plan, solution.source_potential, solution.source_marginal, solution.barycentric_map(z, x)):
        assert not tensor.requires_grad
    assert all(tensor.requires_grad and tensor.grad is None for tensor in tensors)
    for tensor in (cost, mu, nu) if kind == "dense" else (mu, nu, x, z):
        for other in tensors:
            other.requires_grad_(other is tensor)
        with pytest.raises(aot.InvalidInput, match="must not require a gradient"):
            solved()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8])
def test_precision_of_the_answer(dtype):
    """Half precision is answered in single, integers in double."""
    cost = torch.tensor([[1, 0], [0, 5]], dtype=dtype) - (3 if dtype is not torch.uint8 else 0)
    solution = aot.solve(cost, torch.tensor([1, 2]), torch.tensor([2, 1]))
    assert solution.plan.dtype == (torch.float32 if dtype.is_floating_point else torch.float64)
    assert solution.value == (0.0 if dtype is torch.uint8 else -9.0)


def test_views_are_read_right_and_left_alone():
    base = torch.randn(8, 10, dtype=torch.float64)
    for view in (base.T, base[::2, 1::3], base[:, :1].expand(8, 4), base.flip(0)):
        before = view.clone()
        solution = aot.solve(view)
        assert torch.equal(view, before)
        assert solution.value == aot.solve(before.numpy()).value
        assert solution.plan.shape == view.shape


def test_conjugate_and_negative_views():
    base = torch.randn(4, 5, dtype=torch.complex128)
    negated = torch.conj(base).imag  # a view with the negative bit set
    assert aot.solve(negated).value == aot.solve(negated.clone().resolve_neg().numpy()).value


def test_problem_takes_tensors():
    cost, mu, nu = random_inputs(torch.float64)
    solution = aot.solve(cost, mu, nu)
    problem = aot.Problem.build(cost, mu, nu)
    assert problem.objective(solution.plan) == pytest.approx(solution.value, rel=1e-14)
    assert problem.violation(solution.plan) <= 1e-15
    assert problem.gap(solution.plan, solution.source_potential) <= 1e-14


def test_labels_and_points_may_be_tensors():
    solution = aot.solve(torch.tensor([[-1.0, 2.0], [3.0, -2.0]]))
    table = solution.by_label(torch.tensor([5, 7]), torch.tensor([1, 1]))
    assert table.source_labels.tolist() == [5, 7]
    assert table.mass.tolist() == [[0.5], [0.5]]
    mapped = solution.barycentric_map(torch.tensor([[1.0], [2.0]]))
    assert mapped.dtype == torch.float32
    assert mapped.tolist() == [[1.0], [2.0]]


def test_empty_and_massless_tensors():
    for shape in ((0, 3), (3, 0), (0, 0), (2, 2)):
        solution = aot.solve(torch.ones(shape, dtype=torch.float32))
        assert solution.plan.shape == shape
        assert solution.source_marginal.dtype == torch.float32
        assert solution.mass == 0.0


def test_inference_mode():
    with torch.inference_mode():
        solution = aot.solve(torch.tensor([[-1.0, 2.0], [3.0, -2.0]]))
    assert solution.value == -1.5


def test_without_triton_it_says_so_once(monkeypatch):
    """Small problems on a GPU fall back to torch where Triton is missing, with a single warning."""
    from adaptive_ot.entropic import batch as entropic_batch

    monkeypatch.setitem(sys.modules, "triton", None)
    entropic_batch.has_triton.cache_clear()
    with pytest.warns(RuntimeWarning, match="Triton is not installed"):
        assert not entropic_batch.has_triton()
    assert not entropic_batch.has_triton()  # a second warning would be an error
    entropic_batch.has_triton.cache_clear()
