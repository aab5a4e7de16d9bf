"""What `make test` leaves to `make test-all`."""

from collections.abc import Iterable
from typing import Any

import pytest


def mostly_slow(values: Iterable[Any], quick: int) -> list[Any]:
    """Values for `parametrize`, of which all but the first few are marked as slow."""
    return [pytest.param(value, marks=pytest.mark.slow if k >= quick else ()) for k, value in enumerate(values)]
