"""Follow moving objects among false alarms: a detection farther than the gate from every track is left unmatched.

`match` weighs all pairs at once, and leaves a point alone rather than pay more than the limit.
"""

from dataclasses import dataclass

import numpy as np

import adaptive_ot as aot

GATE = 1.5  # a match pays off up to this distance
PATIENCE = 4  # frames a track survives without a detection
FRAMES, OBJECTS, SIZE = 60, 8, 40.0


@dataclass
class Track:
    """The estimated position and velocity of an object."""

    position: np.ndarray
    velocity: np.ndarray
    hits: int = 1
    misses: int = 0

    def predict(self) -> np.ndarray:
        return self.position + self.velocity

    def update(self, detection: np.ndarray) -> None:
        innovation = detection - self.predict()
        self.position = self.predict() + 0.7 * innovation
        self.velocity = self.velocity + 0.3 * innovation
        self.hits, self.misses = self.hits + 1, 0

    def coast(self) -> None:
        self.position, self.misses = self.predict(), self.misses + 1


def step(tracks: list[Track], detections: np.ndarray) -> list[Track]:
    """One frame: match, update, start tracks at unmatched detections, drop tracks lost for too long."""
    predicted = np.array([track.predict() for track in tracks]).reshape(-1, 2)
    squares = ((predicted[:, None] - detections) ** 2).sum(axis=2)
    matching = aot.match(cost=squares, limit=GATE**2)
    for i, j in matching.pairs:
        tracks[i].update(detections[j])
    for i in matching.unmatched_source:
        tracks[i].coast()
    born = [Track(detections[j], np.zeros(2)) for j in matching.unmatched_target]
    return [track for track in tracks if track.misses <= PATIENCE] + born


def main() -> None:
    rng = np.random.default_rng(1)
    position = rng.uniform(0.2 * SIZE, 0.8 * SIZE, (OBJECTS, 2))
    velocity = rng.uniform(-0.25, 0.25, (OBJECTS, 2))
    tracks: list[Track] = []
    for _ in range(FRAMES):
        position = position + velocity
        seen = (position + rng.normal(scale=0.1, size=position.shape))[rng.random(OBJECTS) < 0.9]
        false_alarms = rng.uniform(0, SIZE, (rng.poisson(3), 2))
        tracks = step(tracks, np.concatenate([seen, false_alarms]))

    confirmed = [track for track in tracks if track.hits >= 10]
    errors = [min(np.linalg.norm(track.position - true) for track in confirmed) for true in position]
    print(f"{np.sum(np.array(errors) < GATE)} of {OBJECTS} objects followed, mean error {np.mean(errors):.2f}")
    print(f"{len(confirmed)} confirmed tracks, {len(tracks) - len(confirmed)} candidates from false alarms")


if __name__ == "__main__":
    main()
