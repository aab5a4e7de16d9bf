"""The files of a problem, which several commands take."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_ot import DistanceCost, InvalidInput
from adaptive_ot.workbench.cli import files
from adaptive_ot.workbench.cli.options import named


class Inputs(NamedTuple):
    """What the user named: a cost, or two point clouds and a reach, and weights."""

    cost: Path
    targets: Path | None
    reach: float | None
    source_weights: Path | None
    target_weights: Path | None

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """All files, which no output may overwrite."""
        return self.cost, self.targets, self.source_weights, self.target_weights

    def read_cost(self) -> Any:
        """The cost matrix, or the cost of two point clouds."""
        if self.targets is None:
            if self.reach is not None:
                remedy = "Give the target points too, or leave --reach away."
                raise InvalidInput("--reach", "goes with two point files", "one file", remedy)
            return files.read_cost(self.cost)
        if self.reach is None:
            remedy = "Give --reach, the distance at which matching stops to pay."
            raise InvalidInput("--reach", "is needed with two point files", "none", remedy)
        x, z = files.read_points("x", self.cost), files.read_points("z", self.targets)
        return DistanceCost(x, z, self.reach)

    def read_weights(self) -> list[Any]:
        """The weights of both sides, None where there is no file."""
        sides = (("--source-weights", self.source_weights), ("--target-weights", self.target_weights))
        return [files.read_weights(argument, path) if path else None for argument, path in sides]

    def named(self) -> AbstractContextManager[None]:
        """Let complaints about arrays name the options and files they came from."""
        weights = {"source_weights": self.source_weights, "target_weights": self.target_weights}
        files = {name: f"--{name.replace('_', '-')} file '{path}'" for name, path in weights.items() if path}
        return named("mass", "tau", "rho", cost=f"cost file '{self.cost}'", **files)
