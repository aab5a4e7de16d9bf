import pickle

import pytest

import adaptive_ot as aot


def not_converged():
    solution = aot.solve([[-1.0]], solver=aot.Exact(max_pivots=0), raise_if_not_converged=False)
    return aot.NotConverged("stopped", solution)


@pytest.mark.parametrize(
    "make",
    [
        lambda: aot.InvalidInput("cost", "must not contain NaN", "NaN", "Mask it."),
        lambda: aot.OutOfRange("index", "must be from -2 to 1 in a batch of 2", 2, "Problems count from 0."),
        lambda: aot.DataError("a/1.png", "it is truncated"),
        lambda: aot.MissingDependency("matplotlib", "plot"),
        not_converged,
    ],
)
def test_errors_cross_process_borders(make):
    """Worker processes hand their errors over as pickles."""
    error = make()
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert isinstance(copy, aot.AdaptiveOTError)
