"""What a result was computed with."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("adaptive-ot", "numpy", "scipy", "numba", "scikit-learn", "pot", "skada", "torch")


def environment() -> dict[str, Any]:
    """Versions of what is installed, the platform, and the command.

    Examples
    --------
    >>> sorted(environment())
    ['command', 'packages', 'platform', 'processors', 'python']
    """
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": {package: found for package in PACKAGES if (found := _installed(package))},
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
