"""What newcomers type that does not fit, and the whole message that tells them what to type instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial import distance

import adaptive_ot as aot
from adaptive_ot.adapt import JointTransportClassifier
from adaptive_ot.workbench.cli import main
from commands import refused

try:
    import torch
except ImportError:
    torch: Any = None

C = np.array([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])
A, B = np.full(2, 1 / 2), np.full(3, 1 / 3)
X, Z = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(4, 3)
BATCH = np.stack([C, -C, 2 * C])
FRAMES = [np.ones((2, 3)), np.ones((1, 4))]

FIRST = "The cost comes first: write aot.solve(C, a, b), with the weights after it."
MODELS = "aot.AtMost(), aot.Equal(), aot.FixedMass(mass), aot.SoftKL(tau), aot.ChiSquareBall(rho)"
OWN = "source_weights, target_weights, marginals, solver, progress, raise_if_not_converged, group"
PIVOTS = "solver=aot.Exact(max_pivots=1000), or aot.Entropic(epsilon, max_iterations=1000)"
PAD = "Pad with +inf and give the added points weight 0, or take one-to-one pairs from aot.match_frames."
DOMAINS = "Write sample_domain=np.where(is_target, -1, 0)."
FOURTH = "solve takes the cost and two weights by position; got {} as the fourth. Write aot.solve(C, a, b, {})."
ANSWER = "Write aot.certify(C, plan=solution.plan, source_potential=solution.source_potential)."
NAMES, TRIPLES = np.array(["ann", "bob"]), [(0, 0, 1.5), (0, 1, 2.5), (1, 1, 2.0)]
NUMBER = (
    "Number the names first: names, numbers = np.unique(names, return_inverse=True); "
    "or run adaptive-ot match, which reads names."
)
TOTALS = "target_weights must have the same total as the source weights with Equal"


def solve(*arguments: Any, **keywords: Any) -> Callable[[], Any]:
    return lambda: aot.solve(*arguments, **keywords)


def unknown(name: str, value: Any, call: str) -> tuple[Callable[[], Any], str]:
    return solve(C, **{name: value}), f"{name} is not a keyword of solve; got {value!r}. Write {call}."


def marginals(given: Any, call: str) -> tuple[Callable[[], Any], str]:
    message = f"marginals must be an instance of Marginals; got {given!r}. Write marginals={call}."
    return solve(C, marginals=given), message


def solver(given: Any, call: str) -> tuple[Callable[[], Any], str]:
    message = f"solver must be an instance of Exact or Entropic; got {given!r}. Write solver={call}."
    return solve(C, solver=given), message


def adapt(domain: Any, **parameters: Any) -> Any:
    return JointTransportClassifier(**parameters).fit(np.arange(8.0).reshape(4, 2), [0, 1, 0, 1], sample_domain=domain)


def torch_plan(*extra: Any) -> Any:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    from adaptive_ot import autodiff

    return autodiff.transport_plan(torch.tensor(C), *extra)


MESSAGES: dict[str, tuple[Callable[[], Any], str]] = {
    "POT's order": (
        solve(A, B, C),
        f"cost must have two dimensions (sources x targets); got 1 with shape (2,). {FIRST}",
    ),
    "POT's order without weights": (
        solve([], [], C),
        f"cost must have two dimensions (sources x targets); got 1 with shape (0,). {FIRST}",
    ),
    "POT's order for a batch": (
        solve(np.ones((3, 2)), np.ones((3, 3)), BATCH),
        f"source_weights must have shape (3,) to match the cost; got (3, 3). {FIRST}",
    ),
    "a path in POT's order": (
        lambda: aot.mass_path(A, B, C),
        "cost must have two dimensions (sources x targets); got 1 with shape (2,). "
        "The cost comes first: write aot.mass_path(C, a, b), with the weights after it.",
    ),
    "point clouds": (
        solve(X, Z),
        "source_weights must have shape (2,) to match the cost; got (4, 3). "
        "For two point clouds, write aot.solve(aot.DistanceCost(x, z)).",
    ),
    "point clouds as lists, and a reach": (
        solve(X.tolist(), Z.tolist(), 1.5),
        "source_weights must have shape (2,) to match the cost; got (4, 3). "
        "For two point clouds, write aot.solve(aot.DistanceCost(x, z)).",
    ),
    "a .npy file": (
        solve("cost.npy"),
        "cost must be an array, not a file; got 'cost.npy'. Write aot.solve(np.load('cost.npy')).",
    ),
    "a .csv file": (
        solve(Path("cost.csv")),
        "cost must be an array, not a file; got 'cost.csv'. Write aot.solve(np.loadtxt('cost.csv', delimiter=',')).",
    ),
    "a .npz file": (
        solve("cost.npz"),
        "cost must be an array, not a file; got 'cost.npz'. Write aot.solve(np.load('cost.npz')['cost']).",
    ),
    "ragged frames": (
        solve(FRAMES),
        f"cost must have one size for all problems of a batch; got 2 x 3 and 1 x 4. {PAD}",
    ),
    "ragged lists": (
        solve([[[1.0, 2.0]], [[3.0], [4.0]]]),
        f"cost must have one size for all problems of a batch; got 1 x 2 and 2 x 1. {PAD}",
    ),
    "ragged costs to match": (
        lambda: aot.match(cost=FRAMES, limit=2.0),
        f"cost must have one size for all problems of a batch; got 2 x 3 and 1 x 4. {PAD}",
    ),
    "ragged scores to match": (
        lambda: aot.match(FRAMES),
        "score must have one size for all problems of a batch; got 2 x 3 and 1 x 4. "
        "Write aot.match_frames(frames), which takes any sizes.",
    ),
    "no entropy": (
        lambda: aot.Entropic(0),
        "epsilon must be a number from 1e-100 to 1e+100; got 0. "
        "Choose a positive number; without entropy, write solver=aot.Exact().",
    ),
    "equal": marginals("equal", "aot.Equal()"),
    "Kantorovich": marginals("Kantorovich", "aot.Equal()"),
    "a model without parentheses": marginals(aot.Equal, "aot.Equal()"),
    "at-most": marginals("at-most", "aot.AtMost()"),
    "partial": marginals("partial", "aot.FixedMass(mass)"),
    "unbalanced": marginals("unbalanced", "aot.SoftKL(tau)"),
    "robust": marginals("robust", "aot.ChiSquareBall(rho)"),
    "a mass for a model": (
        solve(C, marginals=0.5),
        f"marginals must be an instance of Marginals; got 0.5. Give one of {MODELS}, or a pair of them.",
    ),
    "entropic": solver("entropic", "aot.Entropic(0.1)"),
    "sinkhorn": solver("sinkhorn", "aot.Entropic(0.1)"),
    "a number for a solver": solver(0.05, "aot.Entropic(0.05)"),
    "a solver without parentheses": solver(aot.Exact, "aot.Exact()"),
    "emd": solver("emd", "aot.Exact()"),
    "a solver nobody knows": (
        solve(C, solver="magic"),
        "solver must be an instance of Exact or Entropic; got 'magic'. Give aot.Exact() or aot.Entropic(epsilon).",
    ),
    "epsilon": unknown("epsilon", 0.1, "solver=aot.Entropic(0.1)"),
    "reg": unknown("reg", 0.1, "solver=aot.Entropic(0.1)"),
    "m": unknown("m", 0.5, "marginals=aot.FixedMass(0.5)"),
    "mass": unknown("mass", 0.5, "marginals=aot.FixedMass(0.5)"),
    "tau": unknown("tau", 2.0, "marginals=aot.SoftKL(2.0) and solver=aot.Entropic(epsilon)"),
    "reg_m": unknown("reg_m", 2.0, "marginals=aot.SoftKL(2.0) and solver=aot.Entropic(epsilon)"),
    "rho": unknown("rho", 0.2, "marginals=aot.ChiSquareBall(0.2)"),
    "reach": unknown("reach", 1.5, "aot.solve(aot.DistanceCost(x, z, reach=1.5))"),
    "numItermax": unknown("numItermax", 1000, PIVOTS),
    "max_iter": unknown("max_iter", 1000, PIVOTS),
    "limit": unknown("limit", 2.5, "aot.match(cost=cost, limit=2.5)"),
    "a": unknown("a", 1, "source_weights=a"),
    "several": (
        solve(C, reg=0.1, reg_m=1.0),
        "reg is not a keyword of solve; got 0.1. Write solver=aot.Entropic(0.1).",
    ),
    "a misspelt keyword": (
        solve(C, marginal=aot.Equal()),
        f"marginal is not a keyword of solve; got Equal(). Did you mean 'marginals'? Its keywords are {OWN}.",
    ),
    "a keyword nobody knows": (
        solve(C, log=True),
        f"log is not a keyword of solve; got True. Its keywords are {OWN}.",
    ),
    "beyond a batch": (
        lambda: aot.solve(BATCH)[50],
        "index must be from -3 to 2 in a batch of 3; got 50. Problems count from 0.",
    ),
    "before a batch": (
        lambda: aot.solve(BATCH).problems[-4],
        "index must be from -3 to 2 in a batch of 3; got -4. Problems count from 0.",
    ),
    "beyond matchings": (
        lambda: aot.match(BATCH)[3],
        "index must be from -3 to 2 in a batch of 3; got 3. Problems count from 0.",
    ),
    "an empty batch": (
        lambda: aot.match_frames([])[0],
        "index finds nothing in an empty batch; got 0. Problems count from 0.",
    ),
    "a mask of a batch": (
        lambda: aot.solve(BATCH)[[True, False, True]],  # type: ignore[call-overload]
        "index must be a whole number or a slice; got [True, False, True]. "
        "Index one problem after the other; plan, value and so on hold the answers to all.",
    ),
    "a plan by position": (
        lambda: aot.certify(C, C),
        "source_weights must have shape (2,) to match the cost; got (2, 3). Write aot.certify(C, plan=plan).",
    ),
    "a solution by position": (
        lambda: aot.certify(C, aot.solve(C)),
        f"source_weights must be weights; got Solution. {ANSWER}",
    ),
    "a solution for a plan": (
        lambda: aot.certify(C, plan=aot.solve(C)),
        f"plan must be an array; got Solution. {ANSWER}",
    ),
    "POT's order to certify": (
        lambda: aot.certify(A, B, C),
        "cost must have two dimensions (sources x targets); got 1 with shape (2,). "
        "The cost comes first: write aot.certify(C, a, b, plan=plan), with the weights after it.",
    ),
    "point clouds to certify": (
        lambda: aot.certify(X, Z),
        "source_weights must have shape (2,) to match the cost; got (4, 3). "
        "For two point clouds, write aot.certify(aot.DistanceCost(x, z), plan=plan).",
    ),
    "a path of point clouds": (
        lambda: aot.mass_path(X, Z),
        "source_weights must have shape (2,) to match the cost; got (4, 3). "
        "For two point clouds, write aot.mass_path(aot.DistanceCost(x, z)).",
    ),
    "a solver by position": (
        solve(C, aot.Entropic(0.1)),
        "source_weights must be weights; got aot.Entropic(epsilon=0.1). Write solver=aot.Entropic(epsilon=0.1).",
    ),
    "a model by position": (
        solve(C, None, aot.Equal()),
        "target_weights must be weights; got aot.Equal(). Write marginals=aot.Equal().",
    ),
    "a number as the fourth": (solve(C, A, B, 0.1), FOURTH.format("0.1", "solver=aot.Entropic(0.1)")),
    "POT's sinkhorn": (solve(A, B, C, 0.1), FOURTH.format("0.1", "solver=aot.Entropic(0.1)")),
    "a model as the fourth": (
        solve(C, A, B, aot.SoftKL(2.0)),
        FOURTH.format("aot.SoftKL(tau=2.0)", "marginals=aot.SoftKL(tau=2.0)"),
    ),
    "a plan as the fourth": (
        lambda: aot.certify(C, A, B, np.zeros((2, 3))),
        "certify takes the cost and two weights by position; got an array of shape (2, 3) as the fourth. "
        "Write aot.certify(C, a, b, plan=plan).",
    ),
    "a solver in the place of weights of a plan": (
        lambda: torch_plan(aot.Entropic(0.1)),
        "source_weights must be weights; got aot.Entropic(epsilon=0.1). Write solver=aot.Entropic(epsilon=0.1).",
    ),
    "a solver as the fourth of a plan": (
        lambda: torch_plan(None, None, aot.Entropic(0.1)),
        "autodiff.transport_plan takes the cost and two weights by position; "
        "got aot.Entropic(epsilon=0.1) as the fourth. "
        "Write aot.autodiff.transport_plan(C, a, b, solver=aot.Entropic(epsilon=0.1)).",
    ),
    "a plan without a solver": (
        lambda: torch_plan(),
        "solver must be given; got None. Write solver=aot.Entropic(epsilon).",
    ),
    "a group by another name": (
        solve(C, groups=3),
        "groups is not a keyword of solve; got 3. Did you mean 'group'? Its keywords are source_weights, "
        "target_weights, marginals, solver, progress, raise_if_not_converged, group.",
    ),
    "anything as the fourth": (solve(C, A, B, True), FOURTH.format("True", "marginals=..., solver=...")),
    "a solver for a classifier": (
        lambda: adapt([0, 0, -1, -1], solver="entropic"),
        "solver must be an instance of Exact or Entropic; got 'entropic'. Write solver=aot.Entropic(0.1).",
    ),
    "a model for a classifier": (
        lambda: adapt([0, 0, -1, -1], marginals="equal"),
        "marginals must be an instance of Marginals; got 'equal'. Write marginals=aot.Equal().",
    ),
    "two models for a classifier": (
        lambda: adapt([0, 0, -1, -1], marginals=(aot.AtMost(), aot.Equal())),
        f"marginals must be an instance of Marginals; got (AtMost(), Equal()). Give one of {MODELS}.",
    ),
    "an automatic reach": (
        lambda: aot.DistanceCost(X, Z, reach="auto"),  # type: ignore[arg-type]
        "reach must be a number from 0 to 1e+100; got 'auto'. Omit reach to have it estimated.",
    ),
    "a file of points": (
        lambda: aot.DistanceCost("x.npy", Z),
        "x must be an array, not a file; got 'x.npy'. Write x=np.load('x.npy').",
    ),
    "another file of points": (
        lambda: aot.DistanceCost(X, Path("z.npz")),
        "z must be an array, not a file; got 'z.npz'. Write z=np.load('z.npz')['z'].",
    ),
    "a .txt file": (
        solve("cost.txt"),
        "cost must be an array, not a file; got 'cost.txt'. Write aot.solve(np.loadtxt('cost.txt')).",
    ),
    "no cost": (
        solve(None),
        "cost must be given; got None. "
        "Write aot.solve(C) for a matrix, or aot.solve(aot.DistanceCost(x, z)) for points.",
    ),
    "one weight": (
        solve([[1.0, 2.0]], A),
        "source_weights must have shape (1,) to match the cost; got (2,). Give 1 weight.",
    ),
    "names for numbers": (
        lambda: aot.match(pairs=(NAMES, NAMES, [1.0, 2.0])),
        f"pairs[0] must hold real numbers; got dtype <U3. {NUMBER}",
    ),
    "objects for numbers": (
        lambda: aot.match(pairs=([0, 1], NAMES.astype(object), [1.0, 2.0])),
        f"pairs[1] must hold real numbers; got dtype object. {NUMBER}",
    ),
    "whole floats for numbers": (
        lambda: aot.match(pairs=([0.0, 1.0], [0, 1], [1.0, 2.0])),
        "pairs[0] must hold integers; got dtype float64. Convert it with .astype(int).",
    ),
    "halves for numbers": (
        lambda: aot.match(pairs=([0.5, 1.0], [0, 1], [1.0, 2.0])),
        "pairs[0] must hold integers; got dtype float64. Number sources and targets from 0.",
    ),
    "triples": (
        lambda: aot.match(pairs=TRIPLES[:2]),
        "pairs must be (sources, targets, scores); got a list of 2 triples. Write pairs=tuple(zip(*pairs)).",
    ),
    "three triples": (
        lambda: aot.match(pairs=TRIPLES),
        "pairs must be (sources, targets, scores); got a list of 3 triples. Write pairs=tuple(zip(*pairs)).",
    ),
    "two clouds to match": (
        lambda: aot.match(X, Z),
        "match takes one matrix of scores by position; got two arguments or more. Write aot.match(score), or "
        "aot.match(cost=cost, limit=3.0); for two point clouds, cost=scipy.spatial.distance.cdist(x, z).",
    ),
    "a limit by position": (
        lambda: aot.match(C, 2.5),
        "match takes one matrix of scores by position; got two arguments or more. "
        "Write aot.match(score), or aot.match(cost=cost, limit=2.5).",
    ),
    "no limit": (
        lambda: aot.match(cost=C),
        "limit is needed with a cost; got None. Give the price of leaving both alone, as in limit=3.0.",
    ),
    "decoys as a mask of 0 and 1": (
        lambda: aot.match(C).at_error_rate(0.5, decoys=np.array([0, 1, 1])),
        "decoys must not repeat an index; got array([0, 1, 1]). "
        "Give a boolean mask, as decoys=mask.astype(bool) makes one, or distinct indices.",
    ),
    "an error rate in percent": (
        lambda: aot.match(C).at_error_rate(5, decoys=[2]),
        "rate must be a number from 2.22507e-308 to 1; got 5. Give a share: 5 % is 0.05.",
    ),
    "domains 0 and 1": (
        lambda: adapt([0, 0, 1, 1]),
        f"sample_domain must mark some samples as target (< 0); got only 0 and 1. {DOMAINS}",
    ),
    "a mask of targets": (
        lambda: adapt([False, False, True, True]),
        f"sample_domain must hold finite numbers; got dtype bool. {DOMAINS}",
    ),
    "unit weights that must all move": (
        solve(C, np.ones(2), np.ones(3), marginals=aot.Equal()),
        f"{TOTALS}; got 3 against 2. Use aot.match for one-to-one pairs, or AtMost.",
    ),
}
if torch is not None:
    TRACKED = torch.tensor(C, requires_grad=True)
    WEIGHTS, POINTS, CLASSES = torch.tensor(B).requires_grad_(), torch.tensor(Z).requires_grad_(), torch.eye(2)
    RULE = "must not require a gradient, because this function does not compute one"
    LOST = f"{RULE}; got a tensor with requires_grad=True"
    VALUE = "Use aot.autodiff.transport_value or transport_plan, or pass {}.detach()."
    CLOUD = "Pass {}.detach(), or a matrix such as torch.cdist(x, z)**2 - reach**2 to aot.autodiff.transport_value."
    JOINT = torch.tensor(X), torch.tensor(Z), CLASSES.clone().requires_grad_(), torch.ones(4, 2)
    MESSAGES |= {
        "a solver by position, with gradients": (
            lambda: aot.autodiff.transport_value(TRACKED, aot.Entropic(0.1)),
            "source_weights must be weights; got aot.Entropic(epsilon=0.1). Write solver=aot.Entropic(epsilon=0.1).",
        ),
        "a gradient": (solve(TRACKED), f"cost {LOST}. {VALUE.format('cost')}"),
        "a gradient by the weights": (
            solve(TRACKED.detach(), target_weights=WEIGHTS),
            f"target_weights {LOST}. {VALUE.format('target_weights')}",
        ),
        "a gradient by points": (
            lambda: aot.DistanceCost(torch.tensor(X), POINTS, 1.0),
            f"z {LOST}. {CLOUD.format('z')}",
        ),
        "a gradient by classes": (lambda: aot.JointCost(*JOINT), f"p {LOST}. {CLOUD.format('p')}"),
    }


@pytest.mark.parametrize("name", MESSAGES)
def test_message_tells_what_to_type(name):
    call, message = MESSAGES[name]
    with pytest.raises(aot.InvalidInput) as caught:
        call()
    assert str(caught.value) == message


def test_the_calls_of_the_messages_work():
    """What the messages tell a user to type."""
    assert aot.solve(C, A, B).value == aot.solve(C).value
    assert aot.solve(aot.DistanceCost(X, Z, reach=2.0)).mass > 0
    assert aot.solve(aot.DistanceCost(X, Z)).converged
    solution = aot.solve(C, A, B)
    assert aot.certify(C, A, B, plan=solution.plan).feasible
    assert aot.certify(C, plan=solution.plan, source_potential=solution.source_potential).gap < 1e-12
    assert aot.mass_path(aot.DistanceCost(X, Z)).most_mass == pytest.approx(1.0)
    assert aot.solve(C, solver=aot.Entropic(0.1)).converged
    assert aot.solve(C, marginals=aot.FixedMass(0.5)).mass == pytest.approx(0.5)
    assert aot.solve(C, marginals=aot.SoftKL(2.0), solver=aot.Entropic(0.1)).converged
    assert aot.solve(C, marginals=aot.ChiSquareBall(0.2)).converged
    assert len(aot.match_frames(FRAMES)) == 2
    with pytest.raises(IndexError):  # as of any sequence, which is what ends a loop over one
        aot.solve(BATCH)[3]
    assert len([*aot.solve(BATCH)]) == 3


def test_a_mask_of_decoys_means_the_same_as_their_indices():
    matching = aot.match(np.array([[9.0, 1.0, -1.0, 0.5], [2.0, 8.0, 1.0, 3.0], [1.0, 2.0, 7.0, 4.0]]))
    mask = np.array([0, 0, 0, 1])
    found = [matching.at_error_rate(1.0, decoys=decoys) for decoys in (mask.astype(bool), mask.nonzero()[0], [3])]
    assert [each.pairs.tolist() for each in found] == [[[0, 0], [1, 1], [2, 2]]] * 3


def test_a_tiny_epsilon_is_told_of_the_exact_solver():
    with pytest.raises(aot.NotConverged) as caught:
        aot.solve(C, solver=aot.Entropic(1e-12, max_iterations=5))
    advice = "use a larger epsilon or tolerance, more iterations, or aot.Exact()"
    assert str(caught.value).startswith(f"stopped at the iteration limit: {advice} (gap ")


@pytest.mark.parametrize(
    ("match", "note"),
    [
        (lambda: aot.match(cost=POSITIVE, limit=-1), "no cost is below limit=-1; choose a larger one"),
        (lambda: aot.match(PAYS), "no score is above 0; for costs, use aot.match(cost=cost, limit=limit)"),
        (lambda: aot.match(PAYS, source_capacity=0), ""),
        (lambda: aot.match(np.empty((0, 3))), ""),
    ],
)
def test_notes_below_a_printed_matching(match, note):
    lines = str(match()).splitlines()
    assert lines[4:] == ([f"  note       nothing matches: {note}"] if note else [])


@pytest.mark.parametrize(
    ("match", "told"),
    [
        (lambda: aot.match(POSITIVE), True),
        (lambda: aot.match(np.array([[2, 7], [3, 1]])), True),
        (lambda: aot.match(POSITIVE - POSITIVE.min()), False),
        (lambda: aot.match(cost=POSITIVE, limit=100.0), False),
        (lambda: aot.match(pairs=([0, 1], [1, 0], [2.0, 3.0])), False),
    ],
)
def test_distances_in_the_place_of_scores_are_noted(match, told):
    lines = str(match()).splitlines()
    expected = "  note       every score is above 0, so every pair is better than none; if smaller is better, use"
    assert lines[4:] == ([expected, "             aot.match(cost=cost, limit=limit)"] if told else [])


def test_what_the_messages_on_pairs_tell_to_type():
    rows, columns, scores = zip(*TRIPLES, strict=True)
    _, numbers = np.unique(np.array(["ann", "bob"])[np.array(columns)], return_inverse=True)
    expected = aot.match([[1.5, 2.5], [-1.0, 2.0]]).score
    assert aot.match(pairs=tuple(zip(*TRIPLES, strict=True))).score == expected
    assert aot.match(pairs=(np.array(rows, float).astype(int), numbers, scores)).score == expected
    assert aot.match(pairs=[(0, 0, 1), (0, 1, 1), (1, 2, 3)]).score == 4  # three tuples as the three arrays
    distances = np.linalg.norm(X[:, None] - Z, axis=2)
    np.testing.assert_array_equal(distance.cdist(X, Z), distances)
    assert len(aot.match(cost=distances, limit=3.0)) == 2


def test_padding_a_ragged_frame_changes_nothing():
    """A frame padded with +inf and weights of 0 has the plan of the frame."""
    padded = np.full((2, 3, 4), np.inf)
    weights = np.zeros((2, 3)), np.zeros((2, 4))
    frames = [C, -C.T[:, :1]]
    for b, frame in enumerate(frames):
        n, m = frame.shape
        padded[b, :n, :m], weights[0][b, :n], weights[1][b, :m] = frame, 1 / n, 1 / m
    batch = aot.solve(padded, *weights)
    for b, frame in enumerate(frames):
        n, m = frame.shape
        np.testing.assert_allclose(batch.plan[b, :n, :m], aot.solve(frame).plan, atol=1e-12)


def test_nobody_misses_a_gradient_that_is_off():
    torch = pytest.importorskip("torch")
    cost = torch.tensor(C, requires_grad=True)
    with torch.no_grad():
        assert aot.solve(cost).value == aot.solve(C).value
    assert aot.autodiff.transport_value(cost).requires_grad


NOTHING = [
    "  note      nothing moves: no cost is negative. Subtract a limit (cost - limit), use",
    "            aot.DistanceCost(x, z), or move everything with marginals=aot.Equal()",
]
SPLIT = [
    "  note      sources weigh 0.5 and targets 0.333, so points are split; for one-to-one pairs,",
    "            use aot.match(cost=cost, limit=0)",
]
FAR = ["  note      nothing moves: no two points are closer than reach=0.5; choose a larger one"]
POSITIVE = np.abs(C)
PAYS = -POSITIVE


@pytest.mark.parametrize(
    ("solution", "notes"),
    [
        (solve(POSITIVE), NOTHING),
        (solve(np.abs(BATCH)), NOTHING),
        (solve(np.full((2, 3), np.inf)), NOTHING),
        (solve(aot.DistanceCost(X, Z + 1, reach=0.5)), FAR),
        (solve(PAYS), SPLIT),
        (solve(POSITIVE, marginals=aot.Equal()), []),
        (solve(POSITIVE, marginals=aot.FixedMass(0.0)), []),
        (solve(POSITIVE, solver=aot.Entropic(0.1)), []),
        (solve(POSITIVE, [0.0, 1.0]), []),  # a negative cost may be that of a point without weight
        (solve(np.empty((0, 3))), []),
        (solve(PAYS[:, :2]), []),  # as many sources as targets
        (solve([[-1.0, 2.0, 3.0], [4.0, -5.0, 6.0]]), []),  # pairs already
        (solve(PAYS, np.ones(2), np.ones(3)), []),  # what the match would be
        (solve(PAYS, [0.75, 0.25]), []),
        (solve(PAYS, marginals=aot.Equal()), []),
        (solve(PAYS, solver=aot.Entropic(0.1)), []),
        (solve(aot.DistanceCost(X, Z, reach=9.0)), []),
        (solve(-np.ones((60, 61))), []),  # nobody reads so many pairs
        (solve(-np.ones((2, 5))), []),  # far from square
    ],
)
def test_notes_below_a_printed_solution(solution, notes):
    lines = str(solution()).splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith("  note")), len(lines))
    assert lines[start:] == notes


def test_what_the_notes_tell_to_type():
    assert aot.solve(POSITIVE - 3.0).mass > 0
    assert aot.solve(POSITIVE, marginals=aot.Equal()).mass == pytest.approx(1.0)
    matching = aot.match(cost=PAYS, limit=0)
    assert len(matching) == 2
    assert matching.score == pytest.approx(-aot.solve(PAYS, np.ones(2), np.ones(3)).value)


COMMAS = "must have commas between its cells; got {}. Put a comma between two cells, and a point before decimals."
CELL = "must hold numbers only; got {}. Fill it in, or remove the column: names of rows and labels are not read here."

# The name of a file, its content, the command that reads it, and the message.
FILES = [
    ("semicolons.csv", "1;2\n3;4\n", "solve {}", COMMAS.format("semicolons in line 1")),
    ("decimals.csv", "1,5;2\n3;4\n", "solve {}", COMMAS.format("semicolons in line 1")),
    ("headed.csv", "a;b\n3;4\n", "solve {}", COMMAS.format("semicolons in line 1")),
    ("tabs.csv", "1\t2\n3\t4\n", "solve {}", COMMAS.format("tabs in line 1")),
    ("spaces.csv", "1 2\n3 4\n", "solve {}", COMMAS.format("spaces in line 1")),
    ("rows.csv", "id,a,b\nx1,1,2\n", "solve {}", CELL.format("'x1' in line 2, column 'id'")),
    ("pandas.csv", ",a,b\nx1,1,2\n", "solve {}", CELL.format("'x1' in line 2, column 1")),
    ("labels.csv", "1,2,cat\n3,4,dog\n", "solve {}", CELL.format("'cat' in line 1, column 3")),
    ("hole.csv", "a,b\n1,\n", "solve {}", CELL.format("nothing in line 2, column 'b'")),
    ("features.csv", "a;b;y\n1;2,5;cat\n", "adapt {} {}", COMMAS.format("semicolons in line 1")),
    ("pairs.csv", "a;b;score\nx;y;1\n", "match {}", COMMAS.format("semicolons in line 1")),
]
KINDS = {"solve {}": "cost file", "adapt {} {}": "source file", "match {}": "pairs file"}


@pytest.mark.parametrize(("file", "content", "command", "message"), FILES)
def test_file_with_other_separators_or_labels(capsys, tmp_path, file, content, command, message):
    path = tmp_path / file
    path.write_text(content)
    words = [str(path) if word == "{}" else word for word in command.split()]
    refused(capsys, words, f"adaptive-ot: {KINDS[command]} '{path}' {message}\n", within=tmp_path)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "predict runs/a2w images",
            "predict needs --output or -o. Type: adaptive-ot predict runs/a2w images -o OUTPUT",
        ),
        ("predict", "predict needs RUN. Type: adaptive-ot predict RUN"),
        ("solve", "solve needs COST. Type: adaptive-ot solve COST"),
        ("adapt a.npz", "adapt needs TARGET. Type: adaptive-ot adapt a.npz TARGET"),
        ("train --dataset digits", "train needs --root. Type: adaptive-ot train --dataset digits --root ROOT"),
        ("solve a.npy --epsilon 0", "--epsilon must be positive; got 0.0. Omit it to solve without entropy."),
        ("adapt a b --epsilon 0", "--epsilon must be positive; got 0.0. Write --exact to solve without entropy."),
        (
            "solve a.npy --epsilon",
            'Command "solve" parameter --epsilon requires an argument. Try: adaptive-ot solve --help',
        ),
        ("match a.csv --threshold 3", "Unknown option: --threshold. Try: adaptive-ot match --help"),
        (
            "solve a.npy --reach abc",
            'Invalid value for --reach: unable to convert "abc" into float. Try: adaptive-ot solve --help',
        ),
        (
            "benchmark features a -o b --foo",
            "Unknown option: --foo. Try: adaptive-ot benchmark features --help",
        ),
        ("match a.csv z.npy", "match takes only PAIRS; got also 'z.npy'. Try: adaptive-ot match --help"),
        ("adapt a b c d", "adapt takes only SOURCE TARGET; got also 'c', 'd'. Try: adaptive-ot adapt --help"),
        ("demo extra", "demo takes only options; got also 'extra'. Try: adaptive-ot demo --help"),
        (
            "benchmark --foo",
            'Unknown command "--foo". Available commands: features, deep, sensitivity. '
            "Try: adaptive-ot benchmark --help",
        ),
    ],
)
def test_command_line_tells_what_to_type(capsys, command, message):
    refused(capsys, command.split(), f"adaptive-ot: {message}\n", within=None)


def test_command_line_tells_why_nothing_moves(capsys, tmp_path):
    np.save(tmp_path / "cost.npy", POSITIVE)
    assert main(["solve", str(tmp_path / "cost.npy")]) == 0
    note = "nothing moves: no cost is negative; subtract a limit, give points with a larger --reach, or write --equal"
    assert f"  note        {note}\n" in capsys.readouterr().out
    assert main(["solve", str(tmp_path / "cost.npy"), "--equal"]) == 0
    assert "note" not in capsys.readouterr().out
