"""The transport methods: their costs, their plans, and which gradients flow."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import adaptive_ot as aot
from adaptive_ot.deep.methods import METHODS, Alignment, Pair
from adaptive_ot.deep.methods.aot import AOT, REMEMBERED, Neighbours
from adaptive_ot.deep.methods.transport import TransportSettings, batch_plan, joint_cost, squared_distances

NAMES = ["aot", "deepjdot", "jumbot", "mpot"]
FORMS = ["scale-free", "published", "cross-entropy"]
FEATURES, CLASSES = 5, 3


def make_pair(n: int = 12, m: int = 9, *, seed: int = 0, sure: float = 1.0, dtype: torch.dtype = torch.float64) -> Pair:
    """Features around the means of classes; the logits of targets speak for their class, as surely as asked."""
    generator = torch.Generator().manual_seed(seed)
    source_labels, target_labels = torch.arange(n) % CLASSES, torch.arange(m) % CLASSES
    means = 2 * torch.randn(CLASSES, FEATURES, generator=generator, dtype=torch.float64)
    noise = [torch.randn(size, FEATURES, generator=generator, dtype=torch.float64) for size in (n, m)]
    scores = [torch.randn(size, CLASSES, generator=generator, dtype=torch.float64) for size in (n, m)]
    spoken = sure * 3 * torch.nn.functional.one_hot(target_labels, CLASSES)
    parts = (means[source_labels] + noise[0], scores[0], means[target_labels] + noise[1], scores[1] + spoken)
    x, logits, z, guesses = (part.to(dtype).requires_grad_() for part in parts)
    images = torch.zeros(n, 3, 2, 2)
    return Pair(x, logits, source_labels, z, guesses, images, images[:m], torch.arange(m), 0.5, lambda tensor: tensor)


def settings_of(cost: Any, **changes: Any) -> TransportSettings:
    return TransportSettings(cost=cost, marginals="at-most", solver="exact", **changes)


def make_method(name: str, **changes: Any) -> AOT:
    """A method with its defaults, but for those changed; presence, which replaces the plan, has tests of its own."""
    defaults = METHODS[name].defaults()
    method = METHODS[name](type(defaults)(**vars(defaults) | {"presence": "ignored"} | changes), FEATURES, CLASSES)
    assert isinstance(method, AOT)
    return method


def plan_of(method: AOT, pair: Pair, steps: int = 1) -> torch.Tensor:
    """The plan of the last of some steps with the same batches."""
    plan = [method.alignment(pair).plan for _ in range(steps)][-1]
    assert plan is not None
    return plan


def cost_by_loops(pair: Pair, form: str, *, alpha: float, beta: float, kappa: float) -> np.ndarray:
    x, z = pair.source_features.detach().numpy(), pair.target_features.detach().numpy()
    probabilities = pair.target_logits.detach().exp().numpy()
    probabilities /= probabilities.sum(1, keepdims=True)
    squares = cdist(x, z, "sqeuclidean")
    typical = np.sort(squares.ravel())[(squares.size - 1) // 2]  # the lower of two in the middle, as torch has it
    cost = np.empty_like(squares)
    for i, label in enumerate(pair.source_labels.tolist()):
        for j, p in enumerate(probabilities[:, label]):
            cost[i, j] = {
                "scale-free": beta * (kappa * squares[i, j] / typical - p),
                "published": alpha * squares[i, j] - beta * p,
                "cross-entropy": alpha * squares[i, j] - beta * np.log(p),
            }[form]
    return cost


# Costs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(12, 9), (3, 7), (1, 1)], ids=str)
def test_costs_by_loops(form: str, shape: tuple[int, int]) -> None:
    pair, numbers = make_pair(*shape), {"alpha": 0.03, "beta": 1.7, "kappa": 0.4}
    cost = joint_cost(pair, settings_of(form, **numbers))
    np.testing.assert_allclose(cost.detach().numpy(), cost_by_loops(pair, form, **numbers), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_costs(form: str) -> None:
    """Against finite differences, with the typical distance held: it is a constant to gradients."""
    pair = make_pair(5, 4)
    numbers = {"alpha": 0.03, "beta": 1.7, "kappa": 0.4}
    squares = squared_distances(pair.source_features, pair.target_features).detach()
    held = numbers["beta"] * numbers["kappa"] / squares.median().item()

    def cost(x: torch.Tensor, z: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        changed = pair._replace(source_features=x, target_features=z, target_logits=logits)
        if form == "scale-free":  # what it is where the typical distance stays
            return joint_cost(changed, settings_of("published", alpha=held, beta=numbers["beta"]))
        return joint_cost(changed, settings_of(form, **numbers))

    inputs = pair.source_features, pair.target_features, pair.target_logits
    assert torch.autograd.gradcheck(cost, inputs)
    weights = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad((weights * joint_cost(pair, settings_of(form, **numbers))).sum(), inputs)
    expected = torch.autograd.grad((weights * cost(*inputs)).sum(), inputs)
    torch.testing.assert_close(ours, expected)


def test_squared_distances_of_equal_points() -> None:
    """Zero, with a gradient of zero; cdist has none there."""
    x = torch.randn(6, FEATURES, generator=torch.Generator().manual_seed(0)).requires_grad_()
    z = x.detach().clone().requires_grad_()
    squares = squared_distances(x, z)
    assert squares.min() >= 0
    torch.testing.assert_close(squares.diagonal(), torch.zeros(6), rtol=0, atol=1e-5)
    squares.diagonal().sum().backward()
    for each in (x, z):
        assert each.grad is not None
        torch.testing.assert_close(each.grad, torch.zeros_like(each), rtol=0, atol=1e-5)


def test_squared_distances_in_single_precision() -> None:
    """Features far from the origin cancel; what is left is right to their last digits, and never negative."""
    generator = torch.Generator().manual_seed(0)
    x, z = (100 + torch.randn(size, FEATURES, generator=generator) for size in (7, 8))
    squares = squared_distances(x, z)
    assert squares.min() >= 0
    torch.testing.assert_close(squares.double(), torch.cdist(x.double(), z.double()) ** 2, rtol=0, atol=0.05)


@pytest.mark.parametrize("factor", [10.0, 1e-4, 1e6])
def test_the_scale_free_cost_is_free_of_scale(factor: float) -> None:
    pair = make_pair()
    scaled = pair._replace(
        source_features=factor * pair.source_features.detach(), target_features=factor * pair.target_features.detach()
    )
    one, other = make_method("aot").alignment(pair), make_method("aot").alignment(scaled)
    torch.testing.assert_close((other.plan, other.loss), (one.plan, one.loss), rtol=1e-5, atol=1e-7)


def assert_all_finite(alignment: Alignment, pair: Pair) -> None:
    alignment.loss.backward()
    assert alignment.loss.isfinite()
    for each in (pair.source_features, pair.target_features, pair.target_logits):
        assert each.grad is not None
        assert each.grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("far", [0.0, 1.0, 3.0, 1e4])
def test_nearly_all_points_equal(form: str, far: float) -> None:
    """A collapsed network: most pairs coincide, or all, and the median distance says nothing of the scale."""
    z = torch.ones(9, FEATURES)
    z[4, 2] += far
    x, z = torch.ones(12, FEATURES).requires_grad_(), z.requires_grad_()
    same = make_pair(dtype=torch.float32)._replace(source_features=x, target_features=z)
    alignment = make_method("aot", cost=form).alignment(same)
    assert_all_finite(alignment, same)
    assert form != "scale-free" or alignment.terms["unsolved"] == 0


# Plans


MODELS = {
    "aot": (aot.AtMost(), aot.Entropic(1.5 * 2.0 / CLASSES, "augmented", 1e-10)),
    "deepjdot": (aot.Equal(), aot.Exact()),
    "jumbot": (aot.SoftKL(0.5), aot.Entropic(0.01, tolerance=1e-10)),
    "mpot": (aot.FixedMass(0.5), aot.Exact()),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_plans_are_those_of_the_solvers(name: str, seed: int) -> None:
    """Cost and marginals as the papers have them, weights 1/n and 1/m in the first step."""
    pair, (marginals, solver) = make_pair(seed=seed)._replace(progress=0.0), MODELS[name]
    if name == "aot":
        cost = cost_by_loops(pair, "scale-free", alpha=0.0, beta=2.0, kappa=0.5)
    else:
        cost = cost_by_loops(pair, "cross-entropy", alpha=0.01, beta=0.5, kappa=0.0)
    expected = aot.solve(cost, marginals=marginals, solver=solver)
    alignment = make_method(name).alignment(pair)
    assert alignment.plan is not None
    np.testing.assert_allclose(alignment.plan.numpy(), expected.plan, atol=1e-5)
    assert alignment.terms["transport"].item() == pytest.approx((expected.plan * cost).sum(), abs=1e-5)
    assert alignment.terms["mass"].item() == pytest.approx(expected.mass, abs=1e-5)
    assert alignment.loss.item() == (0.0 if name == "aot" else alignment.terms["transport"].item())  # before the ramp
    rows, columns = alignment.plan.sum(1), alignment.plan.sum(0)
    if name != "jumbot":
        assert rows.max() <= 1 / 12 + 1e-6
        assert columns.max() <= 1 / 9 + 1e-6


def test_deepjdot_is_an_assignment() -> None:
    pair = make_pair(15, 15)
    cost = cost_by_loops(pair, "cross-entropy", alpha=0.01, beta=0.5, kappa=0.0)
    expected = np.zeros((15, 15))
    expected[linear_sum_assignment(cost)] = 1 / 15
    np.testing.assert_allclose(plan_of(make_method("deepjdot"), pair).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("form", ["scale-free", "published"])
def test_aot_moves_nothing_that_costs(form: str) -> None:
    """Exact plans use pairs of negative cost only, and the loss is never above zero."""
    moved = 0.0
    for seed in range(6):
        pair, method = make_pair(seed=seed, sure=seed / 3), make_method("aot", solver="exact", cost=form, neighbours=0)
        plan, cost = plan_of(method, pair), joint_cost(pair, method.settings).detach()
        assert plan[cost > 0].sum() == 0
        assert method.alignment(pair).loss.item() <= 0
        moved += plan.sum().item()
    assert moved > 1


def test_confident_pairs_that_agree_are_rewarded() -> None:
    """All of the mass moves within classes; predictions that are sure of the wrong class leave nothing to gain."""
    pair = make_pair(9, 9, sure=20.0)
    matching = pair._replace(target_features=pair.source_features.detach().clone())
    alignment = make_method("aot", solver="exact").alignment(matching)
    same = pair.source_labels[:, None] == pair.source_labels[None, :]
    assert alignment.loss.item() < -0.8
    assert plan_of(make_method("aot", solver="exact"), matching)[same].sum().item() == pytest.approx(1)
    away = matching._replace(target_features=1e3 + 50 * torch.eye(9, FEATURES, dtype=torch.float64))
    wrong = away._replace(source_labels=(pair.source_labels + 1) % CLASSES)
    for each in (away, wrong):
        assert make_method("aot", solver="exact").alignment(each).loss.item() > alignment.loss.item() + 0.2


@pytest.mark.parametrize("entropy", ["augmented", "product", "counting"])
@pytest.mark.parametrize(("cost", "expected"), [("scale-free", 0.34), ("published", 0.6), ("cross-entropy", 0.6)])
def test_entropy_is_relative_to_the_chance_of_a_class_in_one_cost(cost: Any, expected: float, entropy: Any) -> None:
    assert CLASSES == 3
    plain: Any = {"beta": 1.7, "epsilon": 0.6, "rooms": "equal", "neighbours": 0}
    pair, method = make_pair(), make_method("aot", cost=cost, entropy=entropy, **plain)
    costs = joint_cost(pair, method.settings).detach().numpy()
    by_hand = aot.solve(costs, solver=aot.Entropic(expected, entropy, tolerance=1e-9)).plan
    np.testing.assert_allclose(plan_of(method, pair).numpy(), by_hand, atol=1e-6)


# Gradients


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_held(name: str) -> None:
    """The gradient of the loss is that of <G, C> with G a constant, here by finite differences along a direction."""
    pair, method = make_pair(), make_method(name, ramp=False)
    alignment = method.alignment(pair)
    plan = alignment.plan
    assert plan is not None
    assert not plan.requires_grad
    assert all(not term.requires_grad for term in alignment.terms.values())
    inputs = pair.source_features, pair.target_features, pair.target_logits
    gradients = torch.autograd.grad(alignment.loss, inputs)
    squares = squared_distances(*inputs[:2]).detach()
    held = method.settings
    if held.cost == "scale-free":
        alpha = held.beta * held.kappa / squares.median().item()
        held = settings_of("published", alpha=alpha, beta=held.beta)
    generator = torch.Generator().manual_seed(1)
    ways = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in inputs]

    def loss(by: float) -> float:
        x, z, logits = (each.detach() + by * way for each, way in zip(inputs, ways, strict=True))
        moved = pair._replace(source_features=x, target_features=z, target_logits=logits)
        return (plan * joint_cost(moved, held)).sum().item()

    slope = sum((gradient * way).sum().item() for gradient, way in zip(gradients, ways, strict=True))
    assert slope == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_source_logits_get_no_gradient(name: str) -> None:
    """Source logits have the cross-entropy; what is transported are labels."""
    pair = make_pair()
    gradients = torch.autograd.grad(make_method(name).alignment(pair).loss, [*pair[:2], *pair[3:5]], allow_unused=True)
    assert gradients[1] is None
    assert all(gradient is not None and gradient.abs().sum() > 0 for gradient in (*gradients[:1], *gradients[2:]))


@pytest.mark.parametrize("name", NAMES)
def test_single_precision(name: str) -> None:
    double, single = (make_method(name).alignment(make_pair(dtype=dtype)) for dtype in (torch.float64, torch.float32))
    assert single.plan is not None
    assert single.plan.dtype == single.loss.dtype == torch.float32
    assert single.loss.item() == pytest.approx(double.loss.item(), rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(name: str, wrong: float) -> None:
    pair = make_pair()
    features = pair.target_features.detach().clone()
    features[3, 1] = wrong
    with pytest.raises(aot.InvalidInput, match=r"must stay finite.*learning rate"):
        make_method(name).alignment(pair._replace(target_features=features))


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.7, 1.0])
def test_a_ramp_weighs_the_loss_and_its_gradient_and_nothing_else(progress: float) -> None:
    pair = make_pair()._replace(progress=progress)
    weighed, plain = (make_method("aot", ramp=rises).alignment(pair) for rises in (True, False))
    factor = np.tanh(5 * progress)  # the same as 2 / (1 + exp(-10 progress)) - 1
    assert weighed.loss.item() == pytest.approx(factor * plain.loss.item(), rel=1e-12)
    ours, theirs = (torch.autograd.grad(each.loss, pair.target_logits)[0] for each in (weighed, plain))
    torch.testing.assert_close(ours, factor * theirs)
    torch.testing.assert_close(weighed.plan, plain.plan, rtol=0, atol=0)
    assert weighed.terms == plain.terms


# Class capacities: what the classes of a source batch may send


def by_class(numbers: torch.Tensor, pair: Pair) -> torch.Tensor:
    return torch.zeros(CLASSES, dtype=torch.float64).index_add(0, pair.source_labels, numbers.double())


def skewed_pair() -> Pair:
    """Targets of which nobody doubts that 7 are of class 0, and 2 of class 1."""
    pair = make_pair(sure=100.0)
    return pair._replace(target_logits=pair.target_logits[[0, 0, 0, 0, 0, 0, 1, 1, 3]])


def test_capacities_are_equal_at_first_and_grow_with_the_demand():
    pair, method = skewed_pair(), make_method("aot", solver="exact", kappa=0.0)  # everything that is guessed pays
    assert method.source_weights(pair._replace(progress=0.0)).tolist() == pytest.approx([1 / 12] * 12, rel=1e-12)
    plan_of(method, pair._replace(progress=1.0), 300)
    weights = method.source_weights(pair._replace(progress=1.0))
    assert by_class(weights, pair).tolist() == pytest.approx([7 / 9, 1 / 3, 1 / 3], abs=1e-6)  # none gets less
    half = method.source_weights(pair._replace(progress=0.5))
    assert half.tolist() == pytest.approx(((weights + 1 / 12) / 2).tolist(), abs=1e-6)


@pytest.mark.parametrize("marginals", ["equal", "fixed-mass", "soft-kl"])
def test_capacities_stay_equal_where_sums_are_not_bounds(marginals):
    pair, method = make_pair()._replace(progress=1.0), make_method("aot", marginals=marginals)
    method.alignment(pair)
    assert method.source_weights(pair).tolist() == pytest.approx([1 / 12] * 12, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_plans_that_miss_their_tolerance_are_counted(name):
    """All is well with the defaults; not with an entropy that float64 cannot tell from none."""
    pair = make_pair()
    assert make_method(name).alignment(pair).terms["unsolved"] == 0
    assert make_method(name, solver="entropic", epsilon=1e-30).alignment(pair).terms["unsolved"] == 1


def test_demand_forgets_with_every_step():
    pair, method = make_pair(), make_method("aot")
    held = pair.target_logits.detach().softmax(1).mean(0)
    expected = torch.full((CLASSES,), 1 / CLASSES, dtype=torch.float64)
    for _ in range(5):
        capacities = by_class(method.source_weights(pair), pair)
        plan = plan_of(method, pair)
        expected = 0.95 * expected + 0.05 * held * by_class(plan.sum(1), pair) / capacities
        torch.testing.assert_close(method.demand, expected, rtol=1e-12, atol=0)
    assert not method.demand.requires_grad
    assert "demand" in method.state_dict()  # so a resumed run has them


@pytest.mark.parametrize("marginals", ["at-most", "equal", "fixed-mass", "soft-kl"])
def test_beta_weighs_the_loss_of_the_scale_free_cost_and_changes_no_plan(marginals):
    pair = make_pair()
    once, twice = (make_method("aot", marginals=marginals, beta=beta).alignment(pair) for beta in (1.0, 2.0))
    torch.testing.assert_close(twice.plan, once.plan, rtol=1e-4, atol=1e-6)
    assert twice.loss.item() == pytest.approx(2 * once.loss.item(), rel=1e-4)


def test_no_class_sends_more_than_its_capacity():
    pair, method = skewed_pair()._replace(progress=0.9), make_method("aot", solver="exact", kappa=0.0)
    plan = plan_of(method, pair, 21)
    needed = (method.demand / 4)[pair.source_labels]
    assert needed.max() > 1.2 / 12  # some capacities have grown
    assert (plan.sum(1) <= 1 / 12 + 0.9 * (needed - 1 / 12).clamp_min(0) + 1e-6).all()
    assert (plan.sum(0) <= 1 / 9 + 1e-6).all()


def test_capacities_of_classes_that_are_not_in_the_batch():
    """They are nowhere, what is known of them is kept, and the others keep theirs."""
    pair, method = make_pair(n=2, m=4), make_method("aot")
    assert (method.source_weights(pair._replace(progress=1.0)) >= 0.5).all()
    plan_of(method, pair._replace(progress=1.0))
    assert method.demand[2] == pytest.approx(1 / 3, rel=1e-12)


# Neighbours


def drawn(size: int, seed: int, first: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of images, what they are taken for, and their identities."""
    generator = torch.Generator().manual_seed(seed)
    guesses = torch.rand(size, CLASSES, generator=generator).softmax(1)
    return torch.randn(size, FEATURES, generator=generator), guesses, torch.arange(first, first + size)


@pytest.mark.parametrize("count", [1, 4, 30])
def test_neighbours_are_the_nearest_by_angle_of_the_batch_and_of_those_before(count):
    """Beside all angles, one by one, from SciPy; 30 are more than there are."""
    memory, batches = Neighbours(count, FEATURES, CLASSES), [drawn(size, size, 10 * size) for size in (9, 7, 8)]
    for features, guesses, identities in batches[:2]:
        memory.remember(5 * features, guesses, identities)
    features, guesses, identities = batches[2]
    found = memory.mean_guesses(features, guesses, identities)
    everyone = torch.cat([batches[k][0] for k in (2, 1, 0)])
    angles = cdist(features.numpy(), everyone.numpy(), "cosine")
    angles[np.arange(8), np.arange(8)] = np.inf
    nearest = np.argsort(angles, axis=1)[:, : min(count, 23)]
    expected = torch.cat([batches[k][1] for k in (2, 1, 0)])[torch.from_numpy(nearest)].mean(1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_an_image_without_neighbours_keeps_its_own_prediction():
    (features, guesses, identities), memory = drawn(1, 0), Neighbours(3, FEATURES, CLASSES)
    torch.testing.assert_close(memory.mean_guesses(features, guesses, identities), guesses)
    memory.remember(*drawn(1, 1))  # another view of it is no neighbour
    torch.testing.assert_close(memory.mean_guesses(features, guesses, identities), guesses)


@pytest.mark.parametrize(("images", "batch", "count"), [(12, 7, 10), (12, 7, 3), (5, 9, 4), (900, 80, 20)])
def test_each_image_is_remembered_once_and_never_its_own_neighbour(images, batch, count):
    """Beside a dictionary of the latest views. Views of an image are close: they would be its nearest neighbours."""
    rng, memory, latest = np.random.default_rng(images), Neighbours(count, FEATURES, CLASSES), {}
    places = rng.normal(size=(images, FEATURES))
    for _ in range(30):
        identities = rng.permutation(np.arange(max(images, batch)) % images)[:batch]  # some twice, if there are few
        features = torch.from_numpy(places[identities] + 0.01 * rng.normal(size=(batch, FEATURES)))
        guesses = torch.from_numpy(rng.dirichlet(np.ones(CLASSES), batch))
        found = memory.mean_guesses(features, guesses, torch.from_numpy(identities))
        views = zip(features, guesses, strict=True)
        now = dict(reversed([*zip(identities.tolist(), views, strict=True)]))  # the first of two views
        known = latest | now
        for row, identity in enumerate(identities.tolist()):
            others = [value for key, value in known.items() if key != identity]
            angles = cdist(features[row : row + 1], torch.stack([each for each, _ in others]), "cosine")[0]
            nearest = [others[k][1] for k in np.argsort(angles)[:count]]
            torch.testing.assert_close(found[row], torch.stack(nearest).mean(0), rtol=1e-5, atol=1e-6)
        memory.remember(features, guesses, torch.from_numpy(identities))
        newest = list(dict.fromkeys([*identities.tolist(), *latest]))[:REMEMBERED]
        latest = {key: known[key] for key in newest}
    kept = memory.identities[memory.identities >= 0].tolist()
    assert kept == list(latest)
    assert len(kept) == min(images, REMEMBERED)


def test_old_images_are_forgotten():
    memory, (old, new) = Neighbours(1, FEATURES, CLASSES), (drawn(40, seed) for seed in (1, 2))
    memory.remember(*old)
    for turn in range(REMEMBERED // 40):
        memory.remember(*new[:2], torch.arange(40) + 40 * (turn + 1))
    assert memory.directions.shape == (REMEMBERED, FEATURES)
    kept = REMEMBERED - REMEMBERED // 40 * 40  # of the oldest batch, its first
    torch.testing.assert_close(memory.guesses[REMEMBERED - kept :], old[1][:kept])
    torch.testing.assert_close(memory.guesses[:40], new[1])


def test_neighbours_count_as_the_run_goes_on():
    """Not at first; in the end, the plan is that of their guesses alone; half of the way, of the mean."""
    pair, costs = make_pair(), {}
    own = pair.target_logits.detach().softmax(1)
    theirs = Neighbours(2, FEATURES, CLASSES).mean_guesses(pair.target_features.detach(), own, torch.arange(9))
    for progress, guesses in ((0.0, own), (0.5, (own + theirs) / 2), (1.0, theirs)):
        method = make_method("aot", neighbours=2, rooms="equal")
        found = plan_of(method, pair._replace(progress=progress))
        taken = joint_cost(pair._replace(target_logits=guesses.log()), method.settings).detach().numpy()
        by_hand = aot.solve(taken, solver=aot.Entropic(1.5 * 2.0 / CLASSES, tolerance=1e-9)).plan
        np.testing.assert_allclose(found.numpy(), by_hand, atol=1e-6)
        costs[progress] = taken
    assert np.abs(costs[1.0] - costs[0.0]).max() > 0.1


@pytest.mark.parametrize("cost", FORMS)
def test_the_loss_has_the_own_guess_whatever_neighbours_decide(cost):
    pair, method = make_pair(), make_method("aot", cost=cost, neighbours=3, ramp=False)
    alignment = method.alignment(pair)
    assert alignment.plan is not None
    by_hand = (alignment.plan * joint_cost(pair, method.settings)).sum()
    assert alignment.loss.item() == pytest.approx(by_hand.item(), rel=1e-12)
    inputs = pair.source_features, pair.target_features, pair.target_logits
    for found, expected in zip(*(torch.autograd.grad(each, inputs) for each in (alignment.loss, by_hand)), strict=True):
        torch.testing.assert_close(found, expected)


def test_neighbours_are_kept_with_the_method_and_a_look_adds_none():
    pair, method = make_pair()._replace(progress=1.0), make_method("aot", neighbours=3)
    method.alignment(pair)
    state = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    assert {"neighbours.directions", "neighbours.guesses", "neighbours.identities"} <= state.keys()
    assert method.match(pair).value == method.match(pair).value
    for name, tensor in method.state_dict().items():
        torch.testing.assert_close(tensor, state[name], rtol=0, atol=0)
    assert not any("neighbours" in name for name in make_method("aot", neighbours=0).state_dict())


def test_a_checkpoint_without_identities_has_no_neighbours():
    """Those of earlier versions: the method starts to remember anew."""
    pair, method, restored = make_pair(), make_method("aot", neighbours=3), make_method("aot", neighbours=3)
    method.alignment(pair)
    assert restored.neighbours is not None
    state = method.state_dict()
    restored.load_state_dict(state)
    assert (restored.neighbours.identities >= 0).sum() == 9
    del state["neighbours.identities"]
    restored.load_state_dict(state)
    assert (restored.neighbours.identities < 0).all()
    assert (restored.demand == method.demand).all()
    found = restored.neighbours.mean_guesses(*drawn(1, 0))
    torch.testing.assert_close(found, drawn(1, 0)[1])


# Presence of the classes


def judged(demand: list[float], progress: float = 0.5, **changes: Any) -> tuple[Pair, AOT]:
    """A pair and a method that has seen this demand, in units of an equal share."""
    pair, method = make_pair()._replace(progress=progress), make_method("aot", presence="estimated", **changes)
    method.demand = torch.tensor(demand, dtype=torch.float64) / CLASSES
    return pair, method


@pytest.mark.parametrize(
    ("demand", "progress", "expected"),
    [
        ([1.0, 1.0, 1.0], 0.5, 1.0),
        ([0.6, 0.6, 1.8], 0.5, 1.0),
        ([1.5, 1.5, 0.0], 0.5, (2 / 3 - 0.65) / 0.2),
        ([1.5, 1.1, 0.4], 0.5, (2.5 / 3 - 0.65) / 0.2),
        ([2.8, 0.1, 0.1], 0.5, 0.0),
        ([1.0, 1.0, 1.0], 0.25, 0.5),
        ([1.0, 1.0, 1.0], 0.2, 0.0),
        ([1.0, 1.0, 1.0], 0.0, 0.0),
    ],
)
def test_the_overlap_is_judged_by_demand_once_the_source_is_known(demand, progress, expected):
    pair, method = judged(demand, progress)
    assert method.overlap(pair.progress).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("demand", "progress"), [([2.8, 0.1, 0.1], 0.5), ([1.0, 1.0, 1.0], 0.1)])
def test_without_overlap_nothing_changes(demand, progress):
    pair, method = judged(demand, progress)
    plain = make_method("aot")
    plain.demand = method.demand.clone()
    found, expected = method.alignment(pair), plain.alignment(pair)
    assert found.plan is not None
    torch.testing.assert_close(found.plan, expected.plan, rtol=0, atol=1e-9)
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-9)


def test_at_full_overlap_every_match_is_rewarded():
    """The plan is that of a cost lower by the reward, by hand; the loss is the cost itself."""
    pair, method = judged([1.0, 1.0, 1.0], neighbours=0, ramp=False)
    weights = method.source_weights(pair)
    found = method.alignment(pair)
    costs = joint_cost(pair, method.settings)
    rewarded = (costs.detach() - method.settings.beta).numpy()
    epsilon = method.settings.epsilon * method.settings.beta / CLASSES
    by_hand = aot.solve(rewarded, weights.numpy(), solver=aot.Entropic(epsilon, tolerance=1e-9)).plan
    assert found.plan is not None
    np.testing.assert_allclose(found.plan.numpy(), by_hand, atol=1e-6)
    abstaining = make_method("aot", neighbours=0).alignment(pair).plan
    assert abstaining is not None
    assert found.plan.sum() > abstaining.sum() + 0.1
    assert found.loss.item() == pytest.approx((found.plan * costs).sum().item(), rel=1e-9)
    assert found.terms["overlap"] == pytest.approx(1.0)


def test_a_lost_class_is_matched_at_full_overlap_only():
    """No target is taken for the last class; at full overlap, its sources are matched nevertheless."""
    sent = []
    for demand in ([1.0, 1.0, 1.0], [2.8, 0.1, 0.1]):
        pair, method = judged(demand, neighbours=0, epsilon=0.3)
        pair = pair._replace(target_logits=torch.tensor([[2.0, 2.0, -30.0]], dtype=torch.float64).repeat(9, 1))
        plan = method.alignment(pair).plan
        assert plan is not None
        sent.append(plan[pair.source_labels == CLASSES - 1].sum().item())
    assert sent[0] > 0.9 / CLASSES
    assert sent[1] < 0.2 / CLASSES


def test_demand_comes_from_the_plan_that_may_abstain():
    pair, method = judged([1.0, 1.0, 1.0], rooms="equal")
    plain = make_method("aot")
    plain.demand = method.demand.clone()
    weights = method.source_weights(pair)
    plan = make_method("aot").alignment(pair).plan
    assert plan is not None
    plain.update(pair, plan, weights)
    method.alignment(pair)
    torch.testing.assert_close(method.demand, plain.demand, rtol=1e-6, atol=1e-9)


def test_a_plan_with_a_reward_that_misses_its_tolerance_is_told():
    pair, method = judged([1.0, 1.0, 1.0], neighbours=0)
    assert method.alignment(pair).terms["unsolved"] == 0
    rewarded: list[torch.Tensor] = []

    def second_fails(cost: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
        plan, unsolved = batch_plan(cost, *rest)
        rewarded.append(cost)
        return plan, torch.ones_like(unsolved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adaptive_ot.deep.methods.aot.batch_plan", second_fails)
        assert method.alignment(pair).terms["unsolved"] == 1
    assert len(rewarded) == 1
