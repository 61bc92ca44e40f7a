"""Tiles cover a picture, their weights sum to one, and their blend has no seam and needs little memory."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airnp.images.tiles import Grid, Tile, blend, ramps, spans, square_sums, stretch, widen

RNG = np.random.default_rng(3)
SHAPES = [(40, 40), (100, 30), (30, 100), (63, 64), (20, 200), (16, 16), (17, 1), (131, 77)]


@st.composite
def axes(draw):
    """Length of an axis, size and overlap of tiles."""
    size = draw(st.integers(3, 40))
    return draw(st.integers(1, 300)), size, draw(st.integers(0, size // 3))


def assemble(grid, contents, leading=()):
    """Return the pieces as one picture; check that every pixel comes exactly once."""
    picture = np.full((*leading, grid.height, grid.width), np.nan)
    for piece, content in blend(grid, contents, leading):
        place = picture[..., piece.rows, piece.columns]
        assert place.shape == content.shape
        assert np.isnan(place).all(), "pieces overlap"
        place[...] = content
    assert not np.isnan(picture).any(), "a pixel is missing"
    return picture


# ---------------------------------------------------------------------------------------------- along an axis


@given(axes())
def test_spans_cover_an_axis_with_the_fewest_slices_of_one_length(axis):
    length, size, overlap = axis
    found = spans(length, size, overlap)
    assert found[0].start == 0
    assert found[-1].stop == length
    assert len({span.stop - span.start for span in found}) == 1
    assert found[0].stop <= size
    for one, other in itertools.pairwise(found):
        assert one.stop - other.start >= overlap
        assert one.start < other.start
    fewer = len(found) - 1
    assert fewer == 0 or fewer * size - (fewer - 1) * overlap < length


@given(axes())
def test_at_most_two_slices_have_an_entry_and_their_weights_sum_to_one(axis):
    length, size, overlap = axis
    count, total = np.zeros(length, dtype=int), np.zeros(length)
    for span, weights in zip(spans(length, size, overlap), ramps(spans(length, size, overlap)), strict=True):
        count[span] += 1
        total[span] += weights
        assert (weights > 0).all()
        assert (weights <= 1).all()
    assert count.min() >= 1
    assert count.max() <= 2
    np.testing.assert_allclose(total, 1, rtol=1e-15)


def test_weights_fall_towards_the_ends_that_have_a_neighbour():
    first, middle, last = ramps(spans(90, 40, 12))
    assert (np.diff(first) <= 0).all()
    assert (np.diff(last) >= 0).all()
    assert first[0] == last[-1] == middle[len(middle) // 2] == 1
    assert max(first[-1], last[0], middle[0], middle[-1]) < 0.01


@pytest.mark.parametrize("overlap", [-1, 11, 30])
def test_an_overlap_that_would_make_three_tiles_meet_is_refused(overlap):
    with pytest.raises(ValueError, match=rf"^overlap: expected 0 to a third .* 10, got {overlap}$"):
        spans(100, 30, overlap)


# --------------------------------------------------------------------------------------------------- blending


@pytest.mark.parametrize("overlap", [0, 1, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_of_a_picture_blend_to_the_picture(shape, overlap):
    picture = RNG.standard_normal((2, *shape))
    grid = Grid(*shape, 20, overlap)
    again = assemble(grid, lambda tile: picture[:, tile.rows, tile.columns], leading=(2,))
    np.testing.assert_allclose(again, picture, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_tile_is_used_once_with_its_weights(shape):
    grid = Grid(*shape, 20, 6)
    drawn = {(tile.rows.start, tile.columns.start): RNG.random(tile.shape) for tile in grid}
    assert len(drawn) == len(grid)
    expected = np.zeros(shape)
    for rows, down in zip(grid.rows, ramps(grid.rows), strict=True):
        for columns, across in zip(grid.columns, ramps(grid.columns), strict=True):
            expected[rows, columns] += np.outer(down, across) * drawn[rows.start, columns.start]
    left = dict(drawn)
    answer = assemble(grid, lambda tile: left.pop((tile.rows.start, tile.columns.start)))
    assert not left
    np.testing.assert_allclose(answer, expected, rtol=1e-13)


def test_tiles_of_different_brightness_fade_into_each_other():
    shade = itertools.cycle([0.0, 1.0, 1.0, 0.0, 0.5])
    picture = assemble(Grid(80, 80, 30, 10), lambda tile: np.full(tile.shape, next(shade)))
    for axis in (0, 1):
        steps = np.abs(np.diff(picture, axis=axis))
        assert 0.05 < steps.max() <= np.pi / 2 / 10


def test_none_counts_as_zeros():
    grid = Grid(50, 30, 30, 6)
    bottom = grid.rows[1].start
    picture = assemble(grid, lambda tile: None if tile.rows.start == 0 else np.ones((28, 30)))
    assert (picture[:bottom] == 0).all()
    assert (picture[28:] == 1).all()


def test_contents_are_not_modified():
    content = np.ones((30, 30))
    content.flags.writeable = False
    assemble(Grid(84, 84, 30, 3), lambda tile: content)


def peak(height, width):
    """Return the most bytes that blending tiles of 32×32 needs at a time."""
    content = np.ones((32, 32))
    pieces = blend(Grid(height, width, 32, 8), lambda tile: content)
    tracemalloc.start()
    for _ in pieces:
        pass
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_memory_grows_by_a_strip_for_the_width_and_by_nothing_for_the_height():
    small, tall, wide = peak(200, 200), peak(3200, 200), peak(200, 3200)
    line = 3000 * 8  # one more line of float64; the grid itself keeps a weight for each row and column
    assert tall - small < 4 * line
    assert wide - small < (4 + 8) * line


# ------------------------------------------------------------------------------------- surroundings of a tile


def test_a_widened_slice_keeps_its_centre_unless_the_axis_ends():
    assert widen(slice(40, 50), 1, 100) == slice(40, 50)
    assert widen(slice(40, 50), 4, 100) == slice(25, 65)
    assert widen(slice(0, 50), 4, 60) == slice(0, 60)


@pytest.mark.parametrize(("shape", "side"), [((2, 12, 9), 3), ((7, 11), 4), ((3, 3), 8)])
def test_square_sums_are_sums_over_squares(shape, side):
    values = RNG.integers(0, 255, shape).astype(np.uint8)
    expected = np.zeros((*shape[:-2], -(-shape[-2] // side), -(-shape[-1] // side)))
    for row, column in np.ndindex(shape[-2:]):
        expected[..., row // side, column // side] += values[..., row, column]
    np.testing.assert_array_equal(square_sums(values, side), expected)


@pytest.mark.parametrize("axis", [-2, -1])
def test_a_slope_survives_shrinking_and_stretching(axis):
    slope = np.arange(20.0, 68.0)
    region, part, factor = slice(20, 68), slice(30, 50), 4
    shrunk = np.broadcast_to(slope.reshape(-1, factor).mean(axis=1), (3, 12))
    shrunk = shrunk.T if axis == -2 else shrunk
    again = stretch(shrunk, region, part, factor, axis)
    expected = np.broadcast_to(np.arange(30.0, 50.0), (3, 20))
    np.testing.assert_allclose(again, expected.T if axis == -2 else expected, rtol=1e-14)


def test_beyond_the_outer_centres_a_stretched_axis_is_constant():
    again = stretch(np.array([[1.0, 3.0]]), slice(0, 8), slice(0, 8), 4, axis=-1)
    np.testing.assert_allclose(again, [[1, 1, 1.25, 1.75, 2.25, 2.75, 3, 3]])


def test_tiles_come_row_by_row():
    assert list(Grid(30, 50, 30, 10)) == [Tile(slice(0, 30), slice(0, 30)), Tile(slice(0, 30), slice(20, 50))]
