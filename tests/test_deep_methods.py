"""The adversarial and contrastive methods: each one's own mathematics, and what all have in common."""

import copy
import math
from typing import Any

import cvxpy
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from adaptive_ot.deep.methods import METHODS, Method, Pair
from adaptive_ot.deep.methods.adversarial import Discriminator, tell_apart
from adaptive_ot.deep.methods.alda import ALDA, confusion_matrices
from adaptive_ot.deep.methods.caco import CaCo
from adaptive_ot.deep.methods.cdan import CDAN
from adaptive_ot.deep.methods.dann import DANN
from adaptive_ot.deep.methods.method import ramp
from adaptive_ot.deep.methods.rot import ROT, weights_of_highest_mean

NAMES = ["dann", "cdan", "alda", "rot", "caco"]
SIZE = 6  # of images, which are SIZE x SIZE
FEATURES = 5


class SmallNetwork(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.bottleneck, self.classifier = nn.Linear(8, FEATURES), nn.Linear(FEATURES, classes)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.bottleneck(self.backbone(images))
        return features, self.classifier(features)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def network(seeded: None) -> SmallNetwork:
    return SmallNetwork(3)


def make_pair(network: nn.Module, *, classes: int = 3, n: int = 9, m: int = 7, progress: float = 0.5) -> Pair:
    source, target = (torch.rand(size, 3, SIZE, SIZE, dtype=next(network.parameters()).dtype) for size in (n, m))
    (source_features, source_logits), (target_features, target_logits) = network(source), network(target)
    labels = torch.arange(n) % classes
    return Pair(
        source_features,
        source_logits,
        labels,
        target_features,
        target_logits,
        source,
        target,
        torch.arange(m),
        progress,
        lambda tensor: tensor,
    )


def make_method(name: str, network: nn.Module, classes: int = 3, **settings: Any) -> Method:
    of_name = METHODS[name]
    if name == "caco":
        settings = {"keys": 2, "threshold": 0.0} | settings
    method = of_name(of_name.Settings(**settings), FEATURES, classes)
    method.begin(network)
    return method


# What all have in common


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("classes", [2, 3])
def test_one_step_changes_the_parameters_and_keeps_the_pair(name: str, classes: int) -> None:
    network = SmallNetwork(classes)
    method = make_method(name, network, classes)
    method.alignment(make_pair(network, classes=classes))  # fills the dictionary of CaCo
    pair = make_pair(network, classes=classes)
    before = [part.clone() for part in pair[:7]]
    alignment = method.alignment(pair)
    assert all(torch.equal(one, other) for one, other in zip(before, pair[:7], strict=True))
    assert alignment.loss.shape == ()
    assert torch.isfinite(alignment.loss)
    assert all(term.shape == () and not term.requires_grad for term in alignment.terms.values())
    alignment.loss.backward()
    learning = [each for each in method.parameters() if each.requires_grad]
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in learning[-2:])
    bottleneck = network.bottleneck.weight.grad
    assert bottleneck is not None
    assert torch.isfinite(bottleneck).all()
    assert bottleneck.abs().sum() > 0


@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in NAMES), ("cdan", {"entropy_conditioning": False}), ("rot", {"loss": "wasserstein"})],
)
def test_extreme_input_gives_finite_losses_and_gradients(
    network: SmallNetwork, name: str, settings: dict[str, Any]
) -> None:
    method = make_method(name, network, **settings)
    method.alignment(make_pair(network))  # fills the dictionary of CaCo
    pair = make_pair(network, progress=1.0)
    parts = ["source_features", "source_logits", "target_features", "target_logits"]
    far = {part: (1e4 * torch.randn_like(getattr(pair, part)).sign()).requires_grad_() for part in parts}
    alignment = method.alignment(pair._replace(**far))
    assert torch.isfinite(alignment.loss)
    alignment.loss.backward()
    for each in [*far.values(), *method.parameters()]:
        assert each.grad is None or torch.isfinite(each.grad).all()


# Gradient reversal, DANN


def test_discriminator_is_that_of_the_official_code() -> None:
    layers = [layer for layer in Discriminator(512) if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(512, 1024), (1024, 1024), (1024, 1)]
    assert [layer.p for layer in Discriminator(512) if isinstance(layer, nn.Dropout)] == [0.5, 0.5]
    assert all(not layer.bias.any() for layer in layers)
    assert layers[1].weight.std().item() == pytest.approx(math.sqrt(1 / 1024), rel=0.01)


def test_domains_are_told_apart_by_cross_entropy_and_count_the_same() -> None:
    source, target = torch.tensor([[0.3], [-1.2], [2.0]]), torch.tensor([[0.5], [-0.4], [-2.5], [-0.1]])
    loss, accuracy = tell_apart(nn.Identity(), source, target)
    of_source = functional.binary_cross_entropy_with_logits(source, torch.ones(3, 1))
    of_target = functional.binary_cross_entropy_with_logits(target, torch.zeros(4, 1))
    assert loss.item() == pytest.approx(0.5 * (of_source + of_target).item())
    assert accuracy.item() == pytest.approx(0.5 * (2 / 3 + 3 / 4))


def test_dann_trains_features_against_its_discriminator() -> None:
    """By finite differences: the discriminator descends its loss, the features climb it, scaled by the ramp."""
    network = SmallNetwork(3).double()
    method = DANN(DANN.Settings(trade_off=2.0), FEATURES, 3).double().eval()
    pair = make_pair(network, progress=0.2)
    features = pair.source_features.detach().requires_grad_()

    def loss(of_source: torch.Tensor) -> torch.Tensor:
        return method.alignment(pair._replace(source_features=of_source)).loss

    (gradient,) = torch.autograd.grad(loss(features), features)
    step = 1e-6
    for i, j in [(0, 0), (3, 2), (8, 4)]:
        nudge = torch.zeros_like(features)
        nudge[i, j] = step
        slope = (loss(features + nudge) - loss(features - nudge)).item() / (2 * step)
        assert gradient[i, j].item() == pytest.approx(-ramp(0.2) * slope, rel=1e-5, abs=1e-10)
    bias = method.discriminator[-1].bias
    assert isinstance(bias, torch.Tensor)
    (of_bias,) = torch.autograd.grad(loss(features), bias)
    with torch.no_grad():
        bias += step
        above = loss(features).item()
        bias -= 2 * step
        below = loss(features).item()
    assert of_bias.item() == pytest.approx((above - below) / (2 * step), rel=1e-5)


# CDAN


def test_cdan_sees_the_outer_product_of_features_and_probabilities() -> None:
    method = CDAN(CDAN.Settings(), FEATURES, 3)
    features, logits = torch.randn(4, FEATURES), torch.randn(4, 3)
    product = torch.einsum("nf,nk->nfk", features, torch.softmax(logits, 1)).reshape(4, -1)
    assert torch.allclose(method.conditioned(features, logits), product)
    assert method.discriminator[0].in_features == FEATURES * 3
    assert "feature_directions" not in method.state_dict()


def test_cdan_takes_random_projections_of_large_products() -> None:
    assert not CDAN(CDAN.Settings(), 512, 8).projects  # 4096, as many as there may be
    method = CDAN(CDAN.Settings(projections=16), 512, 9)
    features, logits = torch.randn(4, 512), torch.randn(4, 9)
    conditioned = method.conditioned(features, logits)
    assert conditioned.shape == (4, 16)
    assert method.discriminator[0].in_features == 16
    by_hand = torch.empty(4, 16)
    for i in range(4):
        outer = torch.outer(features[i], torch.softmax(logits[i], 0))
        for j in range(16):
            directions = torch.outer(method.feature_directions[:, j], method.class_directions[:, j])
            by_hand[i, j] = (outer * directions).sum() / 4.0
    assert torch.allclose(conditioned, by_hand, atol=1e-4)
    assert {"feature_directions", "class_directions"} <= method.state_dict().keys()


@pytest.mark.parametrize("entropy_conditioning", [True, False])
def test_cdan_weighs_by_entropy_if_asked(network: SmallNetwork, entropy_conditioning: bool) -> None:
    method = CDAN(CDAN.Settings(entropy_conditioning=entropy_conditioning), FEATURES, 3).eval()
    pair = make_pair(network)
    total = 0.0
    for features, logits, label in (
        (pair.source_features, pair.source_logits, 1.0),
        (pair.target_features, pair.target_logits, 0.0),
    ):
        weights, losses = [], []
        for x, scores in zip(features, logits, strict=True):
            p = torch.softmax(scores, 0)
            entropy = -sum(each * math.log(each) for each in p.tolist())
            weights.append(1 + math.exp(-entropy) if entropy_conditioning else 1.0)
            probability = torch.sigmoid(method.discriminator(torch.outer(x, p).reshape(1, -1))).item()
            losses.append(-math.log(probability if label else 1 - probability))
        total += sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights) / 2
    assert method.alignment(pair).loss.item() == pytest.approx(total, rel=1e-5)


def test_cdan_turns_the_gradient_of_its_weights_around_too(network: SmallNetwork) -> None:
    method = CDAN(CDAN.Settings(), FEATURES, 3).eval()
    pair = make_pair(network, progress=0.2)
    (turned,) = torch.autograd.grad(method.alignment(pair).loss, pair.target_logits, retain_graph=True)
    p = torch.softmax(pair.target_logits, 1)
    weights = 1 + torch.exp((p * torch.log(p)).sum(1))
    probability = torch.sigmoid(
        method.discriminator(method.conditioned(pair.target_features, pair.target_logits))
    ).squeeze(1)
    loss = -(weights / weights.sum().detach() * torch.log(1 - probability)).sum() / 2
    (plain,) = torch.autograd.grad(loss, pair.target_logits)
    assert torch.allclose(turned, -ramp(0.2) * plain, atol=1e-7)


# ALDA


def test_confusion_matrices_are_those_of_the_paper() -> None:
    scores = 3 * torch.randn(4, 5, dtype=torch.float64)
    matrices = confusion_matrices(scores)
    for n in range(4):
        for predicted in range(5):
            right = 1 / (1 + math.exp(-scores[n, predicted].item()))
            for true in range(5):
                chance = right if true == predicted else (1 - right) / 4
                assert matrices[n, true, predicted].item() == pytest.approx(chance)
    assert torch.allclose(matrices.sum(1), torch.ones_like(scores))
    assert (matrices >= 0).all()


@pytest.mark.parametrize("threshold", [0.9, 1.0])  # some are sure; none is
def test_alda_losses_against_plain_loops(network: SmallNetwork, threshold: float) -> None:
    method = ALDA(ALDA.Settings(threshold=threshold), FEATURES, 3).eval()
    pair = make_pair(network, progress=0.3)
    pair = pair._replace(target_logits=4 * pair.target_logits)
    k, adversarial, corrected, counted, sure = 3, 0.0, 0.0, 0, 0

    def corrected_label(features: torch.Tensor, guess: int) -> list[float]:
        right = torch.sigmoid(method.discriminator(features[None])[0, guess]).item()
        return [right if each == guess else (1 - right) / (k - 1) for each in range(k)]

    def binary_cross_entropy(probabilities: list[float], labels: list[float]) -> float:
        return -sum(w * math.log(g) + (1 - w) * math.log(1 - g) for g, w in zip(probabilities, labels, strict=True))

    for x, logits, label in zip(pair.source_features, pair.source_logits, pair.source_labels, strict=True):
        corrected_labels = corrected_label(x, int(logits.argmax()))
        adversarial += binary_cross_entropy(corrected_labels, [float(each == label) for each in range(k)])
        counted += 1
    for x, logits in zip(pair.target_features, pair.target_logits, strict=True):
        p = torch.softmax(logits, 0)
        guess = int(p.argmax())
        if p.max() > threshold:
            corrected_labels = corrected_label(x, guess)
            adversarial += binary_cross_entropy(
                corrected_labels, [0.0 if each == guess else 1 / (k - 1) for each in range(k)]
            )
            corrected -= sum(p[each].item() * corrected_labels[each] for each in range(k)) / k
            counted, sure = counted + 1, sure + 1
    scores = method.discriminator(pair.source_features)
    regularisation = -torch.log_softmax(scores, 1)[torch.arange(9), pair.source_labels].mean().item()

    assert 0 < sure < 7 if threshold < 1 else sure == 0
    alignment = method.alignment(pair)
    adversarial, corrected = adversarial / counted, corrected / max(sure, 1)
    assert alignment.terms["adversarial"].item() == pytest.approx(adversarial, rel=1e-5)
    assert alignment.terms["corrected"].item() == pytest.approx(corrected, rel=1e-5)
    assert alignment.terms["regularisation"].item() == pytest.approx(regularisation, rel=1e-5)
    assert alignment.loss.item() == pytest.approx(adversarial + ramp(0.3) * corrected + regularisation, rel=1e-5)


def test_alda_keeps_its_regularisation_from_the_features(network: SmallNetwork) -> None:
    """At the start the ramp is 0: nothing reaches the network, everything the discriminator."""
    method = make_method("alda", network)
    method.alignment(make_pair(network, progress=0.0)).loss.backward()
    assert all(each.grad is None or not each.grad.any() for each in network.parameters())
    assert all(each.grad is not None and each.grad.any() for each in method.parameters())


@pytest.mark.parametrize("sign", [-1, 1])
def test_alda_leaves_features_alone_where_its_discriminator_is_sure(network: SmallNetwork, sign: int) -> None:
    """An adversary that gains without end drives the features to infinity, as once happened on PACS."""
    method = ALDA(ALDA.Settings(threshold=0.0), FEATURES, 3)
    pair = make_pair(network, progress=1.0)
    pair = pair._replace(target_logits=pair.target_logits.detach())
    *_, last = method.discriminator
    assert isinstance(last, nn.Linear)
    torch.nn.init.constant_(last.bias, sign * 60.0)
    torch.nn.init.normal_(last.weight, std=1e-3)
    alignment = method.alignment(pair)
    assert 0 < alignment.terms["adversarial"] < 100
    for gradient in torch.autograd.grad(alignment.loss, [pair.source_features, pair.target_features]):
        assert gradient.abs().max() < 1e-9


# ROT


@pytest.mark.parametrize("seed", range(12))
def test_weights_of_rot_solve_the_inner_problem(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, rho = int(generator.integers(2, 40)), float(generator.uniform(0.02, 1.5))
    values = generator.standard_normal(n) * 10.0 ** generator.integers(-2, 3)
    if seed % 3 == 0:
        values = (3 * values / np.abs(values).max()).round()  # ties
    weights = weights_of_highest_mean(torch.as_tensor(values), rho).numpy()

    asked = cvxpy.Variable(n, nonneg=True)
    rules = [cvxpy.sum(asked) == 1, cvxpy.sum_squares(n * asked - 1) / (2 * n) <= rho]
    best = cvxpy.Problem(cvxpy.Maximize(values / np.abs(values).max() @ asked), rules).solve(solver=cvxpy.CLARABEL)
    assert weights @ values / np.abs(values).max() == pytest.approx(best, abs=1e-6)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    divergence = 0.5 * np.mean((n * weights - 1) ** 2)
    assert divergence <= rho * (1 + 1e-9)
    if np.unique(values).size == n and 2 * rho < n - 1:
        assert divergence == pytest.approx(rho)


def test_weights_of_rot_at_the_ends() -> None:
    values = torch.tensor([3.0, 1.0, 3.0, -2.0])
    assert torch.equal(weights_of_highest_mean(values, 0.0), torch.full((4,), 0.25))
    assert torch.equal(weights_of_highest_mean(values, 10.0), torch.tensor([0.5, 0.0, 0.5, 0.0]))
    assert torch.equal(weights_of_highest_mean(torch.full((5,), 1e4), 0.2), torch.full((5,), 0.2))
    assert torch.equal(weights_of_highest_mean(torch.tensor([7.0]), 0.2), torch.ones(1))


@pytest.mark.parametrize("loss", ["logistic", "wasserstein"])
def test_rot_estimates_robust_transport_with_a_lipschitz_critic(loss: Any) -> None:
    method = ROT(ROT.Settings(loss=loss, rho=0.1), FEATURES, 3).eval()
    x, z = torch.randn(500, FEATURES), torch.randn(500, FEATURES)
    with torch.no_grad():
        slopes = (method.critic(x) - method.critic(z)).squeeze(1).abs() / (x - z).norm(dim=1)
    assert slopes.max() <= 1.001
    pair = make_pair(SmallNetwork(3))
    judged = [method.critic(features).squeeze(1) for features in (pair.source_features, pair.target_features)]
    if loss == "logistic":
        first, second = torch.log(torch.sigmoid(judged[0])), -torch.log(1 - torch.sigmoid(judged[1]))
    else:
        first, second = judged
    distance = first.mean() - weights_of_highest_mean(second, 0.1) @ second
    alignment = method.alignment(pair)
    assert alignment.loss.item() == pytest.approx(-distance.item(), rel=1e-5)
    (plain,) = torch.autograd.grad(-distance, pair.target_features, retain_graph=True)
    (turned,) = torch.autograd.grad(alignment.loss, pair.target_features)
    assert torch.allclose(turned, -0.2 * plain, atol=1e-7)


# CaCo


def test_dictionary_replaces_the_oldest_keys_of_a_class() -> None:
    method = CaCo(CaCo.Settings(keys=3), FEATURES, 4)
    queues: list[list[tuple[torch.Tensor, float]]] = [[] for _ in range(4)]
    for n in (1, 6, 30, 5):  # 30: more of a class than there is room for
        features, labels = torch.randn(n, FEATURES), torch.randint(4, (n,))
        reliability, accepted = torch.rand(n), torch.rand(n) < 0.7
        method.enter(features, labels, reliability, accepted)
        for i in range(n):
            if accepted[i]:
                queue = queues[int(labels[i])]
                queue.append((features[i] / features[i].norm(), reliability[i].item()))
                del queue[:-3]
        for label, queue in enumerate(queues):
            entered = int(method.entered[label])
            for age, (key, weight) in enumerate(reversed(queue)):
                slot = (entered - 1 - age) % 3
                assert torch.allclose(method.keys[label, slot], key)
                assert method.reliability[label, slot].item() == pytest.approx(weight)
            assert not method.keys[label, len(queue) :].any()


def test_contrast_against_a_plain_loop() -> None:
    method = CaCo(CaCo.Settings(keys=3), FEATURES, 4)
    labels = torch.arange(4).repeat(3)
    method.enter(torch.randn(12, FEATURES), labels, 0.9 + 0.2 * torch.rand(12), torch.ones(12, dtype=torch.bool))
    queries, classes = torch.randn(5, FEATURES), torch.tensor([0, 3, 3, 1, 2])
    total = 0.0
    for query, label in zip(queries, classes, strict=True):
        pull = {
            (k, m): method.reliability[k, m].item()
            * math.exp(float(query @ method.keys[k, m]) / float(query.norm()) / 0.07)
            for k in range(4)
            for m in range(3)
        }
        everything = sum(pull.values())
        total -= sum(math.log(pull[int(label), m] / everything) for m in range(3)) / 3
    assert method.contrast(queries, classes).item() == pytest.approx(total / 5, rel=1e-5)


def test_contrast_waits_for_the_dictionary_and_keys_carry_no_gradient(network: SmallNetwork) -> None:
    method = make_method("caco", network, keys=4, threshold=1.1)
    first = method.alignment(make_pair(network))  # three keys of every class, all of the source
    assert first.loss.item() == 0.0
    assert first.terms["dictionary_full"].item() == 0.0
    second = method.alignment(make_pair(network))
    assert second.loss.item() > 0.0
    assert second.terms["dictionary_full"].item() == 1.0
    second.loss.backward()
    assert isinstance(method, CaCo)
    assert not method.keys.requires_grad
    assert all(not each.requires_grad and each.grad is None for each in method.parameters())
    assert all(not each.grad_fn for each in (method.keys, method.reliability))


def test_keys_are_what_the_encoder_makes_of_both_domains(network: SmallNetwork) -> None:
    method = make_method("caco", network, keys=20, threshold=0.5)
    assert isinstance(method, CaCo)
    with torch.no_grad():
        for each in network.parameters():
            each.mul_(1.5)  # the encoder stays what it was
    pair = make_pair(network)
    encoder = copy.deepcopy(method.encoder)
    method.alignment(pair)
    expected: list[list[torch.Tensor]] = [[], [], []]
    for image_features, label in zip(encoder(pair.source_images)[0], pair.source_labels, strict=True):
        expected[int(label)].append(image_features)
    for image_features, logits in zip(*encoder(pair.target_images), strict=True):
        p = torch.softmax(logits, 0)
        if p.max() >= 0.5:
            expected[int(p.argmax())].append(image_features)
    assert sum(map(len, expected)) > 9
    for label, features in enumerate(expected):
        assert method.entered[label] == len(features)
        for slot, each in enumerate(features):
            assert torch.allclose(method.keys[label, slot], each / each.norm(), atol=1e-6)


def test_momentum_encoder_is_the_weighted_sum_of_all_iterates(network: SmallNetwork) -> None:
    method = make_method("caco", network, momentum=0.3)
    assert isinstance(method, CaCo)
    iterates = [network.classifier.weight.detach().clone()]
    for _ in range(5):
        with torch.no_grad():
            for each in network.parameters():
                each.add_(torch.randn_like(each))
            for each in network.buffers():
                each.add_(1)
        method.after_step(network)
        iterates.append(network.classifier.weight.detach().clone())
    momenta = [min(0.3, (1 + t) / (10 + t)) for t in range(1, 6)]
    closed = iterates[0] * math.prod(momenta)
    for t, momentum in enumerate(momenta):
        closed = closed + (1 - momentum) * math.prod(momenta[t + 1 :]) * iterates[t + 1]
    encoded = dict(method.encoder.named_parameters())["classifier.weight"]
    assert torch.allclose(encoded, closed, atol=1e-6)
    for ours, theirs in zip(method.encoder.buffers(), network.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_reliability_falls_with_entropy_between_its_bounds() -> None:
    method = CaCo(CaCo.Settings(), FEATURES, 4)
    entropy = torch.tensor([0.0, 0.1, 0.2, 0.25, 1.0]) * math.log(4)
    assert method.reliability_of(entropy).tolist() == pytest.approx([1.1, 1.0, 0.9, 0.9, 0.9])
