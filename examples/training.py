"""Move a cloud onto another by gradient descent on the transport value; outliers of both stay in place.

The loss is the entropic transport value; its gradient with respect to the points depends on the plan alone, so points
without mass have (almost) no gradient. Each step solves one mini-batch, as in deep domain adaptation.
"""

import numpy as np
import torch

import adaptive_ot as aot
from adaptive_ot.autodiff import transport_value

REACH, STEPS, RATE = 1.5, 60, 20.0


def clouds(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sixty points and a shifted copy, each with twelve outliers of its own."""
    shape, shift = rng.normal(size=(60, 2)) * [1.0, 0.4], np.array([0.8, 0.5])
    far, away = (0.3 * rng.normal(size=(12, 2)) + centre for centre in ([-6.0, 4.0], [7.0, -3.0]))
    return np.concatenate([shape, far]), np.concatenate([shape + shift, away])


def main() -> None:
    x, z = map(torch.from_numpy, clouds(np.random.default_rng(0)))
    start, moved = x.clone(), x.clone().requires_grad_()
    solver = aot.Entropic(epsilon=0.1, tolerance=1e-6)
    for step in range(STEPS + 1):
        cost = torch.cdist(moved, z).square() - REACH**2
        value = transport_value(cost, solver=solver)
        (gradient,) = torch.autograd.grad(value, moved)
        if step % 20 == 0:
            print(f"step {step:2d}: value {value.item():8.4f}")
        with torch.no_grad():
            moved -= RATE * gradient
    distance = (moved.detach() - start).norm(dim=1)
    print(
        f"the shape moved by {distance[:60].mean():.2f}, of {0.89**0.5:.2f}; its outliers by {distance[60:].mean():.4f}"
    )


if __name__ == "__main__":
    main()
