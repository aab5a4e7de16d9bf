"""Match what has a partner and leave the rest alone: one frame of a crowd, and links that keep to an error rate.

Draws a picture of both: the frame with its matches, and the false links among those kept, which decoys estimate.
"""

import sys
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import adaptive_ot as aot

GATE, OBJECTS, RECORDS = 5.0, 40, 1500


def frame(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Where objects were, and where some of them and false alarms are now."""
    before = rng.uniform(0, 60, (OBJECTS, 2))
    seen = np.flatnonzero(rng.random(OBJECTS) < 0.8)
    alarms = rng.uniform(0, 60, (8, 2))
    after = np.concatenate((before[seen] + rng.normal(0, 1.5, (seen.size, 2)), alarms))
    return before, after


def draw_frame(ax: Any, rng: np.random.Generator) -> None:
    before, after = frame(rng)
    matching = aot.match(cost=np.linalg.norm(before[:, None] - after, axis=2), limit=GATE)
    sure = matching.margin > 1.0
    for pair, certain in zip(matching.pairs, sure, strict=True):
        ends = np.stack((before[pair[0]], after[pair[1]]))
        ax.plot(*ends.T, color="0.3", lw=1.5, ls="-" if certain else ":", zorder=1)
    for points, alone, colour, name in (
        (before, matching.unmatched_source, "#56B4E9", "before"),
        (after, matching.unmatched_target, "#D55E00", "now"),
    ):
        faces = np.where(np.isin(np.arange(len(points)), alone), "white", colour)
        ax.scatter(*points.T, c=faces, edgecolors=colour, label=name, s=36)
    lost, alarms = len(matching.unmatched_source), len(matching.unmatched_target)
    print(f"{len(matching)} matches, {lost} of before and {alarms} of now left alone")
    ax.set_title(f"{len(matching)} matches; hollow: left alone; dotted: margin below 1", fontsize="medium")
    ax.set(aspect="equal", xticks=[], yticks=[])


def draw_error_rate(ax: Any, rng: np.random.Generator) -> None:
    """Records of which a third have a partner, as many decoys as targets, and random candidates."""
    candidates = rng.integers(0, 2 * RECORDS, (RECORDS, 12))
    score = np.full((RECORDS, 2 * RECORDS), -np.inf)
    np.put_along_axis(score, candidates, rng.normal(0.0, 2.0, candidates.shape), axis=1)
    third = np.arange(RECORDS // 3)
    score[third, third] = rng.normal(6.0, 2.0, third.size)
    matching, asked, true, low, high = aot.match(score), [0.02, 0.05, 0.1, 0.2, 0.3, 0.4], [], [], []
    for rate in asked:
        found = matching.at_error_rate(rate, decoys=np.arange(2 * RECORDS) >= RECORDS)
        true.append(np.mean(found.pairs[:, 0] != found.pairs[:, 1]))
        low.append(found.interval[0])
        high.append(found.interval[1])
    print("asked:", *(f"{rate:.2f}" for rate in asked), " true:", *(f"{rate:.2f}" for rate in true))
    ax.fill_between(asked, low, high, color="#56B4E9", alpha=0.4, lw=0, label="interval")
    ax.plot(asked, true, "o-", color="#D55E00", label="true")
    ax.plot(asked, asked, ls="--", color="0.4", label="asked for")
    ax.set(xlabel="error rate asked for", ylabel="share of false links")
    ax.legend(frameon=False)


def main(picture: str) -> None:
    figure = Figure(figsize=(12, 5.5), dpi=80, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    draw_frame(left, np.random.default_rng(1))
    draw_error_rate(right, np.random.default_rng(2))
    figure.savefig(picture)
    print("picture:", picture)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "matching.png")
