"""Domain adaptation on feature arrays, as scikit-learn estimators.

``sample_domain`` says where a sample comes from: >= 0 source, < 0 target. Labels of targets are never read.

>>> import numpy as np
>>> from adaptive_ot.adapt import JointTransportClassifier
>>> rng = np.random.default_rng(0)
>>> y = np.repeat([0, 1], 50)
>>> source = rng.normal(size=(100, 2)) + 8 * np.c_[y, y]
>>> target = rng.normal(size=(100, 2)) + 8 * np.c_[y, y] + [5, -5]  # the same classes, elsewhere
>>> X, domain = np.concatenate([source, target]), np.repeat([0, -1], 100)
>>> model = JointTransportClassifier().fit(X, np.concatenate([y, y]), sample_domain=domain)
>>> float((model.predict(target) == y).mean())
1.0
"""

from adaptive_ot.errors import MissingDependency

try:
    import sklearn  # noqa: F401
except ImportError:
    raise MissingDependency("scikit-learn", "adapt") from None

from adaptive_ot.adapt.adapter import TransportAdapter
from adaptive_ot.adapt.cells import transfer_labels
from adaptive_ot.adapt.joint import JointTransportClassifier
from adaptive_ot.adapt.labels import LabelTransportClassifier, LabelTransportRegressor
from adaptive_ot.adapt.round_trip import RoundTripScore

__all__ = [
    "JointTransportClassifier",
    "LabelTransportClassifier",
    "LabelTransportRegressor",
    "RoundTripScore",
    "TransportAdapter",
    "transfer_labels",
]
