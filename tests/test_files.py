"""What readers and writers of files share."""

from __future__ import annotations

import os
import stat

import pytest

from adaptive_ot._files import write_atomically

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
