"""``airnp.dask.inpaint`` fills Dask arrays bit for bit as ``airnp.inpaint`` fills NumPy arrays."""

from __future__ import annotations

import dask
import dask.array as da
import distributed
import numpy as np
import pytest
import zarr
from dask.callbacks import Callback

import airnp
from airnp import masks
from airnp.commands.demo import scene
from airnp.dask import inpaint
from airnp.images.painting import channel_means, channel_sums, count_levels
from airnp.resemblance.stages import Patches

PATIENCE = 600.0
"""Seconds after which a wait is a failure; a busy machine may need minutes to start a process."""

QUICK = {"quality": "fast", "neighbours": 16, "search": 4, "patch": 4}

GREY = scene(301)[:, :270].astype(np.float32)
COLOUR = np.rint(255 * np.stack([GREY, GREY**2, 1 - GREY], axis=-1)).astype(np.uint8)
SPECKS = np.ones(GREY.shape, dtype=bool)
SPECKS[90:190, 100:180] = masks.random((100, 80), missing=0.3, seed=0)
HOLES = np.ones(GREY.shape, dtype=bool)
HOLES[100:150, 110:150] = HOLES[250:290, 3:30] = HOLES[20:24, :90] = False
SMALL = (slice(60), slice(50))
SMALL_MASK = masks.random((60, 50), missing=0.4, seed=0)


@pytest.fixture(autouse=True)
def _one_process():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def both(image: np.ndarray, mask: np.ndarray | None, chunks: object = 90, **options: object) -> da.Array:
    """Fill an image by Dask and by NumPy, compare the bytes, and return Dask's answer."""
    tile = options.pop("tile", 128)
    expected = airnp.inpaint(image, mask, **{**QUICK, **options})
    lazy = inpaint(da.from_array(image, chunks=chunks), mask, tile=tile, **{**QUICK, **options})
    found = lazy.compute()
    assert (found.shape, found.dtype, lazy.dtype) == (expected.shape, expected.dtype, expected.dtype)
    assert found.tobytes() == expected.tobytes()
    return lazy


# --- the same as airnp.inpaint ---


@pytest.mark.parametrize("tile", [128, 256, 512])
def test_scattered_gaps_in_a_grey_picture(tile):
    lazy = both(GREY, SPECKS, chunks=(100, 270), tile=tile)
    assert lazy.chunks == ((100, 100, 100, 1), (270,))


def test_the_default_settings():
    mask = masks.random((150, 140), missing=0.3, seed=0)
    image = GREY[80:230, 60:200]
    expected = airnp.inpaint(image, mask)
    assert inpaint(da.from_array(image), mask, tile=128).compute().tobytes() == expected.tobytes()


@pytest.mark.parametrize(("tile", "chunks"), [(128, 90), (256, (301, 64))])
def test_holes_that_start_from_smaller_copies(tile, chunks):
    assert count_levels(HOLES[np.newaxis, np.newaxis]) >= 3
    both(np.where(HOLES, GREY, np.nan), None, tile=tile, chunks=chunks)


def test_holes_in_colour():
    both(COLOUR[90:240, 90:240], HOLES[90:240, 90:240], chunks=(128, 100, 2))


def test_channels_with_gaps_of_their_own():
    image = COLOUR[80:220, 90:230]
    mask = np.stack([masks.random((140, 140), missing=0.2, seed=seed) for seed in range(3)], axis=-1)
    both(image, mask)


def test_more_channels_than_a_patch_holds():
    cube = np.stack([GREY[SMALL] ** (1 + number / 8) for number in range(26)])[:, :30, :30]
    both(cube, SMALL_MASK[:30, :30], channel_axis=0, patch=2)


def test_a_video():
    frames = np.stack([np.roll(GREY, 2 * number, 0)[:140, :60] for number in range(3)])
    mask = np.stack([masks.random((140, 60), missing=0.3, seed=seed) for seed in range(3)])
    both(frames, mask, chunks=(2, 70, 60), channel_axis=None, time_axis=0)


def test_a_stack_whose_channels_come_first():
    small = np.moveaxis(COLOUR[SMALL], -1, 0)
    both(np.stack([[small, 255 - small]]), SMALL_MASK, chunks=(1, 1, 3, 25, 25), channel_axis=2)


def test_a_search_wider_than_a_tile():
    mask = np.ones((30, 301), dtype=bool)
    mask[10:14, 120:136] = False
    both(GREY.T[100:130], mask, search=70, neighbours=8)


def test_bounds_and_a_mask_of_numbers():
    lazy = both(COLOUR[SMALL], 255 * SMALL_MASK.astype(np.uint8), bounds=(20, 200))
    filled = lazy.compute()[~SMALL_MASK]
    assert filled.min() >= 20
    assert filled.max() <= 200


def test_sums_of_channels_do_not_depend_on_the_order():
    values = np.random.default_rng(0).random((2, 3, 90, 70)).astype(np.float32)
    observed = values > 0.3
    whole = channel_means(*channel_sums(values, observed))
    parts = [channel_sums(values[..., cut], observed[..., cut]) for cut in (slice(33), slice(33, 70))]
    sums, counts = (sum(each) for each in zip(*parts, strict=True))
    assert channel_means(sums, counts).tobytes() == whole.tobytes()
    exact = [values[:, channel][observed[:, channel]].astype(float).mean() for channel in range(3)]
    np.testing.assert_allclose(whole[:, 0, 0], exact, rtol=1e-6)


# --- work, schedulers, memory ---


def test_tiles_without_gaps_are_not_filled(monkeypatch):
    mask = np.ones(GREY.shape, dtype=bool)
    mask[10:20, 150:160] = False
    lazy = inpaint(da.from_array(GREY), mask, tile=128, **QUICK)
    seen = []
    run = Patches.run
    monkeypatch.setattr(
        Patches, "run", lambda stage, window, threads: seen.append(window) or run(stage, window, threads)
    )
    lazy.compute(scheduler="sync")
    full = {(window.rows.start, window.columns.start) for window in seen if window.shape == GREY.shape}
    assert full == {(0, 128)}


def test_a_complete_picture_is_given_back():
    lazy = both(COLOUR, np.ones_like(SPECKS))
    assert not any("_run" in str(key) for key in lazy.__dask_graph__())


def test_only_the_trials_and_the_first_pass_read_the_image_at_the_call():
    reads = []

    def chunk(block_id: tuple[int, int]) -> np.ndarray:
        reads.append(block_id)
        return GREY[:100, :100]

    image = da.map_blocks(
        chunk, chunks=((100,) * 4, (100,) * 4), dtype=np.float32, meta=np.empty((0, 0), "f")
    )
    mask = np.ones(image.shape, dtype=bool)
    mask[:100, :100] = masks.random((100, 100), missing=0.3, seed=0)
    with dask.config.set(scheduler="sync"):
        inpaint(image, mask, tile=128, **QUICK)
    # The range, the means, and the chunks of two parts for trials.
    assert len(reads) <= 16 + 16 + 2 * 9


def test_the_scheduler_does_not_matter():
    lazy = inpaint(da.from_array(GREY, chunks=100), SPECKS, tile=128, **QUICK)
    answers = [lazy.compute(scheduler=name) for name in ("sync", "threads")]
    assert answers[0].tobytes() == answers[1].tobytes()


def test_zarr_in_zarr_out_on_a_cluster(tmp_path):
    expected = airnp.inpaint(GREY, SPECKS, **QUICK)
    for name, array in {"image": GREY, "mask": SPECKS}.items():
        made = zarr.open_array(
            str(tmp_path / name), mode="w", shape=array.shape, dtype=array.dtype, chunks=(100,) * array.ndim
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
        inpaint(image, mask, tile=128, **QUICK).to_zarr(str(tmp_path / "filled"))
    found = zarr.open_array(str(tmp_path / "filled"), mode="r")
    assert found.chunks[:2] == (100, 100)
    assert found[...].tobytes() == expected.tobytes()


def numbers_held(tall: int) -> int:
    """Fill a picture that is generated chunk by chunk; return the most numbers that Dask held at a time."""
    most = 0

    def chunk(block_id: tuple[int, int]) -> np.ndarray:
        return np.random.default_rng(block_id).random((128, 128)).astype(np.float32)

    def count(key: object, result: object, graph: object, state: dict, worker: object) -> None:
        nonlocal most
        held = [each for each in state["cache"].values() if isinstance(each, np.ndarray)]
        most = max(most, sum(each.size for each in held))

    image = da.map_blocks(chunk, chunks=((128,) * tall, (128,)), dtype=np.float32, meta=np.empty((0, 0), "f"))
    mask = da.map_blocks(lambda block: block < 0.99, image)
    with dask.config.set(scheduler="sync"):
        lazy = inpaint(image, mask, tile=128, **QUICK)
        with Callback(posttask=count):
            da.store(lazy, Nowhere(), lock=False)
    return most


class Nowhere:
    """A target for ``da.store`` that keeps nothing."""

    def __setitem__(self, where: object, chunk: np.ndarray) -> None:
        assert np.isfinite(chunk).all()


def test_memory_does_not_grow_as_the_picture_does():
    assert numbers_held(30) <= 1.2 * numbers_held(15)


# --- refusals ---

LAZY = da.from_array(GREY[SMALL])


@pytest.mark.parametrize(
    ("image", "mask", "options", "message"),
    [
        (GREY, SPECKS, {}, "image: expected a dask.array.Array"),
        (LAZY.astype(complex), SMALL_MASK, {}, "image: expected integers"),
        (da.from_array(COLOUR), None, {}, "mask: expected one"),
        (LAZY, SMALL_MASK[:5], {}, "mask: expected shape"),
        (LAZY, np.full(SMALL_MASK.shape, 2), {}, "mask: expected True/False"),
        (LAZY, np.zeros_like(SMALL_MASK), {}, "mask: no pixel is observed"),
        (LAZY, np.full(SMALL_MASK.shape, "x"), {}, "mask: expected booleans"),
        (LAZY, SMALL_MASK, {"tile": 64}, "tile: "),
        (LAZY, SMALL_MASK, {"tile": 200}, "tile: expected a multiple of 128, got 200"),
        (LAZY, SMALL_MASK, {"patch": 1}, "patch: "),
        (LAZY, SMALL_MASK, {"quality": "good"}, "quality: "),
        (LAZY, SMALL_MASK, {"seed": -3}, "seed: "),
        (da.stack([LAZY] * 9), SMALL_MASK, {}, "channel_axis: "),
        (LAZY[LAZY[:, 0] > 0.5], None, {}, "image: expected a known shape"),
    ],
)
def test_errors_name_the_argument(image, mask, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        inpaint(image, mask, **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_observed_pixels_that_are_not_finite_are_an_error(bad):
    image = GREY[SMALL].copy()
    image[tuple(np.argwhere(SMALL_MASK)[0])] = bad
    with pytest.raises(ValueError, match="image: observed pixels are NaN"):
        inpaint(da.from_array(image), SMALL_MASK)
