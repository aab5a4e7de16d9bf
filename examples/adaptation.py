"""Adapt a digit classifier to a target with missing and unknown classes, without labels there.

The source knows the digits 0 to 7. The target is a pixel lower, has half the contrast, and holds no 0 and no 1, but
8s and 9s, which are unknown in the source.

    python examples/adaptation.py
"""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import adaptive_ot as aot
from adaptive_ot.adapt import JointTransportClassifier, LabelTransportClassifier


def domains() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features and digits of the source and of the target."""
    digits: Any = load_digits()
    x, y = digits.data, digits.target
    first = np.arange(len(y)) < len(y) // 2
    source, target = first & (y <= 7), ~first & (y >= 2)
    lower = np.roll(x[target].reshape(-1, 8, 8), 1, axis=1)
    return x[source], y[source], 4 + 0.5 * lower.reshape(-1, 64), y[target]


x, y, z, truth = domains()
known = truth <= 7
X, domain = np.concatenate([x, z]), np.repeat([0, -1], [len(x), len(z)])
Y = np.concatenate([y, np.full(len(z), -1)])  # labels of targets are never read

print("accuracy on the known digits of the target, and transported mass (each domain weighs 1):")
models = {
    "not adapted": JointTransportClassifier().fit(x, y),
    "Kantorovich": JointTransportClassifier(marginals=aot.Equal()).fit(X, Y, sample_domain=domain),
    "adaptive": JointTransportClassifier().fit(X, Y, sample_domain=domain),
}
for name, model in models.items():
    print(f"  {name:<12} {model.score(z[known], truth[known]):.1%}   mass {model.transported_mass_:.2f}")

adaptive = models["adaptive"]
print(f"AUC of the outlier score for unknown digits: {roc_auc_score(~known, adaptive.target_outlier_score_):.2f}")
missing = [float(adaptive.source_share_[y == digit].mean()) for digit in range(8)]
print(
    "transported share of each source digit:", " ".join(f"{digit}: {share:.2f}" for digit, share in enumerate(missing))
)

rejecting = LabelTransportClassifier(reject_label=-1).fit(X, Y, sample_domain=domain)
rejected = rejecting.predict(z) == -1
print(f"rejected: {rejected[~known].mean():.0%} of the unknown digits, {rejected[known].mean():.0%} of the known ones")
