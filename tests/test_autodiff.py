"""Derivatives against finite differences, and what autograd users expect of a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaptive_ot as aot
from budget import mostly_slow

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from adaptive_ot.autodiff import transport_plan, transport_value  # noqa: E402

ENTROPIES = ["augmented", "product", "counting"]


def random_inputs(seed: int):
    """Cost and weights with a gradient; totals differ by up to a factor of three, so rows or columns are slack."""
    generator = torch.Generator().manual_seed(seed)
    n, m = torch.randint(1, 6, (2,), generator=generator).tolist()
    scale = [1.0, 0.5, 2.0][seed % 3]
    cost = scale * torch.randn(n, m, generator=generator, dtype=torch.float64)
    mu = 0.1 + torch.rand(n, generator=generator, dtype=torch.float64)
    nu = [1.0, 0.3, 3.0][seed % 3] * (0.1 + torch.rand(m, generator=generator, dtype=torch.float64))
    return tuple(side.requires_grad_() for side in (cost, mu, nu))


def solver_for(entropy, seed: int) -> aot.Entropic:
    return aot.Entropic([0.5, 0.2, 0.1][seed % 3], entropy, tolerance=1e-13)


def of_inputs(function, model: str, entropy, inputs, seed: int):
    """A function of free inputs with a model that suits the weights: balanced weights must have the same total."""
    _, mu, nu = (side.detach() for side in inputs)
    share, tau = (0.2, 0.5, 0.95)[seed // 3 % 3], (1.0, 3.0, 20.0)[seed // 3 % 3]
    marginals = {
        "at most": aot.AtMost(),
        "equal": aot.Equal(),
        "fixed": aot.FixedMass(share * min(float(mu.sum()), float(nu.sum()))),
        "soft": aot.SoftKL(tau),
    }[model]

    def value(cost, mu, nu):
        nu = nu * (mu.sum() / nu.sum()) if model == "equal" else nu
        return function(cost, mu, nu, marginals=marginals, solver=solver_for(entropy, seed))

    return value


def differentiable(function, inputs, times=1, atol=1e-6, rtol=1e-5) -> bool:
    """Whether derivatives agree with finite differences; `times` is 2 for those of the derivatives."""
    check = torch.autograd.gradcheck if times == 1 else torch.autograd.gradgradcheck
    return check(function, inputs, eps=1e-6, atol=atol if times == 1 else 1e-5, rtol=rtol if times == 1 else 1e-4)


MODELS = ["at most", "equal", "fixed", "soft"]
FUNCTIONS = [transport_value, transport_plan]


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("thorough", mostly_slow([False, True], 1))
def test_first_derivatives(model, entropy, thorough):
    """Of value and plan, by cost and both weights, with slack and with full rows and columns among them."""
    slack = full = 0
    problems = (200 if thorough else 24) if model == "at most" else (50 if thorough else 9)
    for seed in range(problems):
        inputs = random_inputs(seed)
        if model == "at most":
            solution = aot.solve(*(side.detach() for side in inputs), solver=solver_for(entropy, seed))
            potentials = torch.cat([solution.source_potential, solution.target_potential])
            slack, full = slack + int((potentials == 0).sum()), full + int((potentials < 0).sum())
        for function in FUNCTIONS:
            of = of_inputs(function, model, entropy, inputs, seed)
            assert differentiable(of, inputs, atol=1e-6 if model == "at most" else 2e-6)
    if model == "at most":
        assert full > problems / 2
        assert entropy == "augmented" or slack > problems / 2


@pytest.mark.parametrize("entropy", ENTROPIES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("function", "seeds"), [(transport_value, 5), (transport_plan, 2)])
def test_second_derivatives(function, seeds, model, entropy):
    for seed in range(seeds):
        inputs = random_inputs(seed)
        assert differentiable(of_inputs(function, model, entropy, inputs, seed), inputs, times=2)


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_value_three_times(entropy):
    """The gradient of the value, once by cost and weights, judged as any function that can be differentiated twice."""
    inputs, solver = random_inputs(1), solver_for(entropy, 0)

    def gradients(*given):
        return torch.autograd.grad(transport_value(*given, solver=solver), given, create_graph=True)

    assert differentiable(gradients, inputs, times=2)


def test_a_penalty_on_the_gradient_of_a_loss_that_is_linear_in_the_plan_counts():
    cost, _, _ = random_inputs(2)
    by = torch.randn(cost.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def penalty(cost):
        loss = (by * transport_plan(cost, solver=aot.Entropic(0.5, tolerance=1e-13))).sum()
        (gradient,) = torch.autograd.grad(loss, cost, create_graph=True)
        return (gradient**2).sum()

    assert penalty(cost).requires_grad
    assert differentiable(penalty, cost)


def test_a_plan_of_which_everything_moves_twice():
    """Where the weights of both sides are met, a constant may move from one side to the other."""
    cost = torch.randn(4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64) - 5
    for entropy in ("product", "counting"):
        solver = aot.Entropic(0.5, entropy, tolerance=1e-13)
        assert differentiable(lambda c, s=solver: transport_plan(c, solver=s), cost.requires_grad_(), times=2)


def test_a_value_without_second_derivatives_says_so():
    """The value of robust transport bends, but nobody computes by how much; that of a linear programme does not."""
    cost, mu = torch.randn(3, 3, dtype=torch.float64, requires_grad=True), torch.full((3,), 1 / 3, requires_grad=True)
    value = transport_value(cost, mu, marginals=aot.ChiSquareBall(0.2))
    for gradient in torch.autograd.grad(value, (cost, mu), create_graph=True):
        with pytest.raises(aot.InvalidInput, match="twice"):
            torch.autograd.grad(gradient.sum() + (cost**2).sum(), cost, retain_graph=True)
    (gradient,) = torch.autograd.grad(transport_value(cost, mu), cost, create_graph=True)
    (second,) = torch.autograd.grad((gradient * cost).sum(), cost)
    torch.testing.assert_close(second, gradient)


NEWCOMERS = [aot.AtMost(), aot.Equal(), aot.FixedMass(0.5), aot.FixedMass(1.0), aot.SoftKL(0.01), aot.SoftKL(1.0)]


@pytest.mark.parametrize("entropy", ["augmented", "product"])
@pytest.mark.parametrize("marginals", NEWCOMERS, ids=str)
def test_weights_of_zero(marginals, entropy):
    """One-sided differences, of the value, of a loss of the plan, and of the derivatives of both by the cost.

    Where both totals must stay the same, or bound the mass, another point takes the weight back.
    """
    generator = torch.Generator().manual_seed(5)
    cost = (torch.rand(4, 3, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()
    by = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    weights = [torch.tensor(side, dtype=torch.float64) for side in ([0.3, 0.0, 0.5, 0.2], [0.4, 0.0, 0.6])]
    settings = {"marginals": marginals, "solver": aot.Entropic(0.1, entropy, tolerance=1e-13)}

    def numbers(mu, nu):
        value = transport_value(cost, mu, nu, **settings)
        loss = (by * transport_plan(cost, mu, nu, **settings)).sum()
        slopes = [torch.autograd.grad(each, cost, create_graph=True)[0] for each in (value, loss)]
        return torch.stack([value, loss, *((by**2 * slope).sum() for slope in slopes)])

    for k, balance in ((0, True), (1, True), (0, False), (1, False)):
        if not balance and marginals in (aot.Equal(), aot.FixedMass(1.0)):
            continue
        given = [side.clone().requires_grad_() for side in weights]
        here, step = numbers(*given), torch.zeros_like(weights[k])
        step[1], step[0] = 1e-6, -1e-6 if balance else 0.0
        near, far = (numbers(*(w + t * step if j == k else w for j, w in enumerate(weights))) for t in (1, 2))
        differences = (4 * near - far - 3 * here).detach() / 2
        for at, number in enumerate(here):
            (gradient,) = torch.autograd.grad(number, given[k], retain_graph=True)
            slope, expected = float((gradient * step).sum()) / 1e-6, float(differences[at]) / 1e-6
            assert slope == pytest.approx(expected, rel=1e-4, abs=1e-5), at


def test_a_source_without_weight_or_allowed_pairs_costs_its_divergence():
    cost = torch.tensor([[0.3, 0.6], [torch.inf, torch.inf]], dtype=torch.float64)
    mu = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    transport_value(cost, mu, marginals=aot.SoftKL(2.0), solver=aot.Entropic(0.1)).backward()
    assert float(mu.grad[1]) == pytest.approx(2.0 + 0.1)


@pytest.mark.parametrize("entropy", ENTROPIES)
def test_batched_is_looped(entropy):
    generator = torch.Generator().manual_seed(0)
    cost = torch.randn(4, 6, 5, generator=generator, dtype=torch.float64)
    mu, nu = (0.1 + torch.rand(4, size, generator=generator, dtype=torch.float64) for size in (6, 5))
    by = torch.randn(4, 6, 5, generator=generator, dtype=torch.float64)
    solver = aot.Entropic(0.2, entropy, tolerance=1e-12)

    def gradients(cost, mu, nu, by):
        inputs = tuple(side.detach().requires_grad_() for side in (cost, mu, nu))
        loss = (transport_plan(*inputs, solver=solver) * by).sum() + transport_value(*inputs, solver=solver).sum()
        return torch.autograd.grad(loss, inputs)

    together = gradients(cost, mu, nu, by)
    for b in range(4):
        for one, many in zip(gradients(cost[b], mu[b], nu[b], by[b]), together, strict=True):
            torch.testing.assert_close(one, many[b], rtol=0, atol=1e-10)


def test_shared_weights_collect_the_gradients_of_a_batch():
    cost = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mu = torch.full((4,), 0.25, dtype=torch.float64, requires_grad=True)
    solver = aot.Entropic(0.3)
    transport_value(cost, mu, solver=solver).sum().backward()
    expected = sum(aot.solve(one, mu.detach(), solver=solver).source_potential for one in cost)
    torch.testing.assert_close(mu.grad, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("marginals", [aot.AtMost(), aot.Equal(), aot.FixedMass(0.4), aot.ChiSquareBall(0.3)], ids=str)
def test_exact_values(marginals):
    """Central differences, for weights along directions that keep their totals; random problems miss kinks."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        n, m = rng.integers(2, 7, 2)
        weights = [side / side.sum() for side in (0.1 + rng.random(n), 0.1 + rng.random(m))]
        if marginals == aot.AtMost():
            weights = [rng.random(n), rng.random(m)]
        inputs = [torch.from_numpy(side).requires_grad_() for side in (rng.normal(size=(n, m)), *weights)]
        gradients = torch.autograd.grad(transport_value(*inputs, marginals=marginals), inputs)
        for k, gradient in enumerate(gradients):
            step = (1e-7 if marginals == aot.AtMost() else 1e-5) * torch.from_numpy(rng.normal(size=gradient.shape))
            if k > 0 and marginals != aot.AtMost():
                step -= step.mean()
            up, down = (
                transport_value(
                    *(side.detach() + (t * step if j == k else 0) for j, side in enumerate(inputs)), marginals=marginals
                )
                for t in (1, -1)
            )
            within = 1e-12 if marginals == aot.AtMost() else 2e-9
            assert float(up - down) / 2 == pytest.approx(float((gradient * step).sum()), abs=within)


def test_a_batch_in_which_only_some_leave_nothing_is_refused():
    cost = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 2.0]], dtype=torch.float64)
    settings = {"marginals": aot.FixedMass(3.0), "solver": aot.Entropic(0.5)}
    with pytest.raises(aot.InvalidInput, match="in every problem"):
        transport_plan(cost, weights, weights, **settings)
    one = transport_plan(cost[0], weights[0], weights[0], **settings)
    torch.testing.assert_close(one.sum(0), weights[0], rtol=0, atol=1e-8)


def test_torch_func():
    """Backward transforms are those of autograd; the others say what to do."""
    cost, mu, nu = (side.detach() for side in random_inputs(1))
    solver = aot.Entropic(0.5, tolerance=1e-13)
    value = lambda *given: transport_value(*given, solver=solver)  # noqa: E731
    plan = lambda *given: transport_plan(*given, solver=solver)  # noqa: E731
    given = tuple(side.clone().requires_grad_() for side in (cost, mu, nu))
    expected = torch.autograd.grad(value(*given), given)
    torch.testing.assert_close(torch.func.grad(value, (0, 1, 2))(cost, mu, nu), expected)
    for function in (value, plan):
        jacobian = torch.autograd.functional.jacobian(function, (cost, mu, nu))
        torch.testing.assert_close(torch.func.jacrev(function, (0, 1, 2))(cost, mu, nu), jacobian)
    hessian = torch.autograd.functional.hessian(value, (cost, mu, nu))
    torch.testing.assert_close(torch.func.jacrev(torch.func.jacrev(value, 0), 1)(cost, mu, nu), hessian[0][1])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch about itself
@pytest.mark.parametrize("function", [transport_value, transport_plan])
def test_transforms_that_are_refused(function):
    costs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    of = lambda cost: function(cost, solver=aot.Entropic(0.5)).sum()  # noqa: E731
    for transform in (torch.func.vmap(of), torch.func.vmap(torch.func.grad(of))):
        with pytest.raises(aot.InvalidInput, match=r"vmap.*Give a batch"):
            transform(costs)
    with pytest.raises(aot.InvalidInput, match=r"tangent.*torch\.func\.grad"):
        torch.func.jvp(of, (costs[0],), (costs[1],))
    for transform in (torch.func.jacfwd(of), torch.func.hessian(of)):
        with pytest.raises(aot.InvalidInput, match=r"torch\.func\.jacrev"):
            transform(costs[0])


def test_a_robust_value_has_no_second_derivative():
    cost = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    of = lambda cost: transport_value(cost, marginals=aot.ChiSquareBall(0.2))  # noqa: E731
    with pytest.raises(aot.InvalidInput, match="entropic form"):
        torch.func.jacrev(torch.func.jacrev(of))(cost)
    pair: Any = aot.AtMost(), aot.Equal()
    with pytest.raises(aot.InvalidInput, match="same on both sides"):
        transport_value(cost, marginals=pair)


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("function", [transport_value, transport_plan])
def test_compiled_around(function):
    """Nobody compiles a solver, but what is around it."""
    cost = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    of = lambda cost: 2 * function(cost * 3, solver=aot.Entropic(0.5)).square().sum()  # noqa: E731
    compiled = torch.compile(of, backend="aot_eager")(cost)
    torch.testing.assert_close(compiled, of(cost))
    torch.testing.assert_close(torch.autograd.grad(compiled, cost), torch.autograd.grad(of(cost), cost))


def test_float32_stays_float32():
    cost = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    value, plan = transport_value(cost, solver=aot.Entropic(0.1)), transport_plan(cost, solver=aot.Entropic(0.1))
    assert value.dtype == plan.dtype == torch.float32
    (gradient,) = torch.autograd.grad(value, cost)
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(gradient, plan.detach())


def test_an_exact_plan_is_refused_only_where_it_would_be_differentiated():
    cost = torch.randn(3, 3, requires_grad=True)
    with pytest.raises(aot.InvalidInput, match="constant almost everywhere"):
        transport_plan(cost, solver=aot.Exact())
    plan = transport_plan(cost.detach(), solver=aot.Exact())
    with torch.no_grad():
        torch.testing.assert_close(transport_plan(cost, solver=aot.Exact()), plan)


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("cost", np.zeros((2, 2))),
        ("cost", [[1.0]]),
        ("cost", torch.zeros(2, 2, dtype=torch.int64)),
        ("cost", torch.zeros(2)),
        ("cost", torch.zeros(2, 2).to_sparse()),
        ("cost", torch.full((2, 2), float("nan"))),
        ("source_weights", [0.5, 0.5]),
        ("source_weights", torch.ones(3)),
        ("source_weights", torch.tensor([1.0, -1.0])),
        ("target_weights", torch.ones(2, 2)),
        ("solver", "exact"),
    ],
)
def test_bad_input(argument, given):
    inputs = {"cost": torch.zeros(2, 2), "solver": aot.Entropic(0.1)} | {argument: given}
    with pytest.raises(aot.InvalidInput) as caught:
        transport_value(**inputs)
    assert caught.value.argument == argument
