"""Files as they should be, and damaged ones."""

import zipfile
from io import BytesIO

import numpy as np

import adaptive_ot as aot


def npy(array):
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def npz(**arrays):
    buffer = BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def zipped(**members):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def refusals_of_damaged(path, content, read, count=300):
    """How many of many damaged copies of a file are refused: never a crash, a warning or an error of another kind."""
    rng, refused = np.random.default_rng(0), 0
    for _ in range(count):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 6)):
            at, kind = int(rng.integers(len(damaged))), rng.integers(4)
            if kind == 0:
                del damaged[at:]
            elif kind == 1:
                damaged[at:at] = damaged[at : at + 20]
            else:
                damaged[at] = rng.integers(256)
            if not damaged:
                break
        path.write_bytes(damaged)
        try:
            read(path)
        except aot.InvalidInput:
            refused += 1
    return refused
