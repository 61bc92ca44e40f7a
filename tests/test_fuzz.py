"""Every public entry on drawn arguments: an error that names one of them, or a result as promised.

``pytest tests/test_fuzz.py`` runs the same few examples each time;
``AIRNP_FUZZ_SECONDS=3600 pytest -m fuzz`` others, for an hour.
"""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2  # noqa: F401  # changes the environment when it is first imported
import numpy as np
import pandas as pd
import scipy.sparse as sp
from hypothesis import assume
from hypothesis import strategies as st
from PIL import Image

import airnp
from airnp import baselines, masks, metrics, tables
from airnp.commands.main import main
from airnp.images import formats
from airnp.sklearn import AIRImputer
from airnp.tables import triples
from airnp.tables.sheets import read_sheet
from airnp.tables.text import read_text
from tests.fuzzing import Data, Frozen, fuzzed, laid_out, matrices, options, refused, same_bits
from tests.strategies import seeds

QUICK = {"max_iter": 12, "stop": None}


# --- airnp.fit ---

GRAPHS = [
    [],
    None,
    [airnp.AdaptiveLaplacian("rows", adjacency="global")],
    [airnp.AdaptiveLaplacian("columns", 0.0), airnp.TotalVariation()],
    [airnp.TotalVariation(1.0, "quadratic"), airnp.DirichletEnergy("rows")],
    [airnp.AdaptiveLaplacian(airnp.Blocks(2, 2))],
    [airnp.WeightDecay(0.1)],
    ["rows"],
    "auto",
]
FIT_OPTIONS = {
    "regularizers": (GRAPHS[:6], GRAPHS[6:]),
    "depth": ([1, 2, 4], [0, 200, 2.5, True]),
    "rank": ([None, 1], [99, 0, "all"]),
    "stop": ([None, "auto", airnp.HeldOut(every=5), airnp.EnergyChange(1e-3)], ["never"]),
    "learning_rate": ([1e-2, 1e3], [0.0, -1.0, float("nan")]),
    "init": (["gaussian", "balanced", airnp.Gaussian(0.0, 1.0)], ["zeros", [np.ones((1, 1))]]),
    "dtype": ([None, "float32", "float64"], [np.float16, "int8", "text"]),
    "engine": (["auto", "cpu", "reference", airnp.CPU(threads=2)], ["gpu", 3]),
    "fidelity": ([None, airnp.Squared("sum"), airnp.Huber(0.5)], ["huber"]),
    "optimizer": (["adam", airnp.GradientDescent(), airnp.Adam(second_moment="matrix")], ["sgd"]),
    "bounds": (
        [None, (-1e300, 1e300), (-1e300, None)],
        [(5, 2), (0, 1), airnp.Integers(0, 9), (0, float("nan"))],
    ),
    "normalize": ([True, False], ["yes"]),
    "record": ([None, 1, 5], [0]),
    "max_iter": ([1, 30], [0, -1, 2.0]),
}
cases = st.tuples(matrices(), options(**FIT_OPTIONS), st.integers(0, 3))


@fuzzed(60, cases)
def test_fit(case: Any) -> None:
    data, chosen, seed = case
    before = Frozen(data.Y, data.mask)
    arguments = {**QUICK, **chosen, "seed": seed}
    result = refused(lambda: airnp.fit(data.Y, data.mask, **arguments))
    before.check()
    if result is None:
        return
    _check_fit(data, result.to_numpy())
    again = airnp.fit(data.Y, data.mask, **arguments).to_numpy()
    same_bits(again.X, result.to_numpy().X)


def _check_fit(data: Data, result: Any) -> None:
    X, completed = np.asarray(result.X), np.asarray(result.completed())
    assert X.shape == data.values.shape
    assert np.isfinite(X).all(), "X is not finite"
    np.testing.assert_array_equal(np.asarray(result.mask), data.observed)
    expected = data.values[data.observed].astype(X.dtype)
    same_bits(completed[data.observed] + 0, expected + 0)
    same_bits(completed[~data.observed], X[~data.observed])
    if result.bounds is not None:
        assert (result.bounds.low <= X).all()
        assert (result.bounds.high >= X).all()


@fuzzed(12, matrices(least=2), st.sampled_from([-40, -3, 2, 40]), st.sampled_from([0.0, 1.0, -7.0]), seeds)
def test_fit_is_equivariant(data: Data, power: int, shift: float, seed: int) -> None:
    values, observed = data.values, data.observed
    size = np.abs(values[observed]).max()
    assume(1e-20 < size < 1e20 and np.ptp(values[observed]) > 1e-6 * size)
    plain = airnp.fit(values, observed, seed=seed % 9, **QUICK).X
    # A power of two changes no digit, so nothing may change but the power.
    same_bits(airnp.fit(values * 2.0**power, observed, seed=seed % 9, **QUICK).X, plain * 2.0**power)
    moved = airnp.fit(values + shift * size, observed, seed=seed % 9, **QUICK).X
    np.testing.assert_allclose(moved, plain + shift * size, atol=1e-6 * size * (1 + abs(shift)))


@fuzzed(12, matrices(least=2), seeds)
def test_fit_follows_permutations(data: Data, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, observed = np.where(data.observed, data.values, 0), data.observed
    assume(np.ptp(values[observed]) > 1e-6 * np.abs(values[observed]).max() > 1e-290)
    m, n = values.shape
    rank = min(m, n)
    shapes = [(rank, n), (rank, rank), (m, rank)]
    factors = [rng.standard_normal(shape) for shape in shapes]
    rows, columns = rng.permutation(m), rng.permutation(n)
    turned = [factors[0][:, columns], factors[1], factors[2][rows]]
    plain = {"regularizers": [], **QUICK}
    X = airnp.fit(values, observed, init=factors, **plain).X
    permuted = airnp.fit(values[rows][:, columns], observed[rows][:, columns], init=turned, **plain).X
    np.testing.assert_allclose(permuted, X[rows][:, columns], atol=1e-6 * np.abs(X).max())


@fuzzed(10, matrices(least=2), st.sampled_from(GRAPHS[:5]), st.integers(0, 5))
def test_a_stack_is_its_matrices(data: Data, graphs: Any, seed: int) -> None:
    values, observed = np.where(data.observed, data.values, 0), data.observed
    arguments = {"regularizers": graphs, "seed": seed, **QUICK}
    single = refused(lambda: airnp.fit(values, observed, **arguments))
    stack = np.stack([values, 2 * values])
    together = refused(lambda: airnp.fit(stack, np.stack([observed, observed]), **arguments))
    assert (single is None) == (together is None)
    if single is None:
        return
    size = np.abs(single.X).max() or 1.0
    np.testing.assert_allclose(together.X[0], single.X, atol=1e-6 * size)


# --- airnp.fit_sparse, airnp.fit_ratings ---

SPARSE_OPTIONS = {
    "regularizers": (
        [None, [], [airnp.AdaptiveLaplacian("rows", candidates=airnp.Nearest(2))], GRAPHS[6]],
        [GRAPHS[3]],
    ),
    "offsets": ([False, True, 3.0], [-1.0, "yes"]),
    "mask_factor": ([None, "rows", "both"], ["all"]),
    "depth": ([2, 3], [1, 0]),
    "batch_size": ([None, 1, 3], [0]),
    "stop": ([None, "auto", airnp.HeldOut(every=5)], ["never"]),
    "dtype": ([None, "float32", "float64"], ["int8"]),
    "bounds": ([None, (-1e300, 1e300)], [(0, 1), airnp.Integers(0, 100)]),
    "engine": (["auto", "reference"], ["cuda"]),
    "normalize": ([True, False], ["yes"]),
}
SPARSE = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")


@st.composite
def sparse_matrices(draw: st.DrawFn) -> Any:
    """A sparse matrix of some format, and the dense array and mask of what it stores."""
    data = draw(matrices(containers=("array",), least=2))
    kind = draw(st.sampled_from(SPARSE))
    observed = data.observed.copy()
    values = np.where(observed, data.values, 0)
    if kind in ("bsr", "dia", "lil", "dok"):
        observed &= values != 0  # these do not keep zeros apart from what they do not store
    return values, observed, _sparse(values, observed).asformat(kind), kind


def _sparse(values: np.ndarray, observed: np.ndarray) -> Any:
    places = np.nonzero(observed)
    return sp.coo_array((values[places], places), shape=values.shape)


@fuzzed(40, sparse_matrices(), options(**SPARSE_OPTIONS), st.integers(1, 3))
def test_fit_sparse(drawn: Any, chosen: Any, rank: int) -> None:
    values, observed, S, _ = drawn
    before = Frozen(S)
    arguments = {**QUICK, "seed": rank, **chosen}
    result = refused(lambda: airnp.fit_sparse(S, rank, **arguments))
    before.check()
    if result is None:
        return
    X = result.X
    assert X.shape == values.shape
    assert np.isfinite(X).all()
    rows, columns = np.indices(X.shape)
    predicted = result.predict(rows.ravel(), columns.ravel())
    np.testing.assert_allclose(predicted, X.ravel(), atol=1e-5 * (np.abs(X).max() or 1))
    same_bits(airnp.fit_sparse(_sparse(values, observed).tocsr(), rank, **arguments).X, X)


@fuzzed(
    15, sparse_matrices(), st.sampled_from([None, 1, 2, 50]), st.sampled_from([None, (0, 1), (-1e300, 1e300)])
)
def test_fit_ratings(drawn: Any, rank: Any, bounds: Any) -> None:
    _, _, R, _ = drawn
    before = Frozen(R)
    arguments = {"rank": rank, "bounds": bounds, "max_iter": 12, "seed": 0}
    model = refused(lambda: airnp.fit_ratings(R, **arguments))
    before.check()
    if model is not None:
        assert np.isfinite(model.X).all()
        same_bits(airnp.fit_ratings(R, **arguments).X, model.X)


# --- pictures ---


@st.composite
def pictures(draw: st.DrawFn) -> Any:
    """A picture of some shape and dtype, and a mask of it."""
    rng = np.random.default_rng(draw(seeds))
    height, width = draw(st.integers(1, 18)), draw(st.integers(1, 18))
    colours = draw(st.sampled_from([(), (), (3,), (4,), (1,)]))
    dtype = np.dtype(
        draw(st.sampled_from(["uint8", "uint8", "uint16", "float32", "float64", "int32", "bool"]))
    )
    smooth = np.add.outer(np.arange(height), np.arange(width)) / max(1, height + width - 2)
    noisy = draw(st.sampled_from([0.0, 0.1, 1.0]))
    picture = (1 - noisy) * smooth[(..., *[None] * len(colours))] + noisy * rng.random(
        (height, width, *colours)
    )
    if dtype.kind in "iu":
        picture = picture * min(np.iinfo(dtype).max, 10**6)
    elif dtype.kind == "f":
        picture = picture * draw(st.sampled_from([1.0, 1e-20, 1e20]))
    mask = rng.random((height, width)) < draw(st.sampled_from([0.2, 0.7, 1.0]))
    if draw(st.booleans()):
        mask[: height // 2, : width // 2] = False
    mask[-1, -1] = True
    image = laid_out(picture.astype(dtype), draw(st.sampled_from(["C", "read-only"])))
    return (
        image,
        draw(st.sampled_from([mask, mask.astype(np.uint8) * np.uint8(255), mask.astype(float)])),
        mask,
    )


PICTURE_OPTIONS = {
    "method": (["auto", "patches", "biharmonic", "linear"], ["telea"]),
    "patch": ([3, 5], [99, 0]),
    "search": ([2, 4], [0]),
    "neighbours": ([2, 6], [0]),
    "channel_axis": (["auto"], [-1, None, 7]),
    "bounds": ([None, (None, 1e30)], [(0, 1), (3, 1)]),
    "threads": ([None, 1, 2], [0]),
    "seed": ([0, 1], [-1]),
    "time_limit": ([None, 1e-9], [0.0, -1.0]),
}


@fuzzed(12, pictures(), options(**PICTURE_OPTIONS))
def test_inpaint(drawn: Any, chosen: Any) -> None:
    image, mask, observed = drawn
    before = Frozen(image, mask)
    arguments = {"quality": "fast", **chosen}
    filled = refused(lambda: airnp.inpaint(image, mask, **arguments))
    before.check()
    if filled is None:
        return
    assert filled.dtype == image.dtype
    assert filled.shape == image.shape
    assert np.isfinite(filled).all()
    if "channel_axis" not in chosen or chosen["channel_axis"] == "auto":
        same_bits(filled[observed], np.ascontiguousarray(image)[observed])
    if "time_limit" not in chosen:
        same_bits(airnp.inpaint(image, mask, **arguments), filled)


@fuzzed(60, st.binary(max_size=60), st.sampled_from(["PNG", "TIFF", "JPEG", "BMP", "WEBP"]), seeds)
def test_picture_files(noise: bytes, kind: str, seed: int) -> None:
    content = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8)).save(content, format=kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"picture.{kind.lower()}").with_suffix(".png")
        path.write_bytes(_damaged(content.getvalue(), noise, seed))
        try:
            picture = formats.read(path)
        except formats.PictureError:
            return
        assert picture.pixels.dtype in (np.uint8, np.uint16)


def _damaged(content: bytes, noise: bytes, seed: int) -> bytes:
    """Return a file with some bytes replaced, cut off or put in."""
    rng = np.random.default_rng(seed)
    way = rng.integers(4)
    place = int(rng.integers(len(content)))
    if way == 0:
        return content[:place]
    if way == 1:
        return content[:place] + noise + content[place:]
    changed = bytearray(content)
    for number, byte in enumerate(noise[: 1 + way]):
        changed[(place + 37 * number) % len(changed)] = byte
    return bytes(changed)


# --- tables ---


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """A table with columns of different kinds and gaps."""
    rng = np.random.default_rng(draw(seeds))
    n = draw(st.integers(2, 25))
    kinds = {
        "float": lambda: rng.standard_normal(n) * draw(st.sampled_from([1.0, 1e9, 1e-9])),
        "offset": lambda: 1e6 + rng.random(n),
        "constant": lambda: np.full(n, 3.0),
        "int": lambda: pd.array(rng.integers(-5, 50, n), dtype="Int64"),
        "float32": lambda: rng.random(n).astype(np.float32),
        "bool": lambda: pd.array(rng.random(n) < 0.5, dtype="boolean"),
        "word": lambda: rng.choice(["x", "y", "z"], n).astype(object),
        "category": lambda: pd.Categorical(rng.choice(["low", "high"], n)),
        "date": lambda: pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 999, n), "D"),
        "empty": lambda: np.full(n, np.nan),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=6))
    frame = pd.DataFrame({f"{kind} {place}": kinds[kind]() for place, kind in enumerate(chosen)})
    share = draw(st.sampled_from([0.0, 0.2, 0.6]))
    frame = frame.mask(rng.random(frame.shape) < share)
    if draw(st.booleans()):
        frame.index = rng.permutation(n) + 100
    return frame


IMPUTER_OPTIONS = {
    "method": (["auto", "em", "local", "air"], ["knn"]),
    "keep_empty_features": ([True], []),
    "add_indicator": ([True], []),
    "sample_posterior": ([True], []),
    "identifiers": ([[], "auto"], ["none"]),
    "bounds": ([None, "data"], [(0, 1)]),
    "integers": ([None, "auto"], [True, "all"]),
    "random_state": ([1], [-1]),
}


@fuzzed(25, frames(), options(**IMPUTER_OPTIONS))
def test_imputer(frame: pd.DataFrame, chosen: Any) -> None:
    before = Frozen(frame)
    arguments = {"random_state": 0, **chosen}
    if arguments.get("method") == "air":
        arguments["max_iter"] = 10

    def fill() -> Any:
        return AIRImputer(**arguments).fit_transform(frame)

    filled = refused(fill)
    before.check()
    if filled is None or arguments.get("add_indicator"):
        return
    again = fill()
    if isinstance(filled, np.ndarray):
        same_bits(filled, again)
        return
    assert filled.equals(again)
    assert filled.index.equals(frame.index)
    for name in filled.columns:
        known = frame[name].notna()
        assert (filled[name][known] == frame[name][known]).all(), f"observed cells of {name!r} changed"
        if known.any():
            assert filled[name].notna().all(), f"gaps in {name!r} are left"
        assert filled[name].dtype == frame[name].dtype or name.startswith("empty")


CELLS = st.one_of(
    st.sampled_from(
        [
            "",
            "1",
            "2.50",
            "-3e2",
            "007",
            "?",
            "nan",
            "x",
            "1,5",
            "1.234,5",
            "10%",
            "2020-01-02",
            "2020-13-99",
            "0001-01-01",
            "inf",
        ]
    ),
    st.sampled_from(
        ["1234567890123456789", '"a', "1_0", "0x1F", "１", "1 000", "\x00", "é", "-", "+5", "1e400"]
    ),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.3g}"),
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A text file with cells of all kinds, mostly a table."""
    width, delimiter = draw(st.integers(1, 4)), draw(st.sampled_from([",", ";", "\t", " "]))
    column = [draw(st.sampled_from([CELLS, st.integers(0, 99).map(str)])) for _ in range(width)]
    header = [[draw(st.sampled_from(["a", "b", "", "1999", "user id"])) for _ in range(width)]]
    lines = header * draw(st.integers(0, 1))
    lines += [[draw(cell) for cell in column] for _ in range(draw(st.integers(0, 7)))]
    text = draw(st.sampled_from(["\n", "\r\n"])).join(delimiter.join(line) for line in lines)
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text.encode("utf-8")


@fuzzed(80, st.one_of(texts(), st.binary(max_size=80)), st.sampled_from([None, True, False]))
def test_text_readers(content: bytes, header: Any) -> None:
    reading = tables.Reading(header=header)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table.csv")
        path.write_bytes(content)
        try:
            table = tables.read(path, reading)
        except tables.TableError:
            table = None
        if table is not None:
            kept = io.BytesIO()
            observed = table.observed
            tables.write(kept, ".tsv", replace(table, kept=observed))
            again = read_text(
                io.BytesIO(kept.getvalue()), tables.Reading(header=table.columns is not None), "\t"
            )
            assert again.values.shape == table.values.shape
            assert (again.cells[observed] == table.cells[observed]).all()
        with suppress(tables.TableError):
            read_sheet(path, reading)
        with suppress(tables.TableError):
            triples.read(path)


@cache
def _table_files() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    array, found = rng.random((5, 4)), {}
    frame = pd.DataFrame(array, columns=list("abcd"))
    for suffix in (".npy", ".npz", ".mtx", ".parquet", ".csv"):
        file = io.BytesIO()
        tables.write(file, suffix, tables.Table(array, columns=list("abcd"), rows=list("vwxyz")))
        found[suffix] = file.getvalue()
    file = io.BytesIO()
    frame.to_excel(file, index=False)
    found[".xlsx"] = file.getvalue()
    file = io.BytesIO()
    sp.save_npz(file, sp.csr_matrix(array))
    found["sparse.npz"] = file.getvalue()
    return found


@fuzzed(
    60,
    st.sampled_from([".npy", ".npz", ".mtx", ".parquet", ".csv", ".xlsx", "sparse.npz"]),
    st.binary(max_size=20),
    seeds,
)
def test_table_files(kind: str, noise: bytes, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"table{kind}")
        path.write_bytes(_damaged(_table_files()[kind], noise, seed))
        try:
            if kind == ".xlsx":
                read_sheet(path, tables.Reading())
            else:
                assert tables.read(path).values.ndim == 2
                tables.read_sparse(path)
        except tables.TableError as error:
            if str(path) not in str(error):
                raise


# --- results and runs ---


@cache
def _saved() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    Y, mask = rng.random((9, 7)), rng.random((9, 7)) < 0.7
    S, found = sp.csr_array(np.where(mask, Y, 0)), {}
    settings = {"seed": 0, "max_iter": 20}
    stop_at = lambda iteration, state: iteration >= 10  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.npz")
        airnp.fit(Y, mask, bounds=(0, 2), **settings).save(path)
        found["dense"] = path.read_bytes()
        airnp.fit(Y, mask, callback=stop_at, checkpoint=path, **settings)
        found["dense run"] = path.read_bytes()
        airnp.fit_sparse(S, 2, offsets=True, callback=stop_at, checkpoint=path, **settings)
        found["sparse run"] = path.read_bytes()
        airnp.fit_ratings(S, max_iter=20, seed=0).save(path)
        found["ratings"] = path.read_bytes()
        airnp.complete(Y, mask, seed=0, time_limit=1e-9).save(path)
        found["completion"] = path.read_bytes()
    return found


@fuzzed(
    60,
    st.sampled_from(["dense", "dense run", "sparse run", "ratings", "completion"]),
    st.binary(max_size=20),
    seeds,
)
def test_saved_files(kind: str, noise: bytes, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.npz")
        content = _saved()[kind]
        path.write_bytes(_damaged(content, noise, seed) if seed % 3 else _repacked(content, noise, seed))
        for use in (airnp.load, lambda path: airnp.resume(path, checkpoint=None, max_iter=21)):
            try:
                result = use(path)
            except (ValueError, TypeError) as error:
                if ": " not in str(error):
                    raise
                continue
            assert np.isfinite(np.asarray(result.X)).all()


def _repacked(content: bytes, noise: bytes, seed: int) -> bytes:
    """Return an archive with sound checksums in which the bytes of one member are damaged."""
    packed, rng = io.BytesIO(), np.random.default_rng(seed)
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
        chosen = old.namelist()[int(rng.integers(len(old.namelist())))]
        for member in old.namelist():
            data = old.read(member)
            new.writestr(member, _damaged(data, noise, seed) if member == chosen else data)
    return packed.getvalue()


# --- masks, metrics, baselines ---

SHAPES = st.sampled_from([(1, 1), (5, 7), (12, 12), (3, 4, 5), (0, 4), (4,), (2.5, 3), "ab", (-1, 3)])
SHARES = st.sampled_from([0.0, 0.1, 0.5, 1.0, -0.1, 1.5, float("nan"), "half"])


@fuzzed(
    80,
    st.sampled_from(["random", "rows", "columns", "scratches", "text", "patch"]),
    SHAPES,
    SHARES,
    st.integers(-1, 3),
)
def test_masks(kind: str, shape: Any, share: Any, seed: int) -> None:
    calls = {
        "scratches": lambda: masks.scratches(shape, 3, seed=seed),
        "text": lambda: masks.text(shape, "hello"),
        "patch": lambda: masks.patch(shape, [(0, 1, 0, 1)]),
    }
    call = calls.get(kind, lambda: getattr(masks, kind)(shape, share, seed=seed))
    mask = refused(call)
    if mask is not None:
        assert mask.dtype == bool
        assert mask.shape == tuple(shape)
        same_bits(call(), mask)


@fuzzed(
    60,
    st.sampled_from(["nmae", "rmse", "psnr", "ssim", "average_precision"]),
    matrices(containers=("array", "strict")),
    seeds,
)
def test_metrics(kind: str, data: Data, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assume(np.isfinite(data.values).all())
    truth, X = data.values, data.values + rng.standard_normal(data.values.shape)
    before = Frozen(X, truth)
    metric = getattr(metrics, kind)
    more = {} if kind in ("ssim", "psnr") else {"mask": data.observed}
    found = refused(lambda: metric(X, truth, **more))
    before.check()
    if found is None:
        return
    assert not np.isnan(found)
    order = rng.permutation(len(X))
    if kind != "ssim":
        permuted = {name: value[order] for name, value in more.items()}
        np.testing.assert_allclose(metric(X[order], truth[order], **permuted), found, rtol=1e-9)


@fuzzed(
    40,
    st.sampled_from(
        ["mean", "knn", "linear", "svd", "soft_impute", "biharmonic", "navier_stokes", "telea", "fsr"]
    ),
    matrices(),
)
def test_baselines(kind: str, data: Data) -> None:
    before = Frozen(data.Y, data.mask)
    call = getattr(baselines, kind)
    more = {"seed": 0} if kind in ("svd", "soft_impute") else {}
    filled = refused(lambda: call(data.Y, data.mask, **more))
    before.check()
    if filled is not None:
        X = np.asarray(filled)
        assert np.isfinite(X).all()
        assert X.shape == data.values.shape


@fuzzed(
    3,
    matrices(least=4, most=9, containers=("array", "list", "masked", "csr")),
    st.sampled_from([None, "table", "picture", "ratings"]),
)
def test_complete(data: Data, kind: Any) -> None:
    before = Frozen(data.Y, data.mask)
    found = refused(lambda: airnp.complete(data.Y, data.mask, kind=kind, seed=0, time_limit=0.5))
    before.check()
    if found is None:
        return
    X = np.asarray(found.X)
    assert np.isfinite(X).all()
    completed = np.asarray(found.completed())
    same_bits(completed[data.observed] + 0, data.values[data.observed].astype(completed.dtype) + 0)


# --- the command line ---

OPTIONS = """
--round | --bounds 0 100 | --bounds 5 1 | --interval 0.5 | --seed 1 | --method auto | --method em | --rank 1
--rank 0 | --missing 1 | --index-col 1 | --index-col none | --no-header | --header | --delimiter ;
--fitted | --json | --form sparse | --result r.npz | --checkpoint c.npz | --ignore a | --columns 1
--decimal , | --regularizers air | --dtype float32 | --encoding latin-1 | --method local
--samples 1 | --method air
"""
WORDS = st.lists(st.sampled_from([each.split() for each in re.split(r"[|\n]", OPTIONS.strip())]), max_size=4)


@fuzzed(40, texts(), WORDS, st.sampled_from([".csv", ".tsv", ".npz", ".parquet"]))
def test_the_command_line(content: bytes, words: Any, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "table.csv"), Path(folder, f"out{suffix}")
        path.write_bytes(content)
        named = [str(Path(folder, word)) if ".npz" in word else word for pair in words for word in pair]
        try:
            code = main(["complete", str(path), "-o", str(output), "--quiet", "--max-iter", "5", *named])
        except SystemExit as left:
            code = left.code
        assert path.read_bytes() == content
        assert code in (0, 1, 2)
        assert output.exists() == (code == 0) or "--interval" in named
        if code == 0:
            try:
                # With intervals there are three matrices.
                tables.read(output, tables.Reading(array="X" if suffix == ".npz" else None))
            except tables.TableError:
                read_sheet(output, tables.Reading())
