"""Masks: what each pattern drops, that seeds repeat, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import label

from airnp import masks

Maker = Callable[..., Any]

shapes = st.lists(st.integers(1, 12), min_size=2, max_size=4).map(tuple)
shares = st.floats(0, 1, exclude_max=True)
seeds = st.integers(0, 2**32)
RANDOM = [masks.random, masks.rows, masks.columns, masks.scratches]


@given(shape=shapes, missing=shares, seed=seeds)
def test_rows_drops_exactly_as_many_as_asked(shape: tuple[int, ...], missing: float, seed: int) -> None:
    mask = masks.rows(shape, missing, seed=seed)
    assert mask.shape == shape
    assert mask.dtype == np.bool_
    whole = mask.all(axis=-1)
    assert np.array_equal(whole, mask.any(axis=-1))  # a row is kept whole or dropped whole
    expected = min(round(missing * shape[-2]), shape[-2] - 1)
    assert np.all((~whole).sum(axis=-1) == expected)


@given(shape=shapes, missing=shares, seed=seeds)
def test_columns_are_the_rows_of_the_transpose(shape: tuple[int, ...], missing: float, seed: int) -> None:
    transposed = (*shape[:-2], shape[-1], shape[-2])
    expected = np.swapaxes(masks.rows(transposed, missing, seed=seed), -1, -2)
    assert np.array_equal(masks.columns(shape, missing, seed=seed), expected)


def test_random_drops_independently_at_the_given_rate() -> None:
    shape, missing = (40, 300, 200), 0.3
    dropped = ~masks.random(shape, missing, seed=3)
    assert dropped.shape == shape
    assert dropped.dtype == np.bool_
    # 2.4 million coins: six standard deviations of the share are 0.0018.
    assert abs(dropped.mean() - missing) < 0.0018
    # Neighbours, and the same entry of two problems, are dropped together as often as independence says.
    for both in (dropped[..., 1:] & dropped[..., :-1], dropped[1:] & dropped[:-1]):
        assert abs(both.mean() - missing**2) < 0.002
    assert masks.random((50, 60), 0, seed=0).all()


@pytest.mark.parametrize("maker", RANDOM)
def test_seeds_repeat(maker: Maker) -> None:
    shape = (3, 40, 30)
    first = maker(shape, seed=5)
    assert np.array_equal(first, maker(shape, seed=5))
    assert np.array_equal(first, maker(shape, seed=np.random.default_rng(5)))
    assert not np.array_equal(first, maker(shape, seed=6))
    assert not np.array_equal(maker(shape), maker(shape))


@pytest.mark.parametrize("maker", RANDOM)
def test_random_patterns_differ_within_a_stack(maker: Maker) -> None:
    mask = maker((4, 60, 50), seed=0)
    assert len({problem.tobytes() for problem in mask}) == 4


def test_patch_is_the_papers_and_scales_with_the_shape() -> None:
    expected = np.ones((240, 240), dtype=bool)
    expected[70:100, 150:190] = False
    expected[200:230, 200:230] = False
    assert np.array_equal(masks.patch(), expected)
    assert np.array_equal(masks.patch((3, 240, 240)), np.stack([expected] * 3))
    assert np.array_equal(masks.patch((480, 720)), np.kron(expected, np.ones((2, 3), dtype=bool)))


@given(m=st.integers(3, 300), n=st.integers(3, 300))
def test_patch_of_any_size_hides_two_boxes_near_the_papers_share(m: int, n: int) -> None:
    dropped = ~masks.patch((m, n))
    assert dropped[170 * m // 480, 340 * n // 480]  # the middle of the first box
    assert dropped[430 * m // 480, 430 * n // 480]  # and of the second
    # Rounding outwards adds less than one line at either side of a box.
    first = (30 * m / 240 + 2) * (40 * n / 240 + 2)
    second = (30 * m / 240 + 2) * (30 * n / 240 + 2)
    assert 2100 / 240**2 * m * n - 1e-6 <= dropped.sum() <= first + second


def test_patch_with_given_boxes() -> None:
    mask = masks.patch((4, 5), [(0, 1, 0, 5), (2, 4, 3, 4), (3, 4, 2, 4)])
    expected = [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 1], [1, 1, 0, 0, 1]]
    assert np.array_equal(mask, np.array(expected, dtype=bool))
    assert masks.patch((4, 5), []).all()


OUTSIDE = [(0, 5, 0, 1), (0, 1, 0, 6), (-1, 1, 0, 1), (2, 2, 0, 1), (0, 1, 3, 2), (0, 1, 2)]


@pytest.mark.parametrize("box", [*OUTSIDE, (0, 1.5, 0, 1), 7, "abcd"])
def test_patch_refuses_boxes_outside_or_not_of_int(box: Any) -> None:
    with pytest.raises(ValueError if box in OUTSIDE else TypeError, match="boxes: expected") as caught:
        masks.patch((4, 5), [(0, 1, 0, 1), box])
    assert repr(box) in str(caught.value)


@given(m=st.integers(1, 40), n=st.integers(1, 40), count=st.integers(0, 4), seed=seeds)
def test_scratches_are_segments_of_the_given_width(m: int, n: int, count: int, seed: int) -> None:
    width = 2.5
    mask = masks.scratches((m, n), count, width, seed=seed)
    # The same ends from the same generator, but the distance by sampling the segments densely.
    ends = np.random.default_rng(seed).uniform(-0.5, [m - 0.5, n - 0.5], size=(count, 2, 2))
    distance = np.full((m, n), np.inf)
    i, j = np.indices((m, n))
    for start, stop in ends:
        for t in np.linspace(0, 1, 400):
            p = (1 - t) * start + t * stop
            distance = np.minimum(distance, np.hypot(i - p[0], j - p[1]))
    # Samples are at most 40·√2/399 apart, so the sampled distance is off by at most half of that.
    assert not mask[distance <= width / 2].any()
    assert mask[distance > width / 2 + 0.071].all()


def test_scratches_hide_more_when_there_are_more_or_wider() -> None:
    def hidden(count: int, width: float) -> int:
        return int((~masks.scratches((100, 80), count, width, seed=4)).sum())

    assert hidden(0, 3) == 0
    assert 0 < hidden(5, 3) < hidden(20, 3)
    assert 0 < hidden(5, 1) < hidden(5, 3) < hidden(5, 6)


@pytest.mark.parametrize("width", [1, 3])
def test_one_scratch_is_one_connected_line(width: float) -> None:
    for seed in range(20):
        dropped = ~masks.scratches((60, 90), 1, width, seed=seed)
        assert label(dropped, structure=np.ones((3, 3)))[1] == 1


def test_from_image_takes_only_white_by_default() -> None:
    grey = np.array([[255, 254, 0], [128, 255, 255]], dtype=np.uint8)
    assert np.array_equal(masks.from_image(grey), grey == 255)
    assert np.array_equal(masks.from_image(grey, observed=128), grey >= 128)
    assert np.array_equal(masks.from_image(grey.tolist()), grey == 255)
    assert np.array_equal(masks.from_image(array_api_strict.asarray(grey)), grey == 255)
    assert np.array_equal(masks.from_image(grey / 255.0, observed=1.0), grey == 255)
    assert np.array_equal(masks.from_image(grey > 200), grey > 200)
    deep = np.array([[256, 65535], [65534, 0]], dtype=np.uint16)
    assert np.array_equal(masks.from_image(Image.fromarray(deep), observed=65535), deep == 65535)


def test_from_image_repeats_over_a_stack() -> None:
    picture = np.array([[255, 0], [0, 255]])
    mask = masks.from_image(picture, (3, 4, 2))
    expected = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=bool)
    assert np.array_equal(mask, np.stack([expected] * 3))
    mask[0] = True  # each problem's mask is its own memory
    assert np.array_equal(mask[1], expected)


@given(
    source=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    target=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    seed=seeds,
)
def test_from_image_resizes_as_pillow_does(source: Any, target: Any, seed: int) -> None:
    grey = np.where(np.random.default_rng(seed).random(source) < 0.5, 255, 0).astype(np.uint8)
    grey[0, 0] = 255
    resized = np.asarray(Image.fromarray(grey).resize(target[::-1], Image.Resampling.NEAREST)) == 255
    # Where a centre falls exactly between two pixels, Pillow's choice is that of its rounding errors.
    rows, columns = (
        np.flatnonzero((2 * np.arange(size) + 1) * length % (2 * size)) if length % size else np.arange(size)
        for size, length in zip(target, source, strict=True)
    )
    assert np.array_equal(
        masks.from_image(grey, target)[np.ix_(rows, columns)], resized[np.ix_(rows, columns)]
    )


@pytest.mark.parametrize("channels", [3, 4])
def test_from_image_makes_colours_grey_as_pillow_does(channels: int) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (64, 50, channels), dtype=np.uint8)
    colours[0, 0, :3] = 255
    grey = np.asarray(Image.fromarray(colours).convert("L"))
    for observed in (255, 200, 128, 127, 3):
        expected = grey >= observed
        assert np.array_equal(masks.from_image(colours, observed=observed), expected)
        assert np.array_equal(masks.from_image(Image.fromarray(colours), observed=observed), expected)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I", "F", "I;16"])
def test_from_image_reads_every_usual_mode(mode: str, tmp_path: Path) -> None:
    grey = np.where(np.arange(20).reshape(4, 5) % 3 == 0, 0, 255).astype(np.uint8)
    picture = (
        Image.fromarray(grey.astype(np.uint16)) if mode == "I;16" else Image.fromarray(grey).convert(mode)
    )
    assert picture.mode == mode
    assert np.array_equal(masks.from_image(picture), grey == 255)
    path = tmp_path / ("mask.tiff" if mode in ("I", "F") else "mask.png")
    picture.save(path)
    assert np.array_equal(masks.from_image(path), grey == 255)
    assert np.array_equal(masks.from_image(str(path)), grey == 255)


def test_from_image_reads_the_texture_mask_of_the_paper(data_directory: Path) -> None:
    path = data_directory / "texture_mask.png"
    mask = masks.from_image(path)
    assert mask.shape == (240, 240)
    assert int((~mask).sum()) == 5444  # 9.5 %
    assert np.array_equal(masks.from_image(path, (480, 480)), np.kron(mask, np.ones((2, 2), dtype=bool)))


def test_from_image_refuses_a_threshold_on_another_scale() -> None:
    with pytest.raises(ValueError, match=r"observed: .* got 255; the image lies between 0\.0 and 1\.0"):
        masks.from_image(np.eye(3))


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        *(
            (np.full(shape, 255), ValueError, "image: expected shape")
            for shape in [(4,), (2, 3, 2), (2, 3, 3, 3), (0, 3)]
        ),
        *((image, TypeError, "image: expected a path") for image in (None, np.eye(2) * 1j, [["a", "b"]])),
    ],
)
def test_from_image_refuses_what_is_no_image(image: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        masks.from_image(image)


def test_from_image_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.png"):
        masks.from_image(tmp_path / "absent.png")


def test_text_hides_letters_all_over_the_matrix() -> None:
    mask = masks.text((240, 320), "adaptive and implicit regularization for matrix completion", size=20)
    assert mask.shape == (240, 320)
    assert mask.dtype == np.bool_
    hidden = ~mask
    assert 0.05 < hidden.mean() < 0.3
    # Text, not noise: strokes join, so that most hidden entries have hidden neighbours on the left ...
    assert (hidden[:, 1:] & hidden[:, :-1]).sum() > 0.4 * hidden.sum()
    # ... lines part: ten lines of letters at a pitch of 24, with entries between them that are all observed.
    inked = np.concatenate([[False], hidden.any(axis=1), [False]])
    assert np.count_nonzero(inked[1:] & ~inked[:-1]) == 10
    # ... and every quarter of the matrix has its share.
    for quarter in hidden.reshape(2, 120, 2, 160).swapaxes(1, 2).reshape(4, 120, 160):
        assert quarter.mean() > 0.03


@pytest.mark.parametrize(("letter", "regions"), [("C", 1), ("O", 2), ("B", 3)])
def test_text_is_the_message(letter: str, regions: int) -> None:
    # One line of one letter: the next would not fit beside it. Then B has two insides, O one and C none.
    mask = masks.text((28, 24), letter, size=24)
    assert label(~mask, structure=np.ones((3, 3)))[1] == 1
    assert label(np.pad(mask, 1, constant_values=True))[1] == regions


def test_text_continues_where_the_line_ended() -> None:
    # Each word fills a line, so the words alternate; white space of any kind parts them.
    both = masks.text((48, 40), "MMMM\n iiiiiiii", size=20)
    first, second = both[:24], both[24:]
    assert np.array_equal(first, masks.text((24, 40), "MMMM", size=20))
    assert np.array_equal(second, masks.text((24, 40), "iiiiiiii", size=20))
    assert not np.array_equal(first, second)
    assert np.array_equal(masks.text((96, 40), "MMMM iiiiiiii", size=20), np.concatenate([both, both]))


def test_text_sizes_and_stacks() -> None:
    default = masks.text((120, 150), "airnp")
    assert np.array_equal(default, masks.text((120, 150), "airnp", size=12))
    assert not np.array_equal(default, masks.text((120, 150), "airnp", size=30))
    assert np.array_equal(masks.text((2, 3, 120, 150), "airnp"), np.broadcast_to(default, (2, 3, 120, 150)))
    assert not masks.text((8, 5), "airnp").all()  # as small as it gets, something is hidden


def test_pillow_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r'text needs Pillow: pip install "airnp\[images\]"'):
        masks.text((20, 20), "airnp")
    with pytest.raises(
        ImportError, match=r'from_image with a file needs Pillow: pip install "airnp\[images\]"'
    ):
        masks.from_image("mask.png")
    assert masks.from_image(np.full((2, 2), 255)).all()  # arrays need no Pillow


EVERY_SHAPED = [
    *RANDOM,
    masks.patch,
    lambda shape: masks.text(shape, "airnp"),
    lambda shape: masks.from_image(np.full((2, 2), 255), shape),
]


@pytest.mark.parametrize("maker", EVERY_SHAPED)
def test_shapes_are_checked(maker: Maker) -> None:
    for shape in [(), (5,), (0, 5), (5, -1), (0, 5, 5)]:
        with pytest.raises(ValueError, match="shape: expected") as caught:
            maker(shape)
        assert repr(shape) in str(caught.value)
    for shape in [5, (5.0, 5), "ab", (5, None)]:
        with pytest.raises(TypeError, match="shape: expected"):
            maker(shape)
    assert maker([np.int64(30), np.int32(20)]).shape == (30, 20)


@pytest.mark.parametrize("maker", [masks.random, masks.rows, masks.columns])
def test_shares_are_checked(maker: Maker) -> None:
    for missing in (-0.1, 1, 1.5, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"missing: expected a number in \[0, 1\), got "):
            maker((5, 5), missing)
    for missing in ("0.3", None, True, [0.3]):
        with pytest.raises(TypeError, match=r"missing: expected a number in \[0, 1\), got "):
            maker((5, 5), missing)
    assert maker((5, 5), np.float32(0.5)).shape == (5, 5)


@pytest.mark.parametrize(
    ("call", "argument", "error"),
    [
        (lambda: masks.scratches((5, 5), -1), "count", ValueError),
        (lambda: masks.scratches((5, 5), 2.0), "count", TypeError),
        (lambda: masks.scratches((5, 5), width=0.5), "width", ValueError),
        (lambda: masks.scratches((5, 5), width=np.inf), "width", ValueError),
        (lambda: masks.scratches((5, 5), width="3"), "width", TypeError),
        (lambda: masks.text((20, 20), ""), "message", ValueError),
        (lambda: masks.text((20, 20), " \n\t"), "message", ValueError),
        (lambda: masks.text((20, 20), b"a"), "message", TypeError),
        (lambda: masks.text((20, 20), "a", size=0), "size", ValueError),
        (lambda: masks.text((20, 20), "a", size=np.nan), "size", ValueError),
        (lambda: masks.text((20, 20), "a", size="big"), "size", TypeError),
        (lambda: masks.from_image(np.full((2, 2), 255), observed="white"), "observed", TypeError),
        (lambda: masks.from_image(np.full((2, 2), 255), observed=np.nan), "observed", ValueError),
    ],
)
def test_other_arguments_are_checked(call: Callable[[], Any], argument: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"{argument}: expected .*, got "):
        call()
