"""The environment of a result: versions, machine, command."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Packages that may influence numbers in results.
PACKAGES = (
    *("adaptive-ot", "numpy", "scipy", "numba", "scikit-learn", "pot", "skada"),
    *("torch", "torchvision", "timm", "pillow", "safetensors"),
)


def environment() -> dict[str, Any]:
    """Versions of installed packages, the machine, and the command.

    Examples
    --------
    >>> sorted(environment())
    ['accelerators', 'command', 'packages', 'platform', 'processors', 'python']
    """
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "accelerators": _accelerators(),
        "packages": versions(PACKAGES),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    return {package: found for package in packages if (found := _installed(package))}


def _accelerators() -> list[str]:
    """The GPUs by name, if PyTorch was used at all: nothing else uses them."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return [cuda.get_device_name(each) for each in range(cuda.device_count())] if cuda else []


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
