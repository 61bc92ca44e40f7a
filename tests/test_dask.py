"""``airnp.dask.inpaint`` fills Dask arrays bit for bit as ``airnp.inpaint`` fills NumPy arrays."""

from __future__ import annotations

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
import zarr
from dask.callbacks import Callback
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp import masks
from airnp.commands.demo import scene
from airnp.dask import inpaint
from airnp.images.tiles import Grid, Tile, blend, join, piece, split

PATIENCE = 600.0
"""Seconds after which a wait is a failure; a busy machine may need minutes to start a process."""

TILES = {"tile": 32, "overlap": 8}
QUICK = {"max_iter": 12, "stop": None, "seed": 1, "engine": "reference"}

GREY = scene(70)[:, :50]
COLOUR = np.rint(255 * np.stack([GREY, GREY**2, 1 - GREY], axis=-1)).astype(np.uint8)
MASK = masks.random(GREY.shape, missing=0.4, seed=0)
OWN_MASKS = np.stack([masks.random(GREY.shape, missing=0.4, seed=seed) for seed in range(3)], axis=-1)


@pytest.fixture(autouse=True)
def _one_process():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def both(image: np.ndarray, mask: np.ndarray | None, chunks: object = 27, **options: object) -> da.Array:
    """Fill an image by Dask and by NumPy, compare the bytes, and return Dask's answer."""
    expected = airnp.inpaint(image, mask, **{**TILES, **QUICK, **options})
    lazy = inpaint(da.from_array(image, chunks=chunks), mask, **{**TILES, **QUICK, **options})
    found = lazy.compute()
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()
    return lazy


# --- the same as airnp.inpaint ---


def test_grey_pictures_keep_their_chunks():
    both(np.where(MASK, GREY, np.nan), None)
    lazy = both(GREY.astype(np.float32), MASK, chunks=(20, 50))
    assert lazy.chunks == ((20, 20, 20, 10), (50,))


@pytest.mark.parametrize("channels", ["apart", "together"])
@pytest.mark.parametrize("mask", [MASK, OWN_MASKS], ids=["shared", "own"])
def test_colours(channels, mask):
    both(COLOUR, mask, chunks=(30, 50, 2), channels=channels)


def test_a_stack_whose_channels_come_first():
    stack = np.stack([np.moveaxis(COLOUR, -1, 0), np.moveaxis(255 - COLOUR, -1, 0)])
    both(stack[..., :40, :40], MASK[:40, :40], chunks=(1, 3, 25, 25), channel_axis=1)


def test_a_stack_without_channels_and_a_picture_without_tiles():
    stack = np.stack([GREY, GREY[::-1]])[..., :24, :24]
    both(stack, MASK[:24, :24], chunks=(1, 24, 24), channel_axis=None)


def test_bounds_and_a_mask_of_numbers():
    lazy = both(COLOUR, MASK.astype(np.float64), bounds=(20, 200))
    filled = lazy.compute()[~MASK]
    assert filled.min() >= 20
    assert filled.max() <= 200


@pytest.mark.filterwarnings("ignore:tiles with rows or columns:UserWarning")
@pytest.mark.parametrize("mask", [None, "given"])
def test_holes_larger_than_tiles(mask):
    holed = MASK.copy()
    holed[10:66, 8:45] = False
    image = np.where(holed, GREY, np.nan)
    both(image, holed if mask else None)
    with pytest.warns(UserWarning, match="tiles with rows or columns without any observed pixel"):
        inpaint(da.from_array(image), **TILES)


def test_a_complete_picture_is_not_fitted():
    lazy = both(COLOUR, np.ones_like(MASK))
    assert not any("_fill" in str(key) for key in lazy.__dask_graph__())


def test_the_scheduler_does_not_matter():
    lazy = inpaint(da.from_array(GREY, chunks=30), MASK, **TILES, **QUICK)
    answers = [lazy.compute(scheduler=name) for name in ("sync", "threads")]
    assert answers[0].tobytes() == answers[1].tobytes()


def test_zarr_in_zarr_out_on_a_cluster(tmp_path):
    expected = airnp.inpaint(COLOUR, MASK, **TILES, **QUICK)
    for name, array in {"image": COLOUR, "mask": MASK}.items():
        made = zarr.open_array(
            str(tmp_path / name), mode="w", shape=array.shape, dtype=array.dtype, chunks=(20,) * array.ndim
        )
        made[...] = array
    with (
        dask.config.set({"distributed.comm.timeouts.connect": f"{PATIENCE}s"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, timeout=PATIENCE),
        dask.config.set(scheduler="distributed"),
    ):
        image, mask = (da.from_zarr(str(tmp_path / name)) for name in ("image", "mask"))
        inpaint(image, mask, **TILES, **QUICK).to_zarr(str(tmp_path / "filled"))
    found = zarr.open_array(str(tmp_path / "filled"), mode="r")
    assert found.chunks[:2] == (20, 20)
    assert found[...].tobytes() == expected.tobytes()


def numbers_held(tall: int) -> int:
    """Fill a picture that is generated chunk by chunk; return the most numbers that Dask held at a time."""
    most = 0

    def chunk(block_id: tuple[int, int]) -> np.ndarray:
        return np.random.default_rng(block_id).random((32, 32))

    def count(key: object, result: object, graph: object, state: dict, worker: object) -> None:
        nonlocal most
        most = max(most, sum(map(size, state["cache"].values())))

    def size(held: object) -> int:
        if isinstance(held, tuple):
            return sum(map(size, held))
        return held.size if isinstance(held, np.ndarray) else 0

    image = da.map_blocks(chunk, chunks=((32,) * tall, (32,) * 3), dtype=float, meta=np.empty((0, 0)))
    mask = da.map_blocks(lambda block: block < 0.7, image)
    with dask.config.set(scheduler="sync"), Callback(posttask=count):
        da.store(inpaint(image, mask, **{**TILES, **QUICK, "max_iter": 2}), Nowhere(), lock=False)
    return most


class Nowhere:
    """A target for ``da.store`` that keeps nothing."""

    def __setitem__(self, where: object, chunk: np.ndarray) -> None:
        assert np.isfinite(chunk).all()


def test_memory_does_not_grow_as_the_picture_does():
    """Only strips along a side of the picture wait for other tiles."""
    low, tall = numbers_held(8), numbers_held(24)
    assert tall <= 2 * low
    assert tall < 0.7 * 24 * 3 * 32 * 32


# --- refusals ---


@pytest.mark.parametrize(
    ("image", "mask", "options", "message"),
    [
        (GREY, MASK, {}, "image: expected a dask.array.Array"),
        (da.from_array(GREY.astype(complex)), MASK, {}, "image: expected integers"),
        (da.from_array(COLOUR), None, {}, "mask: expected one"),
        (da.from_array(GREY), MASK[:5], {}, "mask: expected shape"),
        (da.from_array(GREY), np.full(MASK.shape, 2), {}, "mask: expected True/False or 1/0"),
        (da.from_array(GREY), np.zeros_like(MASK), {}, "mask: no pixel is observed"),
        (da.from_array(GREY), np.full(MASK.shape, "x"), {}, "mask: expected booleans"),
        (da.from_array(GREY), MASK, {"tile": 3}, "tile: "),
        (da.from_array(GREY), MASK, {"colour": 3}, "colour: "),
        (da.from_array(GREY), MASK, {"seed": -3}, "seed: "),
        (da.from_array(np.stack([GREY] * 9)), MASK, {}, "channel_axis: "),
        (da.from_array(GREY)[da.from_array(GREY[:, 0]) > 0.5], None, {}, "image: expected a known shape"),
    ],
)
def test_errors_name_the_argument(image, mask, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        inpaint(image, mask, **options)


def test_observed_pixels_that_are_nan_are_an_error():
    image = GREY.copy()
    image[tuple(np.argwhere(MASK)[0])] = np.nan
    with pytest.raises(ValueError, match="image: observed pixels are NaN"):
        inpaint(da.from_array(image), MASK, **TILES, **QUICK).compute()


# --- pieces ---


@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    size=st.integers(3, 25),
    share=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_pieces_are_the_blend_to_the_last_bit(height, width, size, share, seed):
    grid = Grid(height, width, size, int(share * (size // 3)))
    rng = np.random.default_rng(seed)
    contents = {(tile.rows.start, tile.columns.start): rng.random((2, height, width)) for tile in grid}

    def content(tile: Tile) -> np.ndarray:
        return contents[tile.rows.start, tile.columns.start][:, tile.rows, tile.columns]

    expected = np.full((2, height, width), np.nan)
    for tile, blended in blend(grid, content, leading=(2,)):
        expected[:, tile.rows, tile.columns] = blended
    parts = {
        (row, column): split(grid, row, column, content(Tile(rows, columns)))
        for row, rows in enumerate(grid.rows)
        for column, columns in enumerate(grid.columns)
    }
    found = np.full_like(expected, np.nan)
    for (row, column), own in parts.items():
        left, above, corner = (
            parts.get(place) for place in ((row, column - 1), (row - 1, column), (row - 1, column - 1))
        )
        tile = piece(grid, row, column)
        found[:, tile.rows, tile.columns] = join(
            own.body,
            None if left is None else left.right,
            None if above is None else above.below,
            None if corner is None else corner.corner,
        )
    assert found.tobytes() == expected.tobytes()
