"""Fits in several processes: all of them have all samples and do the same, but each makes only some of the plans.

So classifiers of any kind are fitted as ever, and every process has the whole estimator in the end. Processes go in
step: what one asks for, all of them ask for. Where they would come to different decisions, they stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from adaptive_ot._group import Message, Team
from adaptive_ot.distributed import check_same, digest
from adaptive_ot.errors import InvalidInput

# How far probabilities of two processes may differ: by rounding, on processors of different kinds.
ALIKE = 1e-6

SAME_SAMPLES = "Pass all samples in every process; only the plans are divided among them."
SAME_WORK = "Give `estimator` a random_state, and all processes the same versions of their packages."


class Together:
    """The processes of a group that fit the same estimator; without a group, this process alone."""

    def __init__(self, group: Any = None) -> None:
        self.team = None if group is None else Team(group)
        self.failed = False

    def mine(self, number: int) -> range:
        """Which of so many tasks this process does; a single one is done by all of them."""
        if self.team is None or number == 1:
            return range(number)
        return range(self.team.rank, number, self.team.size)

    @contextmanager
    def in_step(self, description: Callable[[], Message]) -> Iterator[None]:
        """Compare what all processes were given. If one fails, all others raise the same error at their next step."""
        if self.team is None:
            yield
            return
        check_same(self.team.exchange(lambda: {"same": description()}), SAME_SAMPLES)
        try:
            yield
        except BaseException as error:
            reason = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)

            def fail() -> Message:
                raise reason

            if not self.failed:
                with suppress(Exception):
                    self.joint("a failure", fail, lambda pieces: {})
            raise
        self.joint("the end", dict, lambda pieces: {})

    def joint(self, step: str, look: Callable[[], Message], combine: Callable[[list[Message]], Message]) -> Message:
        """What `combine` makes of what `look` returns in every process, in all of them."""
        if self.team is None:
            return combine([look()])

        def combined(pieces: list[Message]) -> Message:
            for rank, piece in enumerate(pieces):
                if piece["step"] != step:
                    given = f"{step} in process 0 and {piece['step']} in process {rank}"
                    raise InvalidInput("group", "must have processes that decide alike", given, SAME_WORK)
            return combine(pieces)

        try:
            return self.team.agree(lambda: {"step": step, **look()}, combined)
        except BaseException:
            self.failed = True
            raise

    def drawn(self, **arrays: np.ndarray) -> Message:
        """Random arrays of the process of rank 0."""
        return self.joint("a draw", lambda: arrays, lambda pieces: pieces[0])

    def agreed(self, probabilities: np.ndarray) -> np.ndarray:
        """The probabilities that the process of rank 0 predicts; those of others may only be rounded otherwise."""

        def compared(pieces: list[Message]) -> Message:
            first = pieces[0]["probabilities"]
            for rank, piece in enumerate(pieces):
                most = float(np.abs(piece["probabilities"] - first).max(initial=0.0))
                if not most <= ALIKE:
                    given = f"probabilities in processes 0 and {rank} that differ by {most:.2g}"
                    raise InvalidInput("group", "must have processes that predict alike", given, SAME_WORK)
            return {"probabilities": first}

        return self.joint("predictions", lambda: {"probabilities": probabilities}, compared)["probabilities"]


def described(estimator: Any, X: Any, y: Any, sample_domain: Any) -> Message:
    """What has to be the same in every process."""
    samples = np.asarray(X)
    shape = " x ".join(map(str, samples.shape))
    return {
        "estimator": re.sub(" at 0x[0-9A-Fa-f]+", "", repr(estimator)),
        "X": f"{shape} {samples.dtype}{digest(samples)}",
        "y": "none" if y is None else f"{len(y)} labels{digest(np.asarray(y))}",
        "sample_domain": "none" if sample_domain is None else f"{len(sample_domain)} numbers{digest(sample_domain)}",
    }
