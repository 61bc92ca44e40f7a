"""``inpaint``: kinds of pictures, masks and bounds; videos, cubes, tiny pictures; refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import array_api_compat as compat
import array_api_strict
import numpy as np
import pytest

import airnp
from airnp import masks
from airnp._arrays import to_numpy
from airnp.commands.demo import scene
from airnp.images import inpainting
from airnp.images.inpainting import inpaint
from airnp.resemblance.stages import Patches

AIR: dict[str, Any] = {"method": "air", "max_iter": 30, "stop": None, "seed": 3, "regularizers": None}
QUICK: dict[str, Any] = {"quality": "fast", "method": "patches"}
SHAPE = (20, 24)
HEIGHT, WIDTH = SHAPE
GREY = scene(24)[:HEIGHT]
COLOUR = np.stack([GREY, GREY[::-1], 1 - GREY], axis=-1)
MASK = masks.random(SHAPE, 0.3, seed=0)
METHODS = ["auto", "patches", "air", "biharmonic", "linear"]


def options(method: str) -> dict[str, Any]:
    return AIR if method == "air" else {"method": method}


def error(found: Any, truth: Any, mask: Any) -> float:
    return float(np.abs(found - truth.astype(float))[~mask].mean())


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
        self.monkeypatch.setattr(inpainting, "fit", self)

    def __call__(self, Y, mask, **options):
        assert mask.any(), "airnp.fit refuses to fit nothing"
        self.calls.append((Y, mask, options))
        self.matrix = np.full(Y.shape, self.answer)
        return self


# --- kinds of pictures ---


@pytest.mark.parametrize("method", ["auto", "linear", "biharmonic"])
@pytest.mark.parametrize("kind", ["uint8", "int16", ">u2", "int64", "float16", "float32", "float64"])
def test_the_dtype_and_the_observed_pixels_are_kept(kind, method):
    picture = as_kind(COLOUR, kind)
    hidden = picture.copy()
    hidden[~MASK] = 7
    copy, mask = hidden.copy(), MASK.copy()
    hidden.flags.writeable = mask.flags.writeable = False
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    filled = inpaint(hidden, mask, method=method)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert filled.dtype == picture.dtype
    assert filled.shape == picture.shape
    np.testing.assert_array_equal(filled[MASK], picture[MASK])
    np.testing.assert_array_equal(hidden, copy)
    size = float(picture.max()) - float(picture.min())
    assert error(filled, picture, MASK) < 0.2 * size


def test_air_has_total_variation_beside_the_graphs_by_default():
    settings = {name: value for name, value in AIR.items() if name not in ("regularizers", "method")}
    chosen = [*airnp.regularizers.default_regularizers(), airnp.TotalVariation()]
    expected = airnp.fit(GREY, MASK, regularizers=chosen, **settings).completed()
    np.testing.assert_array_equal(inpaint(GREY, MASK, method="air", **settings), expected)


def test_air_completes_each_channel_as_fit_does():
    own = {name: value for name, value in AIR.items() if name != "method"}
    filled = inpaint(COLOUR, MASK, **AIR)
    for channel in range(3):
        expected = airnp.fit(COLOUR[..., channel], MASK, **own).completed()
        np.testing.assert_array_equal(filled[..., channel], expected)


def test_air_gets_the_options_of_fit(monkeypatch):
    fake = FakeFit(monkeypatch)
    given = {"max_iter": 5, "seed": 1, "regularizers": [], "stop": None, "device": "cpu"}
    inpaint(GREY, MASK, method="air", xp=np, **given)
    ((_, _, got),) = fake.calls
    assert got == {**given, "xp": np, "progress": False}


def test_an_interrupt_of_air_is_one_of_inpaint(monkeypatch):
    fake = FakeFit(monkeypatch, stop_reason="interrupted")
    with pytest.raises(KeyboardInterrupt):
        inpaint(COLOUR, MASK, method="air")
    assert len(fake.calls) == 1


@pytest.mark.parametrize("method", METHODS)
def test_gaps_are_told_by_a_mask_or_by_nan(method):
    expected = inpaint(GREY, MASK, **options(method))
    for image, mask in [
        (np.where(MASK, GREY, np.nan), None),
        (GREY.tolist(), MASK.tolist()),
        (GREY, 255 * MASK.astype(np.uint8)),
        (GREY, MASK.astype(float)),
        (np.where(MASK, GREY, 1e300), MASK),
        (np.where(MASK, GREY, np.inf), MASK),
    ]:
        np.testing.assert_array_equal(inpaint(image, mask, **options(method)), expected)


STACK = np.stack([COLOUR, COLOUR[:, ::-1]])  # (T, H, W, C)
OWN = masks.random((2, 3, *SHAPE), 0.3, seed=1).transpose(0, 2, 3, 1)


@pytest.mark.parametrize("place", [0, 1, 2, 3, -1, -4])
def test_channels_may_be_on_any_axis(place):
    expected = inpaint(STACK, OWN, **QUICK)
    moved = [np.moveaxis(array, -1, place) for array in (STACK, OWN)]
    filled = inpaint(*moved, channel_axis=place, **QUICK)
    np.testing.assert_array_equal(np.moveaxis(filled, place, -1), expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_stack_is_filled_picture_by_picture(method):
    filled = inpaint(STACK, OWN, **options(method))
    for one, picture, mask in zip(filled, STACK, OWN, strict=True):
        np.testing.assert_array_equal(one, inpaint(picture, mask, **options(method)))


def test_each_picture_of_a_stack_has_intervals_by_its_own_trials():
    rough = np.random.default_rng(0).random(GREY.shape)
    pictures, gaps = (GREY, 0.5 * GREY + 0.5 * rough), ~MASK
    both = inpaint(np.stack(pictures), MASK, channel_axis=None, bounds=(0, 1), full=True)
    low, high = both.interval(0.8)
    for number, picture in enumerate(pictures):
        alone = inpaint(picture, MASK, bounds=(0, 1), full=True)
        np.testing.assert_allclose(both.std[number][gaps], alone.std[gaps], rtol=1e-5)
        for end, own in zip((low, high), alone.interval(0.8), strict=True):
            np.testing.assert_allclose(end[number], own, rtol=1e-5)


def test_the_summary_has_no_pixels():
    found = inpaint(COLOUR, MASK, full=True)
    assert repr(found).startswith("Inpainting(")
    assert "auto: patch 4, search 10, neighbours 64, rounds" in repr(found)
    assert f"expected error {found.expected:.3g} ±" in repr(found)
    assert len(repr(found)) < 200
    assert "linear; done after" in repr(inpaint(GREY, MASK, method="linear", full=True))


def test_a_complete_picture_of_a_stack_does_not_hide_what_trials_found():
    mask = np.stack([MASK | True, MASK])
    found = inpaint(STACK, mask, full=True)
    alone = inpaint(STACK[1], MASK, full=True)
    assert found.expected == alone.expected > 0
    assert found.chosen == alone.chosen
    np.testing.assert_array_equal(found.std, np.stack([0 * alone.std, alone.std]))


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
        np.testing.assert_array_equal(inpaint(first[0], shared, channel_axis=0, **QUICK), first[1])


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


@pytest.mark.parametrize("method", METHODS)
def test_nothing_missing_is_a_copy(monkeypatch, method):
    fake = FakeFit(monkeypatch)
    found = inpaint(GREY, method=method, full=True)
    assert not fake.calls
    assert not np.may_share_memory(found.image, GREY)
    np.testing.assert_array_equal(found.image, GREY)
    assert found.stop_reason == "done"
    if method in ("auto", "patches"):
        assert not found.std.any()
    else:
        assert found.std is None


@pytest.mark.parametrize(
    ("shape", "axis"), [((30, 40, 1), 2), ((30, 40, 4), 2), ((9, 30, 40, 3), 3), ((2, 9, 30, 40, 3), 4)]
)
def test_a_short_last_axis_is_taken_for_channels(monkeypatch, shape, axis):
    fake = FakeFit(monkeypatch)
    inpaint(np.ones(shape), np.eye(30, 40) == 0, method="air")
    assert len(fake.calls) == np.prod(shape) // 1200
    assert all(Y.shape == (30, 40) for Y, _, _ in fake.calls)


@pytest.mark.parametrize("shape", [(30, 40, 5), (3, 30, 40), (3, 40, 4), (7, 30, 40, 31)])
def test_other_shapes_need_a_channel_axis(shape):
    with pytest.raises(ValueError, match=r"^channel_axis: cannot tell .*expected its number, or None"):
        inpaint(np.full(shape, np.nan))


# --- channels, videos and cubes ---


def test_channels_share_what_they_know():
    """An alpha channel with gaps of its own; a channel is filled better if another shows what it hides."""
    side = 40
    grey = scene(side) + 0.05 * np.random.default_rng(0).standard_normal((side, side))
    gaps = [masks.random((side, side), 0.5, seed=seed) for seed in (0, 0, 0, 1)]
    image = np.stack([grey, grey**2, 1 - grey, 0.5 * grey], axis=-1)
    together = inpaint(image, np.stack(gaps, axis=-1))
    alone = inpaint(image[..., 3], gaps[3])
    assert error(together[..., 3], image[..., 3], gaps[3]) < 0.7 * error(alone, image[..., 3], gaps[3])


@pytest.mark.parametrize("method", METHODS)
def test_a_channel_without_any_observed_pixel_is_filled_somehow(method):
    mask = np.stack([MASK, MASK[::-1], MASK & False], axis=-1)
    filled = inpaint(COLOUR, mask, **options(method))
    assert np.isfinite(filled).all()
    np.testing.assert_array_equal(filled[mask], COLOUR[mask])
    known = COLOUR[mask]
    margin = 0.05 * np.ptp(known)
    if method != "air":
        assert known.min() - margin <= filled.min() <= filled.max() <= known.max() + margin


def test_frames_beside_a_frame_join_the_search():
    rng = np.random.default_rng(0)
    still = rng.random((32, 44))  # noise: only another frame knows what is missing
    video = np.stack([still[:, shift : shift + 32] for shift in range(0, 8, 2)])
    mask = np.stack([masks.random((32, 32), 0.4, seed=seed) for seed in range(4)])
    alone = inpaint(video, mask, channel_axis=None, method="patches")
    joined = inpaint(video, mask, channel_axis=None, time_axis=0, method="patches")
    assert error(joined, video, mask) < 0.9 * error(alone, video, mask)
    last = inpaint(np.moveaxis(video, 0, 2), np.moveaxis(mask, 0, 2), channel_axis=None, time_axis=2,
                   method="patches")  # fmt: skip
    np.testing.assert_array_equal(np.moveaxis(last, 2, 0), joined)


def test_a_spectral_cube_of_many_channels():
    side, rng = 32, np.random.default_rng(0)
    abundances = np.stack([scene(side), scene(side)[::-1], scene(side).T])
    cube = np.tensordot(rng.random((30, 3)), abundances, 1)  # (30, H, W)
    mask = masks.random((side, side), 0.3, seed=0)
    found = inpaint(cube, mask, channel_axis=0, full=True)
    plain = inpaint(cube, mask, channel_axis=0, method="linear")
    every = np.broadcast_to(mask, cube.shape)
    assert error(found.image, cube, every) < error(plain, cube, every)
    assert found.std.shape == cube.shape


def test_an_interrupt_ends_all_portions_of_channels(monkeypatch):
    real, runs = Patches.run, []

    def run(self, window, threads):
        runs.append(window)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return real(self, window, threads)

    monkeypatch.setattr(Patches, "run", run)
    cube = np.stack([GREY] * 60)
    found = inpaint(cube, MASK, channel_axis=0, method="patches", full=True)
    assert found.stop_reason == "interrupted"
    assert len(runs) == 2
    assert np.isfinite(found.image).all()


# --- small, empty and constant pictures ---


@pytest.mark.parametrize("method", ["auto", "patches", "biharmonic", "linear"])
@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (1, 40), (40, 1), (3, 4), (5, 40), (2, 30)])
def test_pictures_smaller_than_a_patch(shape, method):
    picture = np.add.outer(np.linspace(0, 1, shape[0]), np.linspace(0, 1, shape[1]))
    mask = np.ones(shape, bool)
    mask.flat[1 :: max(2, mask.size // 8)] = False
    filled = inpaint(picture, mask, method=method)
    np.testing.assert_array_equal(filled[mask], picture[mask])
    assert picture[mask].min() - 0.1 <= filled.min() <= filled.max() <= picture[mask].max() + 0.1


def test_a_patch_larger_than_the_picture():
    filled = inpaint(GREY[:8, :9], MASK[:8, :9], patch=40)
    assert np.isfinite(filled).all()


@pytest.mark.parametrize("method", ["auto", "patches", "biharmonic", "linear"])
def test_one_observed_pixel_is_everywhere(method):
    picture = np.full((40, 33), np.nan)
    picture[39, 2] = 0.75
    np.testing.assert_allclose(inpaint(picture, method=method), 0.75, atol=1e-6)


@pytest.mark.parametrize("kind", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("method", ["auto", "patches", "biharmonic", "linear"])
def test_a_constant_picture_stays_constant(method, kind):
    picture = np.full((*SHAPE, 3), 7, kind)
    np.testing.assert_allclose(inpaint(picture, MASK, method=method), picture, rtol=1e-6)


@pytest.mark.parametrize(("scale", "offset"), [(1, 1e6), (1e-6, 0), (300, -20), (1e30, 0), (-1, 3)])
def test_the_answer_follows_scale_and_offset(scale, offset):
    expected = inpaint(GREY, MASK, full=True)
    found = inpaint(scale * GREY + offset, MASK, full=True)
    if scale > 0:
        np.testing.assert_allclose(found.image, scale * expected.image + offset, atol=1e-3 * scale)
        assert found.expected == pytest.approx(scale * expected.expected, rel=1e-2)
    else:
        np.testing.assert_allclose(found.image, scale * expected.image + offset, atol=0.05)


@pytest.mark.parametrize(("kind", "most"), [("float16", 65504.0), ("float32", 3.4e38), ("float64", 8e307)])
def test_the_whole_range_of_a_dtype(kind, most):
    picture = ((2 * GREY - 1) * most).astype(kind)
    filled = inpaint(picture, MASK)
    assert np.isfinite(filled).all()
    assert error(filled / most, picture / most, MASK) < 0.4


def test_threads_do_not_change_the_answer():
    one, two = (inpaint(COLOUR, MASK, threads=threads, full=True) for threads in (1, 2))
    np.testing.assert_array_equal(one.image, two.image)
    np.testing.assert_array_equal(one.std, two.std)


def test_progress_is_shown_if_wanted(capsys):
    inpaint(GREY, MASK, progress=True, **QUICK)
    assert "100%" in capsys.readouterr().err
    inpaint(GREY, MASK, **QUICK)
    assert capsys.readouterr().err == ""


# --- bounds ---


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
    filled = inpaint(picture, mask, bounds=bounds, method="air")
    assert filled.dtype == kind
    np.testing.assert_array_equal(filled[~mask], expected)
    np.testing.assert_array_equal(filled[mask], picture[mask])


@pytest.mark.parametrize("method", ["auto", "linear"])
def test_bounds_hold_for_every_method(method):
    filled = inpaint(GREY, MASK, bounds=(0.4, 0.5), method=method)[~MASK]
    assert 0.4 <= filled.min() <= filled.max() <= 0.5


# --- files and other libraries ---


def test_large_pictures_go_from_file_to_file(tmp_path):
    pixels = as_kind(GREY, "uint16")
    image, answer = (
        np.lib.format.open_memmap(tmp_path / name, "w+", "uint16", GREY.shape) for name in ("in", "out")
    )
    image[:] = pixels
    assert inpaint(image, MASK, out=answer) is answer
    np.testing.assert_array_equal(answer, inpaint(pixels, MASK))
    np.testing.assert_array_equal(image, pixels)


def record_places(monkeypatch):
    """Namespaces and devices that fits compute in, from now on."""
    places = []
    real = inpainting.fit

    def spy(Y, mask, **options):
        result = real(Y, mask, **options)
        places.append((compat.array_namespace(result.matrix), compat.device(result.matrix)))
        return result

    monkeypatch.setattr(inpainting, "fit", spy)
    return places


@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_the_answer_is_of_the_same_library(backend, kind, monkeypatch):
    picture = as_kind(COLOUR, kind)
    expected = inpaint(picture, MASK, engine="reference", **AIR)
    places = record_places(monkeypatch)
    filled = inpaint(backend.array(picture), backend.array(MASK), engine="reference", **AIR)
    like = backend.array(picture)
    assert type(filled) is type(like)
    assert filled.dtype == like.dtype
    assert compat.device(filled) == compat.device(like)
    assert places == [(compat.array_namespace(like), compat.device(like))] * 3
    np.testing.assert_allclose(to_numpy(filled), expected, rtol=1e-9, atol=1 if kind == "uint8" else 0)


def test_xp_chooses_the_library_that_computes(monkeypatch):
    strict = array_api_strict
    places = record_places(monkeypatch)
    filled = inpaint(GREY, MASK, xp=strict, device=strict.Device("device1"), **AIR)
    assert places == [(strict, strict.Device("device1"))]
    assert type(filled) is np.ndarray
    expected = inpaint(GREY, MASK, engine="reference", **AIR)
    np.testing.assert_allclose(filled, expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["uint8", "float64"])
def test_patches_of_other_libraries_come_back_there(backend, kind):
    picture = as_kind(COLOUR, kind)
    filled = inpaint(backend.array(picture), backend.array(MASK), **QUICK)
    like = backend.array(picture)
    assert (type(filled), filled.dtype) == (type(like), like.dtype)
    np.testing.assert_array_equal(to_numpy(filled), inpaint(picture, MASK, **QUICK))


# --- refusals ---

FROZEN = np.zeros(SHAPE)
FROZEN.flags.writeable = False
HOLE = np.where(MASK, GREY, np.nan)
BYTES = as_kind(GREY, "uint8")


@pytest.mark.parametrize(
    ("image", "given", "refusal", "message"),
    [
        (MASK, {"mask": MASK}, TypeError, r"^image: expected integers, float16.* got dtype bool"),
        (GREY + 1j, {"mask": MASK}, TypeError, r"^image: expected .* got dtype complex128"),
        ("a picture", {}, TypeError, r"^image: expected .* got dtype str"),
        ([[1.0, 2.0], [3.0]], {}, ValueError, r"^image: expected nested lists of equal lengths"),
        (
            np.ones(5),
            {},
            ValueError,
            r"^image: expected two axes or more beside channels and time, got shape \(5,\)",
        ),
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
        (GREY, {"mask": 3 * MASK}, ValueError, r"^mask: expected True/False, 1/0 or 255/0 .* found 3"),
        (
            GREY,
            {"mask": np.arange(480).reshape(SHAPE) % 2 * MASK * 254 + MASK},
            ValueError,
            r"^mask: .*found both",
        ),
        (
            GREY,
            {"mask": MASK + 1j},
            TypeError,
            r"^mask: expected booleans, 0 and 1, or 0 and 255, got dtype complex128",
        ),
        (GREY, {"mask": np.zeros(SHAPE)}, ValueError, r"^mask: no pixel is observed$"),
        (
            STACK,
            {"mask": np.stack([MASK, MASK & False])},
            ValueError,
            r"^mask: no pixel is observed in picture \(1,\) of the stack",
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
        (STACK, {"channel_axis": 3, "time_axis": 3}, ValueError, r"^time_axis: expected another axis"),
        (STACK, {"time_axis": 4}, ValueError, r"^time_axis: expected an axis .* got 4"),
        (GREY, {"time_axis": 0}, ValueError, r"^image: expected two axes or more beside channels and time"),
        (GREY, {"method": "telea"}, ValueError, r"^method: expected .*'auto'.* got 'telea'"),
        (GREY, {"quality": "good"}, ValueError, r"^quality: expected .*'best'.* got 'good'"),
        (GREY, {"patch": 1}, ValueError, r"^patch: expected at least 2, got 1"),
        (GREY, {"patch": 5.5}, TypeError, r"^patch: expected a whole number, got 5.5"),
        (GREY, {"search": 0}, ValueError, r"^search: expected at least 1, got 0"),
        (GREY, {"neighbours": 3}, ValueError, r"^neighbours: expected at least 4, got 3"),
        (GREY, {"threads": 0}, ValueError, r"^threads: expected at least 1, got 0"),
        (GREY, {"time_limit": 0}, ValueError, r"^time_limit: expected more than 0 seconds, got 0"),
        (GREY, {"time_limit": "long"}, TypeError, r"^time_limit: expected a number, got 'long'"),
        (GREY, {"checkpoint": 5}, TypeError, r"^checkpoint: expected a path, got int"),
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
        (HOLE, {"max_iter": 5}, TypeError, r"^max_iter: an option of airnp.fit, which needs method='air'"),
        (
            HOLE,
            {"max_itre": 5, "method": "air"},
            TypeError,
            r"^max_itre: not an option of inpaint; .*max_iter",
        ),
        (HOLE, {"offsets": True, "method": "air"}, TypeError, r"^offsets: not an option of inpaint"),
        (HOLE, {"max_iter": 0, "method": "air"}, ValueError, r"^max_iter: expected at least 1, got 0"),
        (HOLE, {"seed": -1}, ValueError, r"^seed: expected at least 0, got -1"),
    ],
)
def test_wrong_arguments_are_refused(image, given, refusal, message):
    with pytest.raises(refusal, match=message):
        inpaint(image, **given)


def test_an_observed_pixel_that_is_not_finite_is_named():
    video = np.moveaxis(STACK, -1, 1).copy()  # (T, C, H, W)
    video[1, 2, 15, 9] = np.inf
    for given in ({}, {"time_axis": 0}):
        with pytest.raises(
            ValueError, match=r"^image: observed .* first at \(1, 2, 15, 9\); mark them as missing"
        ):
            inpaint(video, MASK | True, channel_axis=1, **given)
