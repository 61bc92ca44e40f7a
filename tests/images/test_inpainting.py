"""``inpaint``: kinds of pictures, masks and bounds; tiles, seams, memory; refusals."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import array_api_compat as compat
import array_api_strict
import numpy as np
import pytest
from scipy import ndimage

import airnp
from airnp import masks
from airnp._arrays import to_numpy
from airnp.commands.demo import scene
from airnp.images import filling
from airnp.images.inpainting import inpaint
from airnp.images.tiles import Grid, ramps

QUICK: dict[str, Any] = {"max_iter": 30, "stop": None, "seed": 3, "regularizers": None}
SHAPE = (20, 24)
HEIGHT, WIDTH = SHAPE
GREY = scene(24)[:HEIGHT]
COLOUR = np.stack([GREY, GREY[::-1], 1 - GREY], axis=-1)
MASK = masks.random(SHAPE, 0.3, seed=0)


def as_kind(picture, kind):
    """A picture in [0, 1] as pixels of a dtype."""
    kind = np.dtype(kind)
    return picture.astype(kind) if kind.kind == "f" else np.rint(picture * 200).astype(kind)


@dataclass
class FakeFit:
    """Replaces ``airnp.fit``: records its calls, and answers with one number."""

    monkeypatch: Any
    answer: float = 0.5
    stop_reason: str = "fake"

    def __post_init__(self):
        self.calls: list[tuple[Any, Any, dict[str, Any]]] = []
        self.monkeypatch.setattr(filling, "fit", self)

    def __call__(self, Y, mask, **options):
        assert mask.any(), "airnp.fit refuses to fit nothing"
        self.calls.append((Y, mask, options))
        self.matrix = np.full(Y.shape, self.answer)
        return self


# ------------------------------------------------------------------------------------------ kinds of pictures


@pytest.mark.parametrize("kind", ["uint8", "int16", ">u2", "int64", "float16", "float32", "float64"])
def test_the_dtype_and_the_observed_pixels_are_kept(kind):
    picture = as_kind(COLOUR, kind)
    hidden = picture.copy()
    hidden[~MASK] = 7
    copy = hidden.copy()
    hidden.flags.writeable = False
    filled = inpaint(hidden, MASK, **{**QUICK, "max_iter": 2000})
    assert filled.dtype == picture.dtype
    assert filled.shape == picture.shape
    np.testing.assert_array_equal(filled[MASK], picture[MASK])
    np.testing.assert_array_equal(hidden, copy)
    size = float(picture.max()) - float(picture.min())
    assert np.abs(filled - picture.astype(float))[~MASK].mean() < 0.2 * size


def test_total_variation_stands_beside_the_graphs_by_default():
    settings = {name: value for name, value in QUICK.items() if name != "regularizers"}
    chosen = [*airnp.regularizers.default_regularizers(), airnp.TotalVariation()]
    expected = airnp.fit(GREY, MASK, regularizers=chosen, **settings).completed()
    np.testing.assert_array_equal(inpaint(GREY, MASK, **settings), expected)


def test_a_grey_picture_is_completed_as_by_fit():
    expected = airnp.fit(GREY, MASK, **QUICK).completed()
    np.testing.assert_array_equal(inpaint(GREY, MASK, **QUICK), expected)
    np.testing.assert_array_equal(inpaint(np.where(MASK, GREY, np.nan), **QUICK), expected)
    np.testing.assert_array_equal(inpaint(GREY.tolist(), MASK.tolist(), **QUICK), expected)


def test_channels_apart_are_a_matrix_each():
    filled = inpaint(COLOUR, MASK, **QUICK)
    for channel in range(3):
        expected = airnp.fit(COLOUR[..., channel], MASK, **QUICK).completed()
        np.testing.assert_array_equal(filled[..., channel], expected)


def test_channels_together_are_one_matrix_side_by_side():
    own = np.stack([MASK, ~MASK, MASK[::-1]], axis=-1)
    filled = inpaint(COLOUR, own, channels="together", **QUICK)
    beside = [np.concatenate([array[..., c] for c in range(3)], axis=1) for array in (COLOUR, own)]
    expected = airnp.fit(*beside, **QUICK).completed()
    np.testing.assert_array_equal(np.concatenate([filled[..., c] for c in range(3)], axis=1), expected)


STACK = np.stack([COLOUR, COLOUR[:, ::-1]])  # (T, H, W, C)
OWN = masks.random((2, 3, *SHAPE), 0.3, seed=1).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("channels", ["apart", "together"])
@pytest.mark.parametrize("place", [0, 1, 2, 3, -1, -4])
def test_channels_may_be_on_any_axis(place, channels):
    expected = inpaint(STACK, OWN, channels=channels, **QUICK)
    moved = [np.moveaxis(array, -1, place) for array in (STACK, OWN)]
    filled = inpaint(*moved, channel_axis=place, channels=channels, **QUICK)
    np.testing.assert_array_equal(np.moveaxis(filled, place, -1), expected)


def test_a_stack_is_filled_picture_by_picture():
    filled = inpaint(STACK, OWN, **QUICK)
    for one, picture, mask in zip(filled, STACK, OWN, strict=True):
        np.testing.assert_array_equal(one, inpaint(picture, mask, **QUICK))
    grey = inpaint(STACK[..., 0], OWN[..., 0], channel_axis=None, **QUICK)
    np.testing.assert_array_equal(grey, filled[..., 0])


@pytest.mark.parametrize("kind", ["bool", "uint8", "float32"])
def test_a_mask_may_be_shared(kind):
    frames = OWN[..., 0]
    for shared, full in [
        (MASK, np.broadcast_to(MASK[..., np.newaxis], STACK.shape)),
        (frames, np.broadcast_to(frames[..., np.newaxis], STACK.shape)),
    ]:
        expected = inpaint(STACK, full, **QUICK)
        np.testing.assert_array_equal(inpaint(STACK, shared.astype(kind), **QUICK), expected)
        first = [np.moveaxis(array, -1, 0) for array in (STACK, expected)]
        again = inpaint(first[0], shared, channel_axis=0, channels="apart", **QUICK)
        np.testing.assert_array_equal(again, first[1])


def test_masked_arrays_hide_pixels():
    pixels = as_kind(COLOUR, "uint8")
    hidden = np.broadcast_to(~MASK[..., np.newaxis], COLOUR.shape)
    expected = inpaint(pixels, MASK, **QUICK)
    filled = inpaint(np.ma.array(pixels, mask=hidden), **QUICK)
    assert type(filled) is np.ndarray
    np.testing.assert_array_equal(filled, expected)
    half = MASK | (np.arange(WIDTH) < 12)
    other = MASK | (np.arange(WIDTH) >= 12)
    twice = np.ma.array(pixels, mask=np.broadcast_to(~half[..., np.newaxis], COLOUR.shape))
    np.testing.assert_array_equal(inpaint(twice, other, **QUICK), expected)


def test_nothing_missing_is_a_copy_without_a_fit(monkeypatch):
    fake = FakeFit(monkeypatch)
    filled = inpaint(GREY)
    assert not fake.calls
    assert not np.may_share_memory(filled, GREY)
    np.testing.assert_array_equal(filled, GREY)


@pytest.mark.parametrize(
    ("shape", "axis"), [((30, 40, 1), 2), ((30, 40, 4), 2), ((9, 30, 40, 3), 3), ((2, 9, 30, 40, 3), 4)]
)
def test_a_short_last_axis_is_taken_for_channels(monkeypatch, shape, axis):
    fake = FakeFit(monkeypatch)
    inpaint(np.ones(shape), np.eye(30, 40) == 0)
    assert len(fake.calls) == np.prod(shape) // 1200
    assert all(Y.shape == (30, 40) for Y, _, _ in fake.calls)


@pytest.mark.parametrize("shape", [(30, 40, 5), (3, 30, 40), (3, 40, 4), (7, 30, 40, 31)])
def test_other_shapes_need_a_channel_axis(shape):
    with pytest.raises(ValueError, match=r"^channel_axis: cannot tell .*expected its number, or None"):
        inpaint(np.full(shape, np.nan))


# ----------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("kind", "bounds", "answer", "expected"),
    [
        ("uint8", None, 300.0, 255),
        ("uint8", None, -3.0, 0),
        ("uint8", None, 41.6, 42),
        ("int8", None, -200.0, -128),
        ("uint16", None, 1e6, 65535),
        ("int64", None, 1e30, 2**63 - 1024),
        ("uint8", (16, 235), 255.0, 235),
        ("uint8", (16, None), 1.0, 16),
        ("uint8", [None, 99.5], 200.0, 99),
        ("uint8", (0.5, 9), 0.0, 1),
        ("float32", None, -3.5, -3.5),
        ("float16", None, 1e9, 65504.0),
        ("float64", (0, 1), 1.5, 1.0),
        ("float64", (0.0, None), -1.0, 0.0),
        ("float16", (0.1, 0.9), 0.0, np.nextafter(np.float16(0.1), np.float16(1))),
        ("float32", (-np.inf, 0.1), 1.0, np.nextafter(np.float32(0.1), np.float32(0))),
    ],
)
def test_filled_pixels_stay_within_bounds(monkeypatch, kind, bounds, answer, expected):
    FakeFit(monkeypatch, answer)
    picture = np.arange(9).reshape(3, 3).astype(kind)
    mask = np.eye(3) == 0
    filled = inpaint(picture, mask, bounds=bounds)
    assert filled.dtype == kind
    np.testing.assert_array_equal(filled[~mask], expected)
    np.testing.assert_array_equal(filled[mask], picture[mask])


# ------------------------------------------------------------------------------------------------------ tiles

LARGE = scene(100)[:70]
LARGE_MASK = masks.random(LARGE.shape, 0.3, seed=2)
TILES: dict[str, Any] = {"tile": 40, "overlap": 10}


def test_tiles_do_not_depend_on_each_other():
    """Fitted by hand, the last one first, and blended with all weights at once."""
    grid = Grid(*LARGE.shape, 40, 10)
    expected = np.zeros_like(LARGE)
    for rows, down in reversed(list(zip(grid.rows, ramps(grid.rows), strict=True))):
        for columns, across in reversed(list(zip(grid.columns, ramps(grid.columns), strict=True))):
            result = airnp.fit(LARGE[rows, columns], LARGE_MASK[rows, columns], **QUICK)
            expected[rows, columns] += np.outer(down, across) * result.X
    expected[LARGE_MASK] = LARGE[LARGE_MASK]
    filled = inpaint(LARGE, LARGE_MASK, **TILES, **QUICK)
    np.testing.assert_allclose(filled, expected, rtol=1e-12, atol=1e-12)
    assert not np.array_equal(filled, inpaint(LARGE, LARGE_MASK, **TILES, **{**QUICK, "seed": 4}))
    np.testing.assert_array_equal(filled, inpaint(LARGE, LARGE_MASK, **TILES, **QUICK))


def test_without_a_seed_all_tiles_get_the_same_new_one(monkeypatch):
    fake = FakeFit(monkeypatch)
    for _ in range(2):
        inpaint(LARGE, LARGE_MASK, **TILES)
    seeds = [options["seed"] for _, _, options in fake.calls]
    assert len(seeds) == 12
    assert len(set(seeds[:6])) == len(set(seeds[6:])) == 1
    assert seeds[0] != seeds[6]


def test_tiles_without_missing_pixels_are_not_fitted(monkeypatch):
    fake = FakeFit(monkeypatch, answer=0.25)
    picture = np.stack([LARGE, LARGE], axis=-1)
    mask = np.ones(picture.shape, dtype=bool)
    mask[2:5, 3:6, 1] = False  # in one tile of the second channel only
    filled = inpaint(picture, mask, **TILES)
    ((Y, seen, _),) = fake.calls
    rows, columns = next(iter(Grid(*LARGE.shape, 40, 10))).rows, Grid(*LARGE.shape, 40, 10).columns[0]
    np.testing.assert_array_equal(Y, LARGE[rows, columns])
    np.testing.assert_array_equal(seen, mask[rows, columns, 1])
    np.testing.assert_array_equal(filled, np.where(mask, picture, 0.25))


def test_a_picture_as_large_as_a_tile_is_done_in_one(monkeypatch):
    fake = FakeFit(monkeypatch)
    picture = np.full((700, 40), 0.5)
    picture[3, 3] = np.nan
    inpaint(picture)
    assert len(fake.calls) == 1
    larger = np.full((701, 40), 0.5)
    larger[350, 3] = np.nan  # in the middle, where both tiles have it
    inpaint(larger)
    assert [Y.shape for Y, _, _ in fake.calls[1:]] == [(383, 40)] * 2


def test_options_reach_every_fit(monkeypatch):
    fake = FakeFit(monkeypatch)
    given = {"max_iter": 5, "seed": 1, "regularizers": [], "stop": None, "device": "cpu"}
    given["engine"] = airnp.CPU(threads=1)
    inpaint(LARGE, LARGE_MASK, xp=np, **TILES, **given)
    assert len(fake.calls) == 6
    assert all(options == {**given, "xp": np} for _, _, options in fake.calls)


def texture(side, seed):
    """A picture that is alike everywhere and of full rank: where errors differ, it is the method's doing."""
    noise = np.random.default_rng(seed).standard_normal((side, side))
    smooth = ndimage.gaussian_filter(noise, 2, mode="wrap")
    return ((smooth - smooth.min()) / np.ptp(smooth)).astype(np.float32)


def test_tiles_meet_without_a_seam():
    """Errors are no larger where tiles meet, and do not jump there; without an overlap they do."""
    side, quick = 110, {"learning_rate": 1e-2, "init": airnp.Gaussian(0, 0.05), "max_iter": 600}

    def measured(overlap):
        grid = Grid(side, side, 44, overlap)
        meeting, ends = np.zeros((2, side, side), dtype=bool)
        for one, other in itertools.pairwise(grid.rows):
            ends[[other.start - 1, one.stop - 1]] = True  # the step from this row to the next
            middle = (one.stop + other.start) // 2
            meeting[middle - 5 : middle + 6] = True
        central = np.pad(np.ones((side - 16, side - 16), dtype=bool), 8)  # the picture's own edges are harder
        meeting = (meeting | meeting.T) & central
        inside = central & ~meeting
        errors: dict[str, list[Any]] = {"meeting": [], "inside": [], "at ends": [], "elsewhere": []}
        for seed in range(4):
            truth, mask = texture(side, seed), masks.random((side, side), 0.4, seed=seed)
            error = inpaint(truth, mask, tile=44, overlap=overlap, **{**QUICK, **quick}) - truth
            errors["meeting"].append(np.abs(error)[meeting & ~mask])
            errors["inside"].append(np.abs(error)[inside & ~mask])
            for turned, missing in ((error, ~mask), (error.T, ~mask.T)):
                steps, both = np.abs(np.diff(turned, axis=0)), missing[1:] & missing[:-1]
                errors["at ends"].append(steps[both & ends[:-1]])
                errors["elsewhere"].append(steps[both & ~ends[:-1]])
        return {name: np.concatenate(parts).mean() for name, parts in errors.items()}

    found = measured(overlap=11)
    assert found["inside"] < 0.05, "a fit that has learned nothing has no seams either"
    assert found["meeting"] <= 1.05 * found["inside"]
    assert found["at ends"] <= 1.05 * found["elsewhere"]
    cut = measured(overlap=0)
    assert cut["at ends"] > 1.05 * cut["elsewhere"], "the measure must notice a seam"


HOLE_IN_TILES: dict[str, Any] = {"tile": 32, "overlap": 8}


def with_a_hole(height=120, width=100):
    """A slope, and a mask with a hole that whole tiles lie in."""
    picture = np.add.outer(np.linspace(0, 0.6, height), np.linspace(0, 0.4, width))
    mask = np.ones(picture.shape, dtype=bool)
    mask[30:90, 20:80] = False
    return picture, mask


def test_a_hole_larger_than_tiles_is_filled_from_what_surrounds_it():
    picture, mask = with_a_hole()
    picture = picture + 0.05 * np.sin(np.arange(100))  # of low rank it would be too easy
    quick = {"learning_rate": 1e-2, "init": airnp.Gaussian(0, 0.05), "max_iter": 400}
    with pytest.warns(UserWarning, match=r"^tiles with .*: \d+; .* at a lower resolution") as caught:
        filled = inpaint(picture, mask, **HOLE_IN_TILES, **{**QUICK, **quick})
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(filled[mask], picture[mask])
    plain = np.abs(picture[mask].mean() - picture[~mask]).mean()
    assert np.abs(filled - picture)[~mask].mean() < 0.75 * plain


def test_a_region_that_is_shrunk_and_stretched_stays_in_its_place(monkeypatch):
    """With a fit that is perfect for slopes, a slope is found again, deep inside a hole, too."""

    def plane(Y, mask, **options):
        assert Y.dtype == np.float32, "no tile needs more precision than another"
        for axis in (0, 1):  # what is far from observed pixels is known by now, or the region is too small
            assert np.sum(~mask.any(axis=axis)) <= 6
        design = np.stack([np.ones(Y.shape), *np.indices(Y.shape)], axis=-1)
        found = np.linalg.lstsq(design[mask], Y[mask], rcond=None)[0]
        return SimpleNamespace(matrix=design @ found, stop_reason="solved")

    monkeypatch.setattr(filling, "fit", plane)
    picture, mask = with_a_hole(128, 96)  # sides that squares of 2, 4 and 8 pixels divide
    with pytest.warns(UserWarning, match="at a lower resolution"):
        filled = inpaint(picture.astype(np.float32), mask, **HOLE_IN_TILES)
    np.testing.assert_allclose(filled, picture, rtol=0, atol=0.006)


def test_one_pixel_is_enough(monkeypatch):
    """However far away: the region around a tile grows until it has it."""
    FakeFit(monkeypatch, answer=0.25)
    picture = np.full((100, 600), np.nan)
    picture[99, 599] = 0.75
    with pytest.warns(UserWarning, match="^tiles with rows or columns without"):
        filled = inpaint(picture, tile=16, overlap=4)
    assert np.isfinite(filled).all()
    assert filled[99, 599] == 0.75
    assert filled[0, 0] == 0.25


def test_empty_rows_of_a_picture_warn_and_those_of_a_tile_do_not():
    mask = np.ones(LARGE.shape, dtype=bool)
    mask[21] = False
    inpaint(LARGE, mask, **TILES, **QUICK)  # a warning would be an error
    mask[20:30] = False
    with pytest.warns(airnp.EmptyLineWarning):
        filled = inpaint(LARGE, mask, **QUICK)
    with pytest.warns(airnp.EmptyLineWarning):
        np.testing.assert_array_equal(filled, airnp.fit(LARGE, mask, **QUICK).completed())


# ------------------------------------------------------------------------------------------- memory and files


def test_large_pictures_go_from_file_to_file(tmp_path):
    pixels = as_kind(LARGE, "uint16")
    image, answer = (
        np.lib.format.open_memmap(tmp_path / name, "w+", "uint16", LARGE.shape) for name in ("in", "out")
    )
    image[:] = pixels
    assert inpaint(image, LARGE_MASK, out=answer, **TILES, **QUICK) is answer
    np.testing.assert_array_equal(answer, inpaint(pixels, LARGE_MASK, **TILES, **QUICK))
    np.testing.assert_array_equal(image, pixels)


def peak(height, width, folder):
    """Bytes allocated at most, with the picture, its mask and the answer in files."""
    image, mask, answer = (
        np.lib.format.open_memmap(folder / f"{name}-{height}-{width}", "w+", kind, (height, width))
        for name, kind in (("image", "float32"), ("mask", "bool"), ("answer", "float32"))
    )
    mask[:] = True
    mask[::9, ::7] = False
    mask[20:140, 20:140] = False  # larger than a tile: its surroundings are needed, too
    image[:] = np.arange(width) % 251
    tracemalloc.start()
    with pytest.warns(UserWarning, match="at a lower resolution"):
        inpaint(image, mask, out=answer, tile=64, overlap=8, seed=0, max_iter=1, stop=None, regularizers=[])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_memory_does_not_depend_on_the_size_of_the_picture(tmp_path):
    peak(176, 170, tmp_path)  # imports and compiles
    small = peak(176, 176, tmp_path)  # tiles of 64×64, as below
    strip = 8 * 1736 * 8  # between two rows of tiles, as wide as the picture
    assert peak(1912, 176, tmp_path) < 1.1 * small
    assert peak(176, 1912, tmp_path) < 1.1 * small + strip


# -------------------------------------------------------------------------------------------- other libraries


def record_places(monkeypatch):
    """Namespaces and devices that fits compute in, from now on."""
    places = []
    real = filling.fit

    def spy(Y, mask, **options):
        result = real(Y, mask, **options)
        places.append((compat.array_namespace(result.matrix), compat.device(result.matrix)))
        return result

    monkeypatch.setattr(filling, "fit", spy)
    return places


@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_the_answer_is_of_the_same_library(backend, kind, monkeypatch):
    picture = as_kind(COLOUR, kind)
    expected = inpaint(picture, MASK, engine="reference", **QUICK)
    places = record_places(monkeypatch)
    filled = inpaint(backend.array(picture), backend.array(MASK), engine="reference", **QUICK)
    like = backend.array(picture)
    assert type(filled) is type(like)
    assert filled.dtype == like.dtype
    assert compat.device(filled) == compat.device(like)
    assert places == [(compat.array_namespace(like), compat.device(like))] * 3
    np.testing.assert_allclose(to_numpy(filled), expected, rtol=1e-9, atol=1 if kind == "uint8" else 0)


def test_xp_chooses_the_library_that_computes(monkeypatch):
    strict = array_api_strict
    places = record_places(monkeypatch)
    filled = inpaint(GREY, MASK, xp=strict, device=strict.Device("device1"), **QUICK)
    assert places == [(strict, strict.Device("device1"))]
    assert type(filled) is np.ndarray
    expected = inpaint(GREY, MASK, engine="reference", **QUICK)
    np.testing.assert_allclose(filled, expected, rtol=1e-9)


# ---------------------------------------------------------------------------------------- progress, interrupt


def test_progress_counts_the_tiles_that_are_fitted(monkeypatch, capsys):
    FakeFit(monkeypatch)
    mask = np.ones(LARGE.shape, dtype=bool)
    mask[::2, :5] = False  # in the first column of tiles
    inpaint(LARGE, mask, progress=True, **TILES)
    assert "2/2" in capsys.readouterr().err
    inpaint(LARGE, mask, **TILES)
    assert capsys.readouterr().err == ""


def test_an_interrupt_ends_all_tiles(monkeypatch):
    fake = FakeFit(monkeypatch, stop_reason="interrupted")
    with pytest.raises(KeyboardInterrupt):
        inpaint(LARGE, LARGE_MASK, **TILES)
    assert len(fake.calls) == 1


# --------------------------------------------------------------------------------------------------- refusals

FROZEN = np.zeros(SHAPE)
FROZEN.flags.writeable = False
HOLE = np.where(MASK, GREY, np.nan)
BYTES = as_kind(GREY, "uint8")


@pytest.mark.parametrize(
    ("image", "options", "error", "message"),
    [
        (MASK, {"mask": MASK}, TypeError, r"^image: expected integers, float16.* got dtype bool"),
        (GREY + 1j, {"mask": MASK}, TypeError, r"^image: expected .* got dtype complex128"),
        ("a picture", {}, TypeError, r"^image: expected .* got dtype str"),
        ([[1.0, 2.0], [3.0]], {}, ValueError, r"^image: expected nested lists of equal lengths"),
        (np.ones(5), {}, ValueError, r"^image: expected two axes or more beside channels, got shape \(5,\)"),
        (np.ones((5, 3)), {"channel_axis": 1}, ValueError, r"^image: expected two axes or more"),
        (np.ones((5, 0)), {}, ValueError, r"^image: expected at least one pixel, got shape \(5, 0\)"),
        (BYTES, {}, ValueError, r"^mask: expected one, because an image of uint8 has no NaN"),
        (GREY, {"mask": MASK[1:]}, ValueError, r"^mask: expected shape \(20, 24\), got \(19, 24\)"),
        (
            STACK,
            {"mask": MASK.T},
            ValueError,
            r"^mask: expected shape \(2, 20, 24, 3\) or \(20, 24\) or \(2, 20, 24\), got \(24, 20\)",
        ),
        (GREY, {"mask": 255 * MASK}, ValueError, r"^mask: expected True/False or 1/0 .* found 255"),
        (GREY, {"mask": MASK + 1j}, TypeError, r"^mask: expected booleans or 0 and 1, got dtype complex128"),
        (GREY, {"mask": np.zeros(SHAPE)}, ValueError, r"^mask: no pixel is observed$"),
        (
            COLOUR,
            {"mask": np.stack([MASK, MASK, MASK & False], axis=-1)},
            ValueError,
            r"^mask: no pixel is observed in picture or channel \(2,\) of the stack",
        ),
        (GREY, {"channel_axis": 2}, ValueError, r"^channel_axis: expected an axis .* got 2"),
        (GREY, {"channel_axis": -3}, ValueError, r"^channel_axis: expected at least -2, got -3"),
        (
            GREY,
            {"channel_axis": "last"},
            ValueError,
            r"^channel_axis: expected a whole number, None or 'auto'",
        ),
        (GREY, {"channel_axis": 1.0}, TypeError, r"^channel_axis: expected a whole number, got 1.0"),
        (GREY, {"channels": "both"}, ValueError, r"^channels: expected 'apart' or 'together', got 'both'"),
        (GREY, {"channels": "together"}, ValueError, r"^channels: 'together' needs channels"),
        (GREY, {"tile": 8}, ValueError, r"^tile: expected at least 16, got 8"),
        (GREY, {"tile": 99.5}, TypeError, r"^tile: expected a whole number, got 99.5"),
        (GREY, {"tile": 60, "overlap": 21}, ValueError, r"^overlap: expected 0 to a third .* 20, got 21"),
        (GREY, {"overlap": -1}, ValueError, r"^overlap: expected at least 0, got -1"),
        (GREY, {"overlap": True}, TypeError, r"^overlap: expected a whole number, got True"),
        (GREY, {"bounds": 3}, TypeError, r"^bounds: expected \(low, high\), got 3"),
        (GREY, {"bounds": (2, 1)}, ValueError, r"^bounds: expected low <= high, got \(2, 1\)"),
        (GREY, {"bounds": (0, np.nan)}, ValueError, r"^bounds: expected a number, or None .* got nan"),
        (GREY, {"bounds": ("a", 1)}, TypeError, r"^bounds: expected a number, got 'a'"),
        (BYTES, {"mask": MASK, "bounds": (0, 256)}, ValueError, r"^bounds: .* within the range of uint8"),
        (
            BYTES,
            {"mask": MASK, "bounds": (1.2, 1.8)},
            ValueError,
            r"^bounds: expected a whole number between",
        ),
        (HOLE, {"out": FROZEN}, ValueError, r"^out: expected an array that may be written to"),
        (HOLE, {"out": HOLE[:]}, ValueError, r"^out: expected memory of its own, got that of image"),
        (
            HOLE,
            {"out": np.zeros((3, 3))},
            ValueError,
            r"^out: expected shape \(20, 24\) and dtype float64, got",
        ),
        (HOLE, {"out": np.zeros(SHAPE, "f4")}, ValueError, r"^out: .*dtype float64, got .* float32"),
        (HOLE, {"out": [[0.0]]}, TypeError, r"^out: expected a NumPy array, .* got list"),
        (
            array_api_strict.asarray(HOLE),
            {"out": GREY},
            TypeError,
            r"^out: expected a NumPy array, for an im",
        ),
        (HOLE, {"max_itre": 5}, TypeError, r"^max_itre: not an option of inpaint; .*max_iter"),
        (HOLE, {"checkpoint": "x.npz"}, TypeError, r"^checkpoint: not an option of inpaint"),
        (HOLE, {"offsets": True}, TypeError, r"^offsets: not an option of inpaint"),
        (HOLE, {"max_iter": 0}, ValueError, r"^max_iter: expected at least 1, got 0"),
        (HOLE, {"seed": -1}, ValueError, r"^seed: expected at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_refused(image, options, error, message):
    with pytest.raises(error, match=message):
        inpaint(image, **options)


@pytest.mark.parametrize("channels", ["apart", "together"])
def test_an_observed_pixel_that_is_not_finite_is_named(channels):
    video = np.moveaxis(np.stack([np.stack([LARGE] * 3, axis=-1)] * 2), -1, 1).copy()  # (T, C, H, W)
    video[1, 2, 65, 9] = np.inf
    with pytest.raises(
        ValueError, match=r"^image: observed .* first at \(1, 2, 65, 9\); mark them as missing"
    ):
        inpaint(video, LARGE_MASK | True, channel_axis=1, channels=channels, **TILES)
