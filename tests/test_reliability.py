"""Parts of the run that `python tests/reliability.py` makes: a tenth of it in the long form."""

import pytest

import reliability


@pytest.mark.parametrize("name", ["rational", "highs", "entropic"])
def test_some_problems(name):
    reliability.CHECKS[name][0](100)


@pytest.mark.slow
@pytest.mark.parametrize("name", reliability.CHECKS)
def test_many_problems(name):
    check, count = reliability.CHECKS[name]
    check(count // 10)
