"""Feature files: every format is read alike, and whatever is wrong with one gets one clear line."""

import json
import pickle
import struct
import sys
from io import BytesIO

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot.workbench.feature_files import Features, matched, read_features
from damage import npy, npz, refusals_of_damaged, zipped

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
WORDS = np.array(["cat", "dog", "cat", "a long name"])
DIGITS = np.array([3, 1, 3, 0])


def csv(x, y, label="y"):
    lines = [",".join(["a", label, "b", "c"])]
    lines += [f"{row[0]!r},{name},{row[1]!r},{row[2]!r}" for row, name in zip(x.tolist(), y, strict=True)]
    return "\n".join(lines).encode()


def parquet(index=(), **columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table(columns)
    if index:  # as pandas notes it
        table = table.replace_schema_metadata({"pandas": json.dumps({"index_columns": index})})
    buffer = BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def safetensors(**arrays):
    return pytest.importorskip("safetensors.numpy").save(arrays)


def safetensors_header(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


COLUMNS = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}

# A name, a file with X and labels, and the labels.
GOOD = {
    "words.npz": (lambda: npz(x=X, y=WORDS, other=np.zeros(7)), WORDS),
    "digits.npz": (lambda: npz(x=X, y=DIGITS.astype(np.uint8)), DIGITS),
    "floats.npz": (lambda: npz(x=X, y=DIGITS.astype(float)), DIGITS),
    "bytes.npz": (lambda: npz(x=X, y=WORDS.astype("S")), WORDS),
    "fortran.npz": (lambda: npz(x=np.asfortranarray(X), y=DIGITS), DIGITS),
    "UPPER.NPZ": (lambda: npz(x=X, y=DIGITS), DIGITS),
    "words.csv": (lambda: csv(X, WORDS), WORDS),
    "label.csv": (lambda: csv(X, WORDS, "label"), WORDS),
    "digits.csv": (lambda: csv(X, DIGITS), DIGITS),
    "floats.csv": (lambda: csv(X, DIGITS.astype(float)), DIGITS),
    "spreadsheet.csv": (lambda: "\ufeff".encode() + csv(X, [f'"{name}"' for name in WORDS], '"y"'), WORDS),
    "windows.csv": (lambda: csv(X, WORDS).replace(b"\n", b"\r\n") + b"\r\n", WORDS),
    "words.parquet": (lambda: parquet(**COLUMNS, y=WORDS.tolist()), WORDS),
    "digits.parquet": (lambda: parquet(label=DIGITS, **COLUMNS), DIGITS),
    "pandas.parquet": (lambda: parquet(**COLUMNS, y=DIGITS, __index_level_0__=[5, 6, 7, 8]), DIGITS),
    "index.parquet": (lambda: parquet(["time"], **COLUMNS, y=DIGITS, time=[5, 6, 7, 8]), DIGITS),
    "labelled_rows.parquet": (lambda: parquet(["y"], **COLUMNS, y=DIGITS), DIGITS),
    "range.parquet": (lambda: parquet([{"kind": "range", "start": 0}], **COLUMNS, y=DIGITS), DIGITS),
    "blank_lines.csv": (lambda: csv(X, WORDS).replace(b"\n", b"\n\n"), WORDS),
    "savetxt.csv": (lambda: csv(X, [f"{digit:.18e}" for digit in DIGITS]), DIGITS),
    "digits.safetensors": (lambda: safetensors(x=X, y=DIGITS), DIGITS),
}


@pytest.mark.parametrize("name", GOOD)
def test_every_format_is_read_alike(tmp_path, name):
    content, labels = GOOD[name]
    (tmp_path / name).write_bytes(content())
    x, y, _ = read_features(tmp_path / name)
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, labels)
    ignored = read_features(str(tmp_path / name), labels="ignored")
    assert ignored.y is None
    np.testing.assert_array_equal(ignored.x, X)  # the column of the labels is no feature


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bare.npz", lambda: npz(x=X)),
        ("bare.csv", lambda: csv(X, X[:, 0], "d")),
        ("bare.parquet", lambda: parquet(**COLUMNS)),
        ("bare.safetensors", lambda: safetensors(x=X)),
    ],
)
def test_labels_may_be_missing_where_they_are_optional(tmp_path, name, content):
    (tmp_path / name).write_bytes(content())
    assert read_features(tmp_path / name, labels="optional").y is None
    with pytest.raises(aot.InvalidInput, match=name.replace(".", r"\.")):
        read_features(tmp_path / name)


UNKNOWN = {
    "nan.npz": lambda: npz(x=X, y=np.full(4, np.nan)),
    "blank.npz": lambda: npz(x=X, y=np.full(4, "")),
    "blank.csv": lambda: csv(X, [""] * 4),
    "nan.csv": lambda: csv(X, ["nan"] * 4),
    "null.parquet": lambda: parquet(**COLUMNS, y=[None] * 4),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_labels_that_are_all_missing_are_none_where_they_are_optional(tmp_path, name):
    (tmp_path / name).write_bytes(UNKNOWN[name]())
    assert read_features(tmp_path / name, labels="optional").y is None
    with pytest.raises(aot.InvalidInput, match="must have a label for every sample; got none in"):
        read_features(tmp_path / name)


def test_python_objects_for_labels_can_be_left_out(tmp_path):
    (tmp_path / "x.npz").write_bytes(zipped(**{"x.npy": npy(X), "y.npy": npy(np.full(4, None))}))
    with pytest.raises(aot.InvalidInput, match="Save it as numbers or text, or leave 'y' out"):
        read_features(tmp_path / "x.npz", labels="optional")


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["007", "07", "7"], ["007", "07", "7"]),
        (["1", "+1", "2"], ["1", "+1", "2"]),
        (["100000000000000000", "100000000000000001", "-3"], [10**17, 10**17 + 1, -3]),
        (["9223372036854775808", "1", "2"], ["9223372036854775808", "1", "2"]),
        (["1e300", "2e300", "3"], ["1e300", "2e300", "3"]),
        (["9007199254740993.0", "9007199254740992.0", "1"], ["9007199254740993.0", "9007199254740992.0", "1"]),
        (["3.0", "3", " 1.50e1"], [3, 3, 15]),
    ],
)
def test_labels_in_text_are_neither_changed_nor_merged(tmp_path, cells, labels):
    (tmp_path / "x.csv").write_bytes(csv(X[:3], cells))
    assert np.asarray(read_features(tmp_path / "x.csv").y).tolist() == labels


def test_labels_of_64_bits_survive(tmp_path):
    labels = np.array([2**63 - 1, 2**63 - 2, -(2**63), 0])
    np.savez(tmp_path / "x.npz", x=X, y=labels)
    np.testing.assert_array_equal(read_features(tmp_path / "x.npz").y, labels)


def test_columns_are_matched_by_name():
    first, other = Features(X, DIGITS, ("a", "b", "c")), Features(X[:, ::-1], WORDS, ("c", "b", "a"))
    found = matched("other", other, first, "the first")
    np.testing.assert_array_equal(found.x, X)
    assert (found.y is WORDS, found.columns) == (True, ("a", "b", "c"))
    for bare in (other._replace(columns=None), Features(X, None)):  # by position where there are no names
        np.testing.assert_array_equal(matched("other", bare, first, "the first").x, bare.x)
        np.testing.assert_array_equal(matched("first", first, bare, "the other").x, X)
    with pytest.raises(aot.InvalidInput, match=r"must have the columns of the first; got 'd' instead of 'a'\."):
        matched("other", other._replace(columns=("c", "b", "d")), first, "the first")
    with pytest.raises(aot.InvalidInput, match=r"must have the columns of the first; got none instead of 'c'\."):
        matched("other", Features(X[:, :2], None, ("a", "b")), first, "the first")
    with pytest.raises(aot.InvalidInput, match=r"must have as many features as the first \(3\); got 2\."):
        matched("other", Features(X[:, :2], None), first, "the first")


@pytest.mark.parametrize("name", ["words.csv", "words.parquet"])
def test_names_of_columns_are_kept(tmp_path, name):
    (tmp_path / name).write_bytes(GOOD[name][0]())
    assert read_features(tmp_path / name).columns == ("a", "b", "c")


@pytest.mark.parametrize(("given", "kept"), [("float16", "float32"), ("float32", "float32"), ("int8", "float64")])
def test_numbers_keep_their_digits(tmp_path, given, kept):
    np.savez(tmp_path / "x.npz", x=X.astype(given), y=DIGITS)
    x = read_features(tmp_path / "x.npz").x
    assert x.dtype == kept
    np.testing.assert_array_equal(x, X.astype(given))


HOLES = np.where(X == 0.25, np.nan, X)

# A file that must not be accepted, its content, and a part of the message.
BAD = {
    "empty.npz": (lambda: b"", "must not be empty"),
    "empty.csv": (lambda: b"", "must not be empty"),
    "empty.parquet": (lambda: b"", "must not be empty"),
    "empty.safetensors": (lambda: b"", "must not be empty"),
    "features": (lambda: npz(x=X, y=DIGITS), "must end in .npz, .csv, .parquet or .safetensors; got no suffix"),
    "features.pt": (lambda: b"PK", "must end in .npz, .csv, .parquet or .safetensors; got '.pt'"),
    "features.npy": (lambda: npy(X), "must end in"),
    "truncated.npz": (lambda: npz(x=X, y=DIGITS)[:-30], "must be a valid .npz file"),
    "half.npz": (lambda: npz(x=X, y=DIGITS)[:200], "must be a valid .npz file"),
    "corrupt.npz": (
        lambda: npz(x=X, y=DIGITS).replace(np.float64(9).tobytes(), np.float64(8).tobytes()),
        "must be a valid .npz file",
    ),
    "not_a_zip.npz": (lambda: npy(X), "not a zip archive"),
    "pickle.npz": (lambda: pickle.dumps({"x": X}), "not a zip archive"),
    "object_x.npz": (
        lambda: zipped(**{"x.npy": npy(np.array([[None]])), "y.npy": npy(DIGITS)}),
        "must not hold Python objects; got some in 'x'. Save it as numbers or text.",
    ),
    "object_y.npz": (
        lambda: zipped(**{"x.npy": npy(X), "y.npy": npy(np.array(["a", None, "b", "c"]))}),
        "must not hold Python objects; got some in 'y'",
    ),
    "no_arrays.npz": (lambda: zipped(x="hello", y="you"), "must hold an array 'x' that can be read"),
    "empty_zip.npz": (lambda: zipped(), "must hold an array 'x'; got none"),
    "no_x.npz": (lambda: npz(features=X, y=DIGITS), "must hold an array 'x'; got 'features', 'y'"),
    "no_y.npz": (lambda: npz(x=X, labels=DIGITS), "must hold an array 'y'; got 'x', 'labels'"),
    "many.npz": (lambda: npz(**{f"array_{k}": X for k in range(20)}), "and 12 more"),
    "flat.npz": (lambda: npz(x=X[0], y=DIGITS[:3]), "samples x features, at least one of each; got shape (3,)"),
    "cube.npz": (lambda: npz(x=X[None], y=DIGITS[:1]), "got shape (1, 4, 3)"),
    "scalar.npz": (lambda: npz(x=1.0, y=1), "got shape ()"),
    "no_rows.npz": (lambda: npz(x=X[:0], y=DIGITS[:0]), "got shape (0, 3)"),
    "no_columns.npz": (lambda: npz(x=X[:, :0], y=DIGITS), "got shape (4, 0)"),
    "short.npz": (lambda: npz(x=X, y=DIGITS[:3]), "one label for each of its 4 samples; got shape (3,)"),
    "one_hot.npz": (lambda: npz(x=X, y=np.eye(4)), "one label for each of its 4 samples; got shape (4, 4)"),
    "nan.npz": (lambda: npz(x=HOLES, y=DIGITS), "must hold finite numbers; got nan in row 1, column 1"),
    "infinite.npz": (lambda: npz(x=np.where(X == 9, np.inf, X), y=DIGITS), "got inf in row 3, column 2"),
    "complex.npz": (lambda: npz(x=X * 1j, y=DIGITS), "must hold real numbers in 'x'; got dtype complex128"),
    "text.npz": (lambda: npz(x=X.astype(str), y=DIGITS), "must hold real numbers in 'x'"),
    "dates.npz": (lambda: npz(x=X, y=np.zeros(4, "datetime64[s]")), "whole numbers or text; got dtype datetime64[s]"),
    "regression.npz": (lambda: npz(x=X, y=DIGITS / 2), "whole numbers or text; got 1.5 in row 0"),
    "nan_label.npz": (lambda: npz(x=X, y=np.array([0, 1, np.nan, 2])), "for every sample; got none in row 2 of 'y'"),
    "unsigned.npz": (lambda: npz(x=X, y=np.array([0, 1, 2, 2**63], np.uint64)), "got 9223372036854775808 in row 3"),
    "large_labels.npz": (lambda: npz(x=X, y=np.array([0, 1, 1e300, 2e300])), "got 1e+300 in row 2"),
    "blank_label.npz": (lambda: npz(x=X, y=np.array(["a", " ", "b", "c"])), "every sample; got none in row 1 of 'y'"),
    "huge.npz": (
        lambda: zipped(**{"x.npy": npy(X).replace(b"(4, 3)", b"(4000000000, 3000000000)"), "y.npy": npy(DIGITS)}),
        "must be a valid .npz file",
    ),
    "no_header.csv": (lambda: b"1,2,0\n3,4,1\n", "must start with the names of its columns; got '1', '2', '0'"),
    "blank.csv": (lambda: b"\n\n", "must start with the names of its columns"),
    "only_header.csv": (lambda: b"a,b,y\n", "no numbers, only a header"),
    "no_label.csv": (lambda: b"a,b,class\n1,2,cat\n", "one column named y or label; got 'a', 'b', 'class'"),
    "bare.csv": (lambda: b"-0.4,0.2,cat\n1,2,cat\n", "got '-0.4', '0.2', 'cat'. Line 1 looks like data: add one"),
    "two_labels.csv": (lambda: b"a,y,label\n1,2,cat\n", "one column named y or label; got 'a', 'y', 'label'"),
    "only_label.csv": (lambda: b"y\n1\n", "must have a column of numbers beside the label; got 'y'"),
    "row_numbers.csv": (lambda: b",a,y\n0,1,cat\n", "a name of its own for every column; got ''."),
    "twice.csv": (lambda: b"a,a,y\n0,1,cat\n", "a name of its own for every column; got 'a'."),
    "words.csv": (lambda: b"a,b,y\n1,two,cat\n", "must hold numbers beside the label; got 'two' in line 2, column 'b'"),
    "hole.csv": (lambda: b"a,b,y\n\n1,2,cat\n1,,cat\n", "got nothing in line 4, column 'b'. Fill it in"),
    "blank_label.csv": (lambda: b"a,b,y\n1,2,cat\n1,2,\n", "for every sample; got none in line 3 of 'y'"),
    "nan_label.csv": (lambda: b"a,b,label\n1,2,3\n1,2,nan\n", "got none in line 3 of 'label'"),
    "regression.csv": (lambda: b"a,b,y\n1,2,0.5\n1,2,1\n", "must hold labels that are whole numbers or text"),
    "nan.csv": (lambda: b"a,b,y\n1,nan,cat\n", "got nan in line 2, column 'b'"),
    "ragged.csv": (lambda: b"a,b,y\n1,2,cat\n1,2\n", "must have 3 cells in every line; got 2 in line 3"),
    "decimal_comma.csv": (lambda: b"y,a,b\ncat,1,2\ncat,1,5,2\n", "must have 3 cells in every line; got 4 in line 3"),
    "open_quote.csv": (lambda: b'a,b,y\n1,2,"cat\n1,2,cat\n', "must be a valid .csv file"),
    "semicolons.csv": (lambda: b"a;b;y\n1;2;cat\n", "must have commas between its cells; got semicolons in line 1"),
    "binary.csv": (lambda: npy(X), "must be a valid .csv file"),
    "utf16.csv": (lambda: "a,b,y\n1,2,cat\n".encode("utf-16"), "must be a valid .csv file"),
    "long_header.csv": (lambda: b"a" * 300_000 + b",y\n1,2\n", "must be a valid .csv file; got field larger"),
    "magic.parquet": (lambda: b"PAR2" * 10, "must be a valid .parquet file"),
    "text.parquet": (lambda: csv(X, WORDS), "must be a valid .parquet file"),
    "truncated.parquet": (lambda: parquet(**COLUMNS, y=DIGITS)[:-20], "must be a valid .parquet file"),
    "footer.parquet": (
        lambda: parquet(**COLUMNS, y=DIGITS)[:-8] + struct.pack("<I", 2**31) + b"PAR1",
        "must be a valid .parquet file",
    ),
    "no_label.parquet": (lambda: parquet(**COLUMNS), "one column named y or label; got 'a', 'b', 'c'"),
    "words.parquet": (lambda: parquet(a=["one", "two"], y=[0, 1]), "real numbers beside the label; got 'a' of type"),
    "lists.parquet": (lambda: parquet(a=[[1.0, 2.0], [3.0, 4.0]], y=[0, 1]), "got 'a' of type list"),
    "null.parquet": (lambda: parquet(a=[1.0, None], y=[0, 1]), "got nan in row 1, column 'a'"),
    "null_label.parquet": (lambda: parquet(a=[1.0, 2.0], label=[None, "a"]), "got none in row 0 of 'label'"),
    "null_number.parquet": (lambda: parquet(a=[1.0, 2.0], label=[3, None]), "got none in row 1 of 'label'"),
    "no_rows.parquet": (lambda: parquet(a=X[:0, 0], y=DIGITS[:0]), "got shape (0, 1)"),
    "text.safetensors": (lambda: b"hello, this is not it", "must be a valid .safetensors file"),
    "truncated.safetensors": (lambda: safetensors(x=X, y=DIGITS)[:-9], "must be a valid .safetensors file"),
    "huge_header.safetensors": (lambda: struct.pack("<Q", 2**40) + b"{}", "must be a valid .safetensors file"),
    "not_json.safetensors": (lambda: safetensors_header(b"{'x': 1}"), "must be a valid .safetensors file"),
    "far.safetensors": (
        lambda: safetensors_header({"x": {"dtype": "F32", "shape": [9, 9], "data_offsets": [0, 324]}}, b"12345678"),
        "must be a valid .safetensors file",
    ),
    "no_x.safetensors": (lambda: safetensors(features=X, y=DIGITS), "must hold an array 'x'"),
    "no_y.safetensors": (lambda: safetensors(x=X), "must hold an array 'y'; got 'x'"),
    "nan.safetensors": (lambda: safetensors(x=HOLES, y=DIGITS), "got nan in row 1, column 1"),
    "short.safetensors": (lambda: safetensors(x=X, y=DIGITS[:1]), "one label for each of its 4 samples"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_name(tmp_path, name):
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content())
    with pytest.raises(aot.InvalidInput) as refusal:
        read_features(tmp_path / name)
    assert f"feature file '{tmp_path / name}'" in str(refusal.value)
    assert message in " ".join(str(refusal.value).split())


def test_places_without_a_file(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for name, message in (
        ("folder.csv", "must be a file"),
        ("missing.csv", "must exist"),
        ("a" * 300 + ".csv", "long"),
    ):
        with pytest.raises(aot.InvalidInput, match=message):
            read_features(tmp_path / name)


@pytest.mark.parametrize(("suffix", "package"), [("parquet", "pyarrow"), ("safetensors", "safetensors")])
def test_missing_packages_are_named(tmp_path, monkeypatch, suffix, package):
    (tmp_path / f"features.{suffix}").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(aot.MissingDependency, match=rf'{package}: pip install "adaptive-ot\[files\]"'):
        read_features(tmp_path / f"features.{suffix}")


@pytest.mark.parametrize("name", ["digits.npz", "words.csv", "words.parquet", "digits.safetensors"])
def test_damaged_files_are_read_or_refused(tmp_path, name):
    assert refusals_of_damaged(tmp_path / name, GOOD[name][0](), read_features, count=200) > 20
