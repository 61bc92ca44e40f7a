"""Tables on disk: every format there and back, and every message about a file that cannot be read."""

import gzip
import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

import airnp
from airnp import tables
from airnp.tables import Reading, Table, TableError

needs_pyarrow = pytest.mark.skipif(find_spec("pyarrow") is None, reason="parquet files need pyarrow")
PARQUET = pytest.param(".parquet", marks=needs_pyarrow)
NAN = np.nan
VALUES = np.array([[1.0, 0.1, NAN], [NAN, 1e-300, 3.0], [1 / 3, -2.5e20, 0.0]])


def read(path, content, **how):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tables.read(path, Reading(**how))


def write(path, table):
    with open(path, "wb") as file:
        tables.write(file, tables.kind_of(path), table)


def labels(sequence):
    return None if sequence is None else [str(label) for label in sequence]


# --- there and back ---


@pytest.mark.parametrize("suffix", [*tables.SUFFIXES[:-1], PARQUET])
def test_numbers_and_gaps_come_back_exactly(suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    write(path, Table(VALUES))
    back = tables.read(path)
    np.testing.assert_array_equal(back.values, VALUES)
    assert back.values.dtype == np.float64


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".npz", PARQUET])
def test_labels_come_back(suffix, tmp_path):
    path = tmp_path / f"table{suffix}"
    rows, columns = ["ann", 'b"o,b', "zoë"], ["x", "a;\tb", "2"]
    write(path, Table(VALUES, rows, columns, "who"))
    back = tables.read(path)
    np.testing.assert_array_equal(back.values, VALUES)
    assert (labels(back.rows), labels(back.columns)) == (rows, columns)
    assert back.corner == (None if suffix == ".npz" else "who")


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mtx", PARQUET])
def test_whole_numbers_come_back_as_integers(suffix, dtype, tmp_path):
    path, again = tmp_path / f"table{suffix}", tmp_path / f"again{suffix}"
    whole = np.arange(6).reshape(2, 3)
    write(path, Table(whole.astype(float), dtypes=[np.dtype(dtype)] * 3))
    table = tables.read(path)
    np.testing.assert_array_equal(table.values, whole)
    assert {kind.kind for kind in table.dtypes} <= {"i", "u"}
    table.values[0, 0] = 0.5  # what was filled in and not rounded stays as it is
    write(again, table)
    assert tables.read(again).values[0, 0] == 0.5


def test_an_integer_that_its_dtype_cannot_hold_is_kept(tmp_path):
    write(tmp_path / "a.npy", Table(np.array([[300.0, 1.0]]), dtypes=[np.dtype(np.uint8)] * 2))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), [[300.0, 1.0]])


def test_the_same_table_gives_the_same_bytes():
    first, second = io.BytesIO(), io.BytesIO()
    for file in (first, second):
        tables.write(file, ".csv.gz", Table(VALUES))
    assert first.getvalue() == second.getvalue()
    assert gzip.decompress(first.getvalue()).startswith(b"1,0.1,\n")


def test_float32_stays_float32(tmp_path):
    np.save(tmp_path / "a.npy", np.float32([[0.1, NAN]]))
    table = tables.read(tmp_path / "a.npy")
    assert table.values.dtype == np.float32
    write(tmp_path / "a.csv", table)
    assert (tmp_path / "a.csv").read_text() == "0.1,\n"


def test_a_csv_keeps_its_delimiter(tmp_path):
    table = read(tmp_path / "a.csv", "a;b\n1;2\n")
    write(tmp_path / "b.csv", table)
    assert (tmp_path / "b.csv").read_text() == "a;b\n1;2\n"


# --- text ---


@pytest.mark.parametrize(
    ("content", "columns", "rows", "values"),
    [
        ("1,2\n3,4\n", None, None, [[1, 2], [3, 4]]),
        ("a,b\n3,4\n", ["a", "b"], None, [[3, 4]]),
        ("who,a\nann,4\nbob,\n", ["a"], ["ann", "bob"], [[4], [NAN]]),
        (",a,b\n0,3,4\n1,5,6\n", ["a", "b"], ["0", "1"], [[3, 4], [5, 6]]),
        (",2019\nann,4\n", ["2019"], ["ann"], [[4]]),
        (",1\n,2\n", None, None, [[NAN, 1], [NAN, 2]]),
        ("a\n1\n2\n", ["a"], None, [[1], [2]]),
        ("id,a\n7,4\n", ["id", "a"], None, [[7, 4]]),
        ("1\t2\n3\t4\n", None, None, [[1, 2], [3, 4]]),
        ("1 2\n3 4\n", None, None, [[1, 2], [3, 4]]),
        ("1, 2\n3, 4\n", None, None, [[1, 2], [3, 4]]),
        ("\ufeffa,b\r\n\r\n1,2\r\n", ["a", "b"], None, [[1, 2]]),
        (
            "a,b,c,d\nNA,n/a,NaN,null\n1,none,#N/A,<NA>\n",
            ["a", "b", "c", "d"],
            None,
            [[NAN] * 4, [1, *[NAN] * 3]],
        ),
    ],
)
def test_header_labels_and_delimiter_are_guessed(content, columns, rows, values, tmp_path):
    table = read(tmp_path / "a.csv", content)
    np.testing.assert_array_equal(table.values, values)
    assert (labels(table.columns), labels(table.rows)) == (columns, rows)


def test_guesses_can_be_overruled(tmp_path):
    path = tmp_path / "a.csv"
    years = "who,2019,2020\nann,1,2\n"
    assert read(path, years, header=True).columns == ["2019", "2020"]
    assert read(path, years, header=False).rows == ["who", "ann"]
    assert read(path, "1,2\n3,4\n", header=True).columns == ["1", "2"]
    assert read(path, "id,a\n7,4\n", index="id").rows == ["7"]
    assert read(path, "a,id\n7,4\n", index="2").rows == ["4"]
    assert read(path, "a,id\n7,4\n", index="2").columns == ["a"]
    assert read(path, ",a\n0,4\n", index="none").columns == ["", "a"]
    np.testing.assert_array_equal(
        read(path, "1,5;2,5\n", delimiter=";", missing=("2,5", "1,5")).values, [[NAN] * 2]
    )


def test_further_words_for_missing(tmp_path):
    content = "a,b\n-999,1\nx,-999.0\n?,2\n"
    table = read(tmp_path / "a.csv", content, missing=("-999", "X", "?"))
    np.testing.assert_array_equal(table.values, [[NAN, 1], [NAN, NAN], [NAN, 2]])
    np.save(tmp_path / "a.npy", np.array([[-1, 5]]))
    np.testing.assert_array_equal(
        tables.read(tmp_path / "a.npy", Reading(missing=("-1", "word"))).values, [[NAN, 5]]
    )


@pytest.mark.parametrize(
    ("content", "how", "message"),
    [
        ("a,b\n1,2\n3,x\n", {}, "line 3, column 'b': 'x' is not a number"),
        ("1,2\n\n3,1_0\n", {"header": False}, "line 3, column 2: '1_0' is not a number"),
        ("a,b\n1,2\n3\n", {}, "line 3 has 1 cells, line 1 has 2"),
        ("1,5;2,5\n3,5;4,5\n", {}, "cannot tell whether ',' or ';' separates the cells; --delimiter"),
        ("who,2019\nann,1\n", {}, "cannot tell whether the first line holds names; --header or --no-header"),
        (
            "a,b\n1,2\n",
            {"index": "c"},
            "--index-col: there is no column 'c' among the 2, the names are 'a', 'b'",
        ),
        ("1,2\n", {"index": "3"}, "--index-col: there is no column '3' among the 2"),
        ("", {}, "there are no numbers in it"),
        ("a,b\n", {}, "there are no numbers in it"),
        (b"\xff\xfe1,2", {}, "expected text in UTF-8 (invalid start byte at byte 0)"),
        ('a,b\n"1,2\n', {}, "cannot be read as .csv"),
    ],
)
def test_a_text_that_cannot_be_read(content, how, message, tmp_path):
    with pytest.raises(TableError) as caught:
        read(tmp_path / "a.csv", content, **how)
    assert str(caught.value).startswith(f"{tmp_path / 'a.csv'}: ")
    assert message in str(caught.value)


# --- arrays ---


def test_what_a_sparse_matrix_stores_is_observed(tmp_path):
    stored = scipy.sparse.coo_array(([5.0, 0.0], ([0, 1], [1, 0])), shape=(2, 2))
    expected = [[NAN, 5], [0, NAN]]
    scipy.io.mmwrite(tmp_path / "a.mtx", stored)
    np.testing.assert_array_equal(tables.read(tmp_path / "a.mtx").values, expected)
    scipy.sparse.save_npz(tmp_path / "a.npz", stored)
    np.testing.assert_array_equal(tables.read(tmp_path / "a.npz").values, expected)


def test_a_symmetric_matrix_is_read_on_both_sides(tmp_path):
    text = "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n2 1 4.0\n"
    table = read(tmp_path / "a.mtx", text)
    np.testing.assert_array_equal(table.values, [[NAN, 4], [4, NAN]])


def test_one_of_several_arrays(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, first=np.eye(2), second=np.ones((1, 2)), line=np.ones(3))
    with pytest.raises(TableError, match="expected one matrix, found the matrices first, second; --array"):
        tables.read(path)
    with pytest.raises(TableError, match="--array: there is no array 'third'; there are first, second, line"):
        tables.read(path, Reading(array="third"))
    np.testing.assert_array_equal(tables.read(path, Reading(array="second")).values, [[1, 1]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npy", np.ones(3), r"expected a matrix, found an array of shape \(3,\)"),
        ("a.npy", np.ones((2, 2), dtype=complex), "expected real numbers, found dtype complex128"),
        ("a.npy", np.ones((0, 2)), "there are no numbers in it"),
        ("a.npy", b"no array", "cannot be read as .npy"),
        ("a.npz", b"no archive", "cannot be read as .npz"),
        ("a.mtx", b"no matrix", "expected a first line such as: %%MatrixMarket"),
        ("a.mtx", b"%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1\n", "not their values"),
        ("a.csv.gz", b"not packed", "cannot be read as .csv.gz"),
        ("a.csv.gz", gzip.compress(b"1,2\n" * 999, mtime=0)[:-20], "cannot be read as .csv.gz"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(name, content, message, tmp_path):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    with pytest.raises(TableError, match=message) as caught:
        tables.read(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_pickles_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[None, "x"]]), allow_pickle=True)
    with pytest.raises(TableError, match=r"cannot be read as \.npy"):
        tables.read(tmp_path / "a.npy")


def test_a_saved_result_is_no_table(tmp_path):
    airnp.fit(np.eye(3), max_iter=1, stop=None, seed=0).save(tmp_path / "a.npz")
    with pytest.raises(TableError, match="is a result saved by airnp, not a table"):
        tables.read(tmp_path / "a.npz")


def test_an_unknown_suffix():
    with pytest.raises(TableError, match=r"table\.xls: expected a name that ends in one of \.csv, "):
        tables.kind_of(Path("table.xls"))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        tables.read(tmp_path / "a.csv")


# --- parquet ---


@needs_pyarrow
def test_parquet_of_pandas(tmp_path):
    path = tmp_path / "a.parquet"
    days = pd.date_range("2020-01-01", periods=2, name="day")
    frame = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "x": [0.5, NAN]}, index=days)
    frame.to_parquet(path)
    table = tables.read(path)
    np.testing.assert_array_equal(table.values, [[1, 0.5], [NAN, NAN]])
    assert table.corner == "day"

    table.values[1] = 7.0, 0.25
    write(path, table)
    back = pd.read_parquet(path)
    assert back.index.equals(days)
    assert [kind.kind for kind in back.dtypes] == ["i", "f"]


@needs_pyarrow
def test_parquet_of_float32(tmp_path):
    write(tmp_path / "a.parquet", Table(np.float32([[0.1, NAN]])))
    back = tables.read(tmp_path / "a.parquet")
    assert back.values.dtype == np.float32
    np.testing.assert_array_equal(back.values, np.float32([[0.1, NAN]]))


@needs_pyarrow
def test_parquet_text_columns(tmp_path):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"who": ["ann"], "x": [1.0]}).to_parquet(path)
    assert labels(tables.read(path).rows) == ["ann"]
    pd.DataFrame({"x": [1.0], "who": ["ann"]}).to_parquet(path)
    with pytest.raises(TableError, match=r"these columns are not numbers: 'who' \(--index-col"):
        tables.read(path)
    assert labels(tables.read(path, Reading(index="who")).rows) == ["ann"]
    with pytest.raises(TableError, match="two columns of the same name"):
        tables.write(io.BytesIO(), ".parquet", Table(VALUES, columns=["a", "a", "b"]))


# --- the table itself ---


def test_whole_columns():
    table = Table(np.array([[1.0, 0.5, NAN], [NAN, 2.0, NAN]]))
    assert table.whole.tolist() == [True, False, False]


def test_places_have_names():
    assert Table(VALUES).place(0, 1) == "row 1, column 2"
    assert Table(VALUES, ["a", "b", "c"], ["x", "y", "z"]).place(2, 0) == "row 'c', column 'x'"


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [float, np.int64])
def test_matrix_market_files_are_read_as_scipy_reads_them(tmp_path, symmetry, sparse, dtype):
    rng = np.random.default_rng(0)
    matrix = rng.integers(-9, 9, (5, 5)).astype(dtype)
    matrix = {"general": matrix[:, :4], "symmetric": matrix + matrix.T, "skew-symmetric": matrix - matrix.T}[
        symmetry
    ]
    path = tmp_path / "a.mtx"
    scipy.io.mmwrite(
        path, scipy.sparse.coo_array(matrix) if sparse else matrix, symmetry=symmetry, comment="x\ny"
    )
    found = tables.read(path)
    expected = np.where(matrix == 0, np.nan, matrix) if sparse else matrix
    np.testing.assert_array_equal(found.values, expected)
