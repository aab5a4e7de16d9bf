"""``adaptive-ot match``: the links among candidate pairs, at most one for every record."""

from __future__ import annotations

import ast
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from adaptive_ot import ErrorRate, InvalidInput, Matching
from adaptive_ot.match import match as matching_of
from adaptive_ot.workbench.cli import outputs, show
from adaptive_ot.workbench.cli.options import Flag, OptionalOutput, Whole, named
from adaptive_ot.workbench.pair_files import READABLE, NamedPairs, read_pairs, write_links
from adaptive_ot.workbench.wording import counted, sources_and_targets

_PAIRS = (
    "Candidate pairs, .csv or .parquet: a source, a target and a score in every row, in this order unless --source, "
    "--target and --score say otherwise. Names are text or numbers. A .csv file starts with the names of its columns."
)
PairsFile = Annotated[Path, Parameter(help=_PAIRS)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MatchOptions:
    """Everything beside the pairs.

    Parameters
    ----------
    output
        Where to write the links, as .csv or .parquet: source, target and score.
    source
        The column of the sources; by default the first one.
    target
        The column of the targets; by default the second one.
    score
        The column of the scores, of which those above 0 speak for a pair; by default the third one.
    limit
        The numbers are costs, and this is the price of leaving both alone. The score is the limit minus the cost.
    source_capacity
        How many partners a source may have.
    target_capacity
        How many partners a target may have.
    margin
        Write for every link by how much the best matching without it is worse.
    error_rate
        Keep as many links as this share of false ones allows, which the decoys tell.
    decoy
        The column that is true where the target is a decoy.
    json
        Print a summary for programs.
    """

    output: OptionalOutput = None
    source: str | None = None
    target: str | None = None
    score: str | None = None
    limit: float | None = None
    source_capacity: Whole = 1
    target_capacity: Whole = 1
    margin: Flag = False
    error_rate: float | None = None
    decoy: str | None = None
    json: Flag = False

    def check(self, pairs: Path) -> None:
        """Refuse what cannot work, before the work starts."""
        if self.output:
            outputs.check_output(self.output, READABLE, inputs=(pairs,))
        if (self.error_rate is None) != (self.decoy is None):
            given, missing = ("--decoy", "--error-rate") if self.error_rate is None else ("--error-rate", "--decoy")
            raise InvalidInput(given, f"needs {missing}", "none", "Give both, or neither of them.")
        if self.margin and self.error_rate is not None:
            raise InvalidInput("--margin", "does not go with --error-rate", "both", "Omit one of them.")


def match(pairs: PairsFile, /, *, options: MatchOptions = MatchOptions()) -> int:
    """Match sources with targets so that the total score is greatest; what has no good partner stays alone."""
    options.check(pairs)
    wanted = {"--source": options.source, "--target": options.target, "--score": options.score}
    started = time.perf_counter()
    candidates = read_pairs(pairs, wanted, options.decoy, costs=options.limit is not None)
    read = time.perf_counter()
    matching = _matched(candidates, pairs, options)
    kept: Matching | ErrorRate = matching
    if options.error_rate is not None:
        with named(rate="--error-rate", decoys=f"the column --decoy of '{pairs}'"):
            kept = matching.at_error_rate(options.error_rate, decoys=candidates.decoys)
    if options.output:
        _write(options.output, candidates, kept, options.margin)
    seconds = read - started, time.perf_counter() - read
    show.result(_summary(candidates, matching, kept, seconds, options.output), options.json, _show)
    return 0


def _matched(candidates: NamedPairs, path: Path, options: MatchOptions) -> Matching:
    try:
        with named("limit", "source_capacity", "target_capacity", **{"pairs[2]": f"the scores of '{path}'"}):
            return matching_of(
                pairs=(candidates.rows, candidates.columns, candidates.numbers),
                shape=candidates.shape,
                limit=options.limit,
                source_capacity=options.source_capacity,
                target_capacity=options.target_capacity,
            )
    except InvalidInput as error:
        if error.argument != "pairs":
            raise
        source, target = ast.literal_eval(error.given.removesuffix(" twice"))
        given = f"{candidates.sources[source]!r} and {candidates.targets[target]!r} twice"
        raise InvalidInput(f"pairs file '{path}'", error.rule, given, error.remedy) from None


def _write(path: Path, candidates: NamedPairs, kept: Matching | ErrorRate, margin: bool) -> None:
    columns: dict[str, Any] = {
        "source": [candidates.sources[i] for i in kept.pairs[:, 0]],
        "target": [candidates.targets[j] for j in kept.pairs[:, 1]],
        "score": kept.pair_scores.tolist(),
    }
    if margin and isinstance(kept, Matching):
        columns["margin"] = kept.margin.tolist()
    write_links(path, columns)


def _summary(
    candidates: NamedPairs,
    matching: Matching,
    kept: Matching | ErrorRate,
    seconds: tuple[float, float],
    output: Path | None,
) -> dict[str, Any]:
    """The matching as plain numbers and strings."""
    n, m = candidates.shape
    summary: dict[str, Any] = {
        "pairs": int(candidates.rows.size),
        "sources": n,
        "targets": m,
        "links": len(kept),
        "score": float(np.sum(kept.pair_scores)),
        "unmatched_sources": n - int(np.unique(kept.pairs[:, 0]).size),
        "unmatched_targets": m - int(np.unique(kept.pairs[:, 1]).size),
        "gap": matching.certificate.gap,
        "seconds_reading": seconds[0],
        "seconds": seconds[1],
        "output": None if output is None else str(output),
    }
    if isinstance(kept, ErrorRate):
        (low, high), decoys = kept.interval, candidates.decoys
        summary |= {"decoys": 0 if decoys is None else int(decoys.sum()), "price": show.finite(kept.price)}
        summary |= {"error_rate": kept.rate, "error_rate_low": low, "error_rate_high": high}
    return summary


def _show(of: dict[str, Any]) -> None:
    rate = None
    if "error_rate" in of:
        span = f"{of['error_rate_low']:.2%} to {of['error_rate_high']:.2%}"
        price = "no price is high enough" if of["price"] is None else f"at the price {of['price']:.6g}"
        rate = f"{of['error_rate']:.2%} estimated ({span}) from {counted(of['decoys'], 'decoy')}, {price}"
    show.title(f"Matching of {sources_and_targets(of['sources'], of['targets'], 'to')}")
    show.lines(
        {
            "links": f"{of['links']:,} of {counted(of['pairs'], 'candidate pair')}",
            "alone": sources_and_targets(of["unmatched_sources"], of["unmatched_targets"], "and"),
            "score": f"{of['score']:.12g}   (certified gap of the matching {of['gap']:.2g})",
            "error rate": rate,
            "effort": f"{of['seconds_reading']:.2f} s to read, {of['seconds']:.2f} s to match",
            "output": of["output"],
        }
    )
