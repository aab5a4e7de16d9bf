"""A matching that leaves points alone, for one problem and for many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from adaptive_ot import _html
from adaptive_ot import _meant as meant
from adaptive_ot import _validation as check
from adaptive_ot._arrays import ArrayKind
from adaptive_ot._scores import DenseScores, Scores
from adaptive_ot.certify import Certificate, certify
from adaptive_ot.errors import InvalidInput

if TYPE_CHECKING:
    from adaptive_ot.error_rate import ErrorRate
    from adaptive_ot.exact.matching import Matched, MatchedFrames


@dataclass(frozen=True, eq=False, repr=False)
class Matching:
    """The matching of greatest score; made by `match`, which has examples.

    Arrays come in the library of the input.

    Attributes
    ----------
    shape
        Numbers of sources and targets.
    source_capacity, target_capacity
        How many partners each may have.
    """

    shape: tuple[int, int]
    source_capacity: np.ndarray
    target_capacity: np.ndarray
    _scores: Scores
    _matched: Matched

    def _present(self, values: np.ndarray) -> Any:
        return self._scores.kind.present(values)

    @cached_property
    def pairs(self) -> Any:
        """The matched pairs, a row for each: source and target. They are sorted by source, then target."""
        return self._present(np.stack((self._matched.rows, self._matched.columns), axis=1).astype(np.int64))

    @cached_property
    def pair_scores(self) -> Any:
        """The score of every pair; with a cost, the limit minus the cost."""
        return self._present(self._scores.meaning.scores(self._matched.cost))

    @cached_property
    def score(self) -> float:
        """The total score; an integer for integers."""
        scores = self._scores.meaning.scores(self._matched.cost)
        return int(scores.sum()) if self._scores.meaning.whole else math.fsum(scores)

    @cached_property
    def unmatched_source(self) -> Any:
        """Sources without a partner."""
        return self._present(_absent(self._matched.rows, self.shape[0]))

    @cached_property
    def unmatched_target(self) -> Any:
        """Targets without a partner."""
        return self._present(_absent(self._matched.columns, self.shape[1]))

    @cached_property
    def margin(self) -> Any:
        """Per pair, by how much the best matching without this pair is worse: 0 if another one is as good.

        A pair of a large margin is beyond doubt: its score would have to fall by that much before anything changes.
        Computed on first access, with one search for each pair.
        """
        from adaptive_ot.exact.matching import margins

        capacities = self.source_capacity, self.target_capacity
        return self._present(self._scores.meaning.scores(-margins(self._scores.listed, self._matched, capacities)))

    @property
    def source_potential(self) -> Any:
        """The duals of the sources, as in `Solution`, for the negated scores as costs."""
        return self._present(self._matched.source_potential)

    @property
    def target_potential(self) -> Any:
        """The duals of the targets."""
        return self._present(self._matched.target_potential)

    @cached_property
    def certificate(self) -> Certificate:
        """The judgement of `certify`, from the scores, the pairs and the potentials alone; computed on first access."""
        from scipy import sparse

        rows, columns, _, source_potential, target_potential = self._matched
        return certify(
            self._scores.cost(),
            self.source_capacity,
            self.target_capacity,
            plan=sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=self.shape),
            source_potential=source_potential,
            target_potential=target_potential,
        )

    def at_error_rate(self, rate: float, decoys: Any) -> ErrorRate:
        """The links to keep so that about this share of them is false, as decoy targets tell.

        A higher price is asked of every pair, which leaves the matchings of the mass path, until few enough decoys are
        matched: the estimate is (decoys matched + 1) times the number of real targets for each decoy, divided by the
        real targets matched.

        This assumes that decoys are exchangeable: a false match is as likely to reach a decoy as to reach any wrong
        real target, whatever its score. So decoys must be made like the real targets (by shuffling fields between
        blocks, or shifting a spectrum) and be among the targets when they are matched. Where most real targets have a
        true partner, fewer of them are left to err than decoys, and the estimate is too high. Where decoys are easier
        to tell from the sources than wrong targets are, it is too low.

        Parameters
        ----------
        rate
            The share of false links to allow, above 0 and up to 1.
        decoys
            Which targets are decoys: a mask, or their indices.

        Examples
        --------
        >>> import numpy as np, adaptive_ot as aot
        >>> rng = np.random.default_rng(0)
        >>> score = rng.normal(-2.0, 1.5, (300, 600))  # the targets from 300 on are decoys
        >>> score[np.arange(200), np.arange(200)] += 9.0  # 100 sources have no true partner
        >>> found = aot.match(score).at_error_rate(0.05, decoys=np.arange(600) >= 300)
        >>> bool((found.pairs[:, 0] == found.pairs[:, 1]).mean() > 0.95), len(found)
        (True, 203)
        """
        from adaptive_ot.error_rate import price_at_rate

        remedy = "Give a share: 5 % is 0.05."
        rate = check.number("rate", rate, minimum=np.finfo(float).tiny, maximum=1.0, remedy=remedy)
        is_decoy = check.mask("decoys", decoys, self.shape[1])
        for wrong, has in ((not is_decoy.any(), "no"), (bool(is_decoy.all()), "only")):
            if wrong:
                raise InvalidInput(
                    "decoys", "must be some of the targets", f"{has} decoys", "Match both kinds at once."
                )
        return price_at_rate(self, rate, is_decoy)

    def __len__(self) -> int:
        return self._matched.rows.size

    def __repr__(self) -> str:
        n, m = self.shape
        return f"<Matching of {n} x {m}: {len(self)} pairs, score {self.score:.6g}>"

    def __str__(self) -> str:
        n, m = self.shape
        lines = [
            f"Matching, {n} x {m}",
            f"  pairs      {len(self)}",
            f"  unmatched  {len(self.unmatched_source)} of {n} sources, {len(self.unmatched_target)} of {m} targets",
            f"  score      {self.score:.12g}",
        ]
        return "\n".join(lines + meant.nothing_matches(self) + meant.everything_matches(self))

    def _repr_html_(self) -> str:
        return _html.table(str(self))


@dataclass(frozen=True, eq=False, repr=False)
class MatchingBatch(Sequence[Matching]):
    """The matchings of many problems; ``batch[b]`` is a `Matching`. Made by `match` and `match_frames`."""

    _problems: Sequence[DenseScores]
    _kind: ArrayKind
    _found: MatchedFrames

    @cached_property
    def pairs(self) -> Any:
        """The pairs of all problems, a row for each: problem, source and target."""
        row_at, partner = self._found.row_at, self._found.partner
        rows = np.flatnonzero(partner >= 0)
        problem = np.searchsorted(row_at, rows, side="right") - 1
        return self._kind.present(np.stack((problem, rows - row_at[problem], partner[rows]), axis=1))

    @cached_property
    def score(self) -> Any:
        """The score of every problem."""
        whole = len(self) > 0 and all(problem.meaning.whole for problem in self._problems)
        return self._kind.present(np.rint(-self._found.cost).astype(np.int64) if whole else 0.0 - self._found.cost)

    def __len__(self) -> int:
        return len(self._problems)

    @overload
    def __getitem__(self, index: int) -> Matching: ...
    @overload
    def __getitem__(self, index: slice) -> list[Matching]: ...
    def __getitem__(self, index: int | slice) -> Matching | list[Matching]:
        if isinstance(index, slice):
            return [self[b] for b in range(len(self))[index]]
        b = check.place(index, len(self))
        n, m = self._problems[b].shape
        return Matching((n, m), np.ones(n, np.int64), np.ones(m, np.int64), self._problems[b], self._found.one(b))

    def __repr__(self) -> str:
        return f"<MatchingBatch of {len(self)} problems: {len(self.pairs)} pairs>"


def _absent(index: np.ndarray, size: int) -> np.ndarray:
    present = np.zeros(size, np.bool_)
    present[index] = True
    return np.flatnonzero(~present)
