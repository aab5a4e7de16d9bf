"""What readers and writers of files share."""

from __future__ import annotations

import io
import os
import stat
import zipfile

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot.workbench.benchmark.domains import read_dataset
from adaptive_ot.workbench.cli.inputs import read_cost, read_points
from adaptive_ot.workbench.feature_files import read_features
from adaptive_ot.workbench.files import open_archive, write_atomically
from adaptive_ot.workbench.report.matches import read_match

permissions = pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@permissions
@pytest.mark.parametrize("private", [0o600, 0o640, 0o400, 0o755])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, private):
    path, seen = tmp_path / "plan.csv", []
    path.write_bytes(b"old")
    path.chmod(private)

    def write(file):
        (temporary,) = tmp_path.glob(".plan.csv.*")
        seen.append(mode(temporary))  # nobody else may read it meanwhile either
        file.write(b"new")

    write_atomically("output", path, write)
    assert path.read_bytes() == b"new"
    assert mode(path) == private
    assert seen == [private]


@permissions
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_follows_the_umask(tmp_path, umask):
    path, before = tmp_path / "plan.csv", os.umask(umask)
    try:
        write_atomically("output", path, lambda file: file.write(b"new"))
    finally:
        os.umask(before)
    assert mode(path) == 0o666 & ~umask


READERS = {
    "features": read_features,
    "matches": read_match,
    "domains": read_dataset,
    "cost": lambda path: read_cost(path),
    "points": lambda path: read_points("x", path),
}
every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def array(shape, content=b""):
    """An .npy file that begins as NumPy would begin it, whatever follows."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + content


@every_reader
def test_a_bomb_is_not_unpacked(tmp_path, read):
    """12 GiB by its table of contents: nothing is allocated before that was read."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array((3 * 2**20, 2**9)))
        archive.getinfo("x.npy").file_size = 12 * 2**30
    with pytest.raises(aot.InvalidInput, match=r"bomb.npz' may take 4 GiB .* got 12 GiB .* set .*_UNPACKED_GIB=12"):
        read(path)


@every_reader
def test_an_array_that_claims_to_be_larger_than_its_file(tmp_path, read):
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", array((2**40, 3), bytes(48)))
    with pytest.raises(aot.InvalidInput, match=r"3,298,534,883,328 numbers in \d+ bytes"):
        read(path)


def test_a_single_array_that_claims_to_be_larger_than_its_file(tmp_path):
    path = tmp_path / "lie.npy"
    path.write_bytes(array((2**40, 3), bytes(48)))
    with pytest.raises(aot.InvalidInput, match="3,298,534,883,328 numbers in 176 bytes"):
        read_cost(path)


def test_rows_without_anything_in_them_are_counted(tmp_path):
    path, none = tmp_path / "rows.npz", np.zeros(0, np.int64)
    np.savez(path, format=b"coo", shape=np.array([2**40, 3]), data=np.zeros(0), row=none, col=none)
    with pytest.raises(aot.InvalidInput, match="may take 4 GiB"):
        read_cost(path)


def test_what_is_not_compressed_may_be_of_any_size(tmp_path, monkeypatch):
    numbers = np.zeros(1000)
    np.savez(tmp_path / "plain.npz", x=numbers)
    np.savez_compressed(tmp_path / "small.npz", x=numbers)
    monkeypatch.setenv("ADAPTIVE_OT_MAX_UNPACKED_GIB", "1e-7")
    with open(tmp_path / "plain.npz", "rb") as file, open_archive(file) as archive:
        np.testing.assert_array_equal(archive["x"], numbers)
    with open(tmp_path / "small.npz", "rb") as file, pytest.raises(aot.InvalidInput, match=r"may take 1e-07 GiB"):
        open_archive(file)
    monkeypatch.setenv("ADAPTIVE_OT_MAX_UNPACKED_GIB", "1e-5")
    with open(tmp_path / "small.npz", "rb") as file, open_archive(file) as archive:
        np.testing.assert_array_equal(archive["x"], numbers)


@pytest.mark.parametrize("given", ["much", "0", "-1", "nan"])
def test_an_allowance_is_a_positive_number(tmp_path, monkeypatch, given):
    np.savez(tmp_path / "plain.npz", x=np.zeros(1))
    monkeypatch.setenv("ADAPTIVE_OT_MAX_UNPACKED_GIB", given)
    with open(tmp_path / "plain.npz", "rb") as file, pytest.raises(aot.InvalidInput, match="MAX_UNPACKED_GIB"):
        open_archive(file)


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    target, link = tmp_path / "target.bin", tmp_path / "link.bin"
    target.write_bytes(b"old")
    link.symlink_to("target.bin")
    write_atomically("output", link, lambda file: file.write(b"new"))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.bin", "target.bin"]
