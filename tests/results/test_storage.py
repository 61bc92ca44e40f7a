"""Results on disk: what comes back is what was saved, and whatever else comes along is refused."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator

import airnp
from airnp import AdaptiveLaplacian, FixedLaplacian, TotalVariation
from tests.equality import assert_same

RNG = np.random.default_rng(11)
TRUTH = RNG.random((6, 2)) @ RNG.random((2, 5)) * 9 + 1
MASK = RNG.random(TRUTH.shape) < 0.75
PATH_GRAPH = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)


def fit(Y: Any = TRUTH, mask: Any = MASK, **options: Any) -> airnp.FitResult:
    return airnp.fit(Y, mask, **{"max_iter": 12, "stop": None, "seed": 5, **options})


def operator_result() -> airnp.FitResult:
    A = np.random.default_rng(0).standard_normal((20, TRUTH.size))
    return fit(A @ TRUTH.ravel(), None, operator=airnp.Operator(aslinearoperator(A), TRUTH.shape))


RESULTS = {
    "AIR": lambda: fit(),
    "AIR, float32": lambda: fit(dtype="float32", record=airnp.Record(truth=TRUTH)),
    "AIR, held out": lambda: fit(stop="auto"),
    "all adjacencies": lambda: fit(
        regularizers=[
            AdaptiveLaplacian("rows", 1e-3, "global"),
            AdaptiveLaplacian("columns", 1e-3, "product"),
            AdaptiveLaplacian(airnp.Blocks(3, 5)),
        ]
    ),
    "DMF": lambda: fit(regularizers=[], depth=1),
    "DMF, deep and thin": lambda: fit(regularizers=[], depth=5, rank=2),
    "TV": lambda: fit(regularizers=[TotalVariation(1e-3), TotalVariation(1e-3, "quadratic")]),
    "fixed graph": lambda: fit(regularizers=[FixedLaplacian(PATH_GRAPH), AdaptiveLaplacian("columns")]),
    "sparse graph": lambda: fit(regularizers=[FixedLaplacian(scipy.sparse.csr_array(PATH_GRAPH))]),
    "covariance graph": lambda: fit(regularizers=[airnp.DirichletEnergy("columns")]),
    "stack": lambda: fit(np.stack([TRUTH, TRUTH**2])),
    "stack of stacks": lambda: fit(np.stack([TRUTH, TRUTH**2])[:, None], stop="auto"),
    "operator": operator_result,
    "nothing done": lambda: interrupted_at_once(),
}


def interrupted_at_once() -> airnp.FitResult:
    def stop(iteration: int, state: Any) -> None:
        raise KeyboardInterrupt

    return fit(callback=stop)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "result.npz"
    fit(regularizers=[AdaptiveLaplacian("rows"), TotalVariation(1e-3)]).save(path)
    return path


# --------------------------------------------------------------------------------------------- there and back


@pytest.mark.parametrize("name", RESULTS)
def test_what_comes_back_is_what_was_saved(name, tmp_path):
    result = RESULTS[name]()
    path = tmp_path / "result.npz"
    result.save(path)
    loaded = airnp.load(path)
    assert_same(result, loaded)
    assert type(loaded.best_iter) is type(result.best_iter)
    assert repr(loaded) == repr(result)
    if result.mask is None:
        with pytest.raises(ValueError, match="operator"):
            loaded.completed()
    else:
        assert_same(loaded.completed(), result.completed())
    loaded.save(tmp_path / "again.npz")
    assert_same(result, airnp.load(tmp_path / "again.npz"))


def test_results_of_other_namespaces_come_back_in_numpy(backend, tmp_path):
    result = airnp.fit(backend.array(TRUTH), backend.array(MASK), stop=None, max_iter=4, seed=1)
    result.save(tmp_path / "a.npz")
    assert_same(airnp.load(tmp_path / "a.npz"), result.to_numpy())


@pytest.mark.parametrize("name", RESULTS)
def test_nothing_is_pickled(name, tmp_path):
    path = tmp_path / "result.npz"
    RESULTS[name]().save(path)
    with np.load(path, allow_pickle=False) as archive:
        for member in archive.files:
            assert archive[member].dtype.kind in "biufU", member
    for member in zipfile.ZipFile(path).infolist():
        assert member.filename.endswith(".npy")


@pytest.mark.parametrize("kind", [str, Path, os.fsencode])
@pytest.mark.parametrize("name", ["a.npz", "no suffix", "α.result"])
def test_paths_are_taken_as_they_are(kind, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit().save(kind(name))
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert airnp.load(kind(name)).seed == 5


# ----------------------------------------------------------------------------------------------------- labels

INDICES = {
    "text": pd.Index(list("abcdef"), name="letters"),
    "whole numbers": pd.Index([5, 3, 1, -2, 2**40, 0]),
    "range": pd.RangeIndex(10, 16, name="n"),
    "unsigned": pd.Index(np.arange(6, dtype=np.uint8)),
    "numbers": pd.Index([0.1, -1e300, np.inf, 2.5, 1 / 3, 0.0]),
    "not a number": pd.Index([0.1, np.nan, 1, 2, 3, 4]),
    "booleans and text": pd.Index([True, "b", 2, 2.5, None, "f"], dtype=object),
    "days": pd.date_range("2024-02-27", periods=6, name="day"),
    "nanoseconds": pd.DatetimeIndex(np.array([0, 1, 2, 3, 4, -5], "M8[ns]")),
    "time zone": pd.date_range("2024-10-26 22:00", periods=6, freq="h", tz="Europe/Berlin"),
    "offset": pd.date_range("2024-10-26", periods=6, tz="+05:30"),
    "no time": pd.DatetimeIndex(["2024-01-01", None, "2024-01-03", "2024-01-04", "2024-01-05", "2024-01-06"]),
    "durations": pd.to_timedelta(np.arange(6), unit="min"),
    "months": pd.period_range("2023-11", periods=6, freq="M"),
    "missing": pd.Index([1, None, 3, 4, 5, 6], dtype="Int64"),
    "levels": pd.MultiIndex.from_product(
        [["x", "y"], pd.date_range("2024", periods=3)], names=["letter", "day"]
    ),
    "three levels": pd.MultiIndex.from_arrays([[1, 1, 1, 2, 2, 2], list("aabbcc"), np.arange(6) / 7]),
    "pairs": pd.Index([(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (6, "f")], tupleize_cols=False),
}


def assert_same_index(a: pd.Index, b: pd.Index) -> None:
    """Equal labels of equal types and names; a date's frequency and RangeIndex are short forms only."""
    assert a.equals(b)
    assert a.names == b.names
    assert a.nlevels == b.nlevels
    for level in range(a.nlevels):
        assert a.get_level_values(level).dtype == b.get_level_values(level).dtype


@pytest.mark.parametrize("name", INDICES)
def test_labels_come_back(name, tmp_path):
    index = INDICES[name]
    frame = pd.DataFrame(np.where(MASK, TRUTH, np.nan), index=index, columns=["p", "q", "r", "s", "t"])
    result = fit(frame, None)
    result.save(tmp_path / "a.npz")
    loaded = airnp.load(tmp_path / "a.npz")
    assert loaded.X.equals(result.X)
    assert loaded.completed().equals(result.completed())
    assert_same_index(loaded.index, index)
    assert_same_index(loaded.columns, frame.columns)
    wide = fit(frame.T, None)
    wide.save(tmp_path / "b.npz")
    assert_same_index(airnp.load(tmp_path / "b.npz").X.columns, index)


@pytest.mark.parametrize(
    "index",
    [
        pd.interval_range(0, 6),
        pd.CategoricalIndex(pd.interval_range(0, 6)),
        pd.Index([pd.Timestamp("2024-01-01").date(), "b", 3, Path("c"), "e", "f"]),
    ],
    ids=["intervals", "categories", "objects"],
)
def test_labels_that_are_neither_text_nor_numbers_nor_times_come_back_as_text(index, tmp_path):
    result = fit(pd.DataFrame(TRUTH, index=index), MASK)
    result.save(tmp_path / "a.npz")
    back = airnp.load(tmp_path / "a.npz").index
    assert back.map(str).tolist() == index.map(str).tolist()


# ----------------------------------------------------------------------------------------------------- damage


def read_or_refuse(content: bytes, path: Path) -> airnp.FitResult | None:
    """The result in a file with this content, or None where it is refused as it should be."""
    path.write_bytes(content)
    try:
        return airnp.load(path)
    except ValueError as error:
        message = str(error)
    assert message.startswith(f"{path}: not a result saved by airnp, or damaged (")
    return None


def test_a_file_that_was_cut_off_is_refused(saved, tmp_path):
    whole = saved.read_bytes()
    places = {*range(0, len(whole), 61), *range(40), *range(len(whole) - 60, len(whole))}
    for size in sorted(places):
        assert read_or_refuse(whole[:size], tmp_path / "damaged.npz") is None, f"cut off at {size}"


def test_a_damaged_byte_is_never_believed(saved, tmp_path):
    """Zip keeps a checksum of each array; what it does not cover decides nothing."""
    whole, result = saved.read_bytes(), airnp.load(saved)
    directory = whole.rindex(b"PK\x01\x02")
    last_header = whole.rindex(b"PK\x03\x04")
    chosen = np.random.default_rng(0).integers(0, len(whole), 250).tolist()
    places = {*chosen, *range(60), *range(last_header, last_header + 60), *range(directory, len(whole))}
    harmless = 0
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        loaded = read_or_refuse(bytes(damaged), tmp_path / "damaged.npz")
        if loaded is not None:
            assert_same(loaded, result)
            harmless += 1
    assert harmless < len(places) / 3


def test_a_damaged_block_is_never_believed(saved, tmp_path):
    whole, result = saved.read_bytes(), airnp.load(saved)
    for start in range(0, len(whole), 128):
        damaged = whole[:start] + bytes(128) + whole[start + 128 :]
        loaded = read_or_refuse(damaged, tmp_path / "damaged.npz")
        if loaded is not None:
            assert_same(loaded, result)


def archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def edited(saved: Path, **changes: Any) -> bytes:
    """The file with another header."""
    with np.load(saved) as stored:
        arrays = dict(stored)
    header = {**json.loads(str(arrays["header"])), **changes}
    return archive(**{**arrays, "header": np.asarray(json.dumps(header))})


def without(saved: Path, name: str) -> bytes:
    with np.load(saved) as stored:
        return archive(**{key: stored[key] for key in stored.files if key != name})


def compressed(saved: Path) -> bytes:
    buffer = io.BytesIO()
    with np.load(saved) as stored:
        np.savez_compressed(buffer, **dict(stored))
    return buffer.getvalue()


def plain_npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, TRUTH)
    return buffer.getvalue()


FOREIGN = {
    "empty": lambda saved: b"",
    "text": lambda saved: b"iteration,loss\n1,0.5\n" * 100,
    "zeros": lambda saved: bytes(1000),
    "npy": lambda saved: plain_npy(),
    "npz": lambda saved: archive(a=TRUTH, b=MASK),
    "empty npz": lambda saved: archive(),
    "npz with a header": lambda saved: archive(header=np.asarray("abc"), matrix=TRUTH),
    "npz with a JSON header": lambda saved: archive(header=np.asarray('{"format": "theirs"}'), matrix=TRUTH),
    "npz with a list for a header": lambda saved: archive(header=np.asarray("[1, 2]"), matrix=TRUTH),
    "other format": lambda saved: edited(saved, format="theirs"),
    "next version": lambda saved: edited(saved, version=2),
    "too deep": lambda saved: edited(saved, depth=7),
    "no depth": lambda saved: edited(saved, depth="x"),
    "odd regularizer": lambda saved: edited(saved, regularizers=[["rows"]]),
    "no mask": lambda saved: without(saved, "mask"),
    "no matrix": lambda saved: without(saved, "matrix"),
    "no header": lambda saved: without(saved, "header"),
    "no parameter": lambda saved: without(saved, "regularizer_0_parameter"),
    "compressed by others": compressed,
    "twice": lambda saved: saved.read_bytes() * 2,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused(name, saved, tmp_path):
    result = airnp.load(saved)
    loaded = read_or_refuse(FOREIGN[name](saved), tmp_path / "foreign.npz")
    if name == "twice":  # two whole archives: zip reads the last one
        assert loaded is None or assert_same(loaded, result) is None
    else:
        assert loaded is None


def test_versions_and_formats_are_told(saved, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(edited(saved, version=99))
    with pytest.raises(ValueError, match="its version is 99, this airnp reads 1"):
        airnp.load(path)
    path.write_bytes(edited(saved, format="theirs"))
    with pytest.raises(ValueError, match="its format is 'theirs'"):
        airnp.load(path)


def test_a_pickle_in_disguise_is_not_opened(saved, tmp_path):
    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    with np.load(saved) as stored:
        arrays = dict(stored)
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, "matrix": np.array([Trap()], dtype=object)})
    assert read_or_refuse(buffer.getvalue(), tmp_path / "trap.npz") is None
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_file_says_so_itself(tmp_path):
    with pytest.raises(FileNotFoundError):
        airnp.load(tmp_path / "nothing.npz")
    with pytest.raises(IsADirectoryError):
        airnp.load(tmp_path)


# ---------------------------------------------------------------------------------------------- atomic writes


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("failing", ["savez", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(saved, monkeypatch, failing, error):
    before = saved.read_bytes()

    def fail(*arguments: Any, **keywords: Any) -> None:
        if failing == "savez":
            arguments[0].write(b"half of it")
        raise error

    result = fit(seed=6)
    with monkeypatch.context() as patch:
        patch.setattr(np if failing == "savez" else os, failing, fail)
        with pytest.raises(type(error)):
            result.save(saved)
    assert saved.read_bytes() == before
    assert [entry.name for entry in saved.parent.iterdir()] == [saved.name]
    result.save(saved)
    assert airnp.load(saved).seed == 6


def test_a_file_is_replaced_in_one_step(saved, monkeypatch):
    """At the moment of the switch the new content is complete, and the old one is still in place."""
    before, switch = saved.read_bytes(), os.replace

    def watched(source: Any, target: Any) -> None:
        assert airnp.load(source).seed == 6
        assert Path(target).read_bytes() == before
        assert Path(source).parent == Path(target).parent  # another file system would need a copy
        switch(source, target)

    monkeypatch.setattr(os, "replace", watched)
    fit(seed=6).save(saved)
    assert airnp.load(saved).seed == 6


def test_saving_where_nothing_can_be_saved(tmp_path):
    with pytest.raises(FileNotFoundError):
        fit().save(tmp_path / "no" / "a.npz")
    with pytest.raises(IsADirectoryError):
        fit().save(tmp_path)
    assert list(tmp_path.iterdir()) == []
