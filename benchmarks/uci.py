"""Write the letters and satellite images of the feature benchmark as .npz files.

    apt-get download r-cran-mlbench && dpkg -x r-cran-mlbench_*.deb mlbench      # or any copy of the R package mlbench
    pip install rdata
    python benchmarks/uci.py mlbench/usr/lib/R/site-library/mlbench/data DATA    # DATA/letters, DATA/satellite

Both are standardised: UCI letter recognition (26 classes, 16 features) and Landsat satellite images (6 classes, 36
features).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import rdata

# The file and the column of the class, by name of the dataset.
DATASETS = {"letters": ("LetterRecognition", "lettr"), "satellite": ("Satellite", "classes")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="directory with the .rda files of mlbench")
    parser.add_argument("data", type=Path, help="directory to write to")
    given = parser.parse_args()
    for name, (file, label) in DATASETS.items():
        table = rdata.read_rda(given.package / f"{file}.rda")[file]
        x = table.drop(columns=label).to_numpy(dtype=np.float64)
        _, y = np.unique(table[label].astype(str), return_inverse=True)
        folder = given.data / name
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{name}.npz", x=(x - x.mean(axis=0)) / x.std(axis=0), y=y)
        print(f"{folder / name}.npz: {len(x)} rows, {x.shape[1]} features, {y.max() + 1} classes")


if __name__ == "__main__":
    main()
