"""Stages compute a tile from its window to the same bits as from the whole picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt, gaussian_filter

from airnp.images.surfaces import biharmonic_surface
from airnp.resemblance.patch_graph import GraphSettings
from airnp.resemblance.patches import Round
from airnp.resemblance.stages import CELL, Graph, Harmonic, Patches, Smooth, Window, far_gaps, grid_laplacian
from tests.strategies import seeds

SHAPE = (141, 275)  # three columns and two rows of cells, the last ones small and odd

STAGES = {
    "harmonic": Harmonic(),
    "smooth": Smooth(),
    "graph": Graph(GraphSettings(search=4)),
    "small graph": Graph(GraphSettings(patch=3, search=3, neighbours=4, coupled=3)),
    "patches": Patches(Round(search=4, neighbours=20)),
    "long steps": Patches(Round(patch=5, stride=2, search=3, neighbours=16, step=1.7)),
}


def picture(frames=1, channels=2, seed=0):
    """Return a picture with gaps where cells meet, at the borders, and a hole."""
    rng = np.random.default_rng(seed)
    values = gaussian_filter(rng.random((frames, channels, *SHAPE)), (0, 0, 1, 1)).astype(np.float32)
    near = np.zeros(SHAPE, bool)
    near[110:], near[:, 120:136], near[:, 250:], near[:6] = True, True, True, True
    observed = (rng.random(values.shape) > 0.4) | ~near
    observed[..., 118:139, 240:262] = False
    observed[..., 20:28, 146:153] = False  # at the margin of the first cell
    variances = np.where(observed, 0, 1e-3 * rng.random(values.shape)).astype(np.float32)
    return values, variances, observed


def window(parts, frame, rows, columns, halo, neighbours=1):
    """Cut a tile with no more than its halo."""
    top, left = max(rows.start - halo, 0), max(columns.start - halo, 0)
    first = max(frame - neighbours, 0)
    cut = (slice(first, frame + neighbours + 1), slice(None), slice(top, rows.stop + halo),
           slice(left, columns.stop + halo))  # fmt: skip
    values, variances, observed = (np.ascontiguousarray(part[cut]) for part in parts)
    return Window(values, variances, observed, frame - first, top, left, SHAPE, rows, columns)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_tiles_have_the_same_bits_as_the_picture(stage, frames):
    parts, frame = picture(frames), frames // 2
    whole = stage.run(window(parts, frame, slice(0, SHAPE[0]), slice(0, SHAPE[1]), 0), 1)
    observed = parts[2][frame]
    assert not np.array_equal(whole[0], parts[0][frame])
    np.testing.assert_array_equal(whole[0][observed], parts[0][frame][observed])
    assert np.isfinite(whole[0]).all()
    for top in range(0, SHAPE[0], CELL):
        for left in range(0, SHAPE[1], CELL):
            rows, columns = slice(top, min(top + CELL, SHAPE[0])), slice(left, min(left + CELL, SHAPE[1]))
            tile = stage.run(window(parts, frame, rows, columns, stage.halo), 3)
            for found, expected in zip(tile, whole, strict=True):
                np.testing.assert_array_equal(found, expected[:, rows, columns])


def test_what_is_outside_the_halo_does_not_matter():
    """The halo is not too small: a change outside it changes nothing; and one inside does."""
    stage = STAGES["patches"]
    parts = picture()
    rows, columns = slice(0, CELL), slice(0, CELL)
    whole = slice(0, SHAPE[0]), slice(0, SHAPE[1])
    before = stage.run(window(parts, 0, *whole, 0), 1)[0][:, rows, columns]
    parts[0][..., CELL + stage.halo :] += 1
    np.testing.assert_array_equal(stage.run(window(parts, 0, *whole, 0), 1)[0][:, rows, columns], before)
    parts[0][..., CELL:] += 1
    assert not np.array_equal(stage.run(window(parts, 0, *whole, 0), 1)[0][:, rows, columns], before)


def test_patches_larger_than_the_picture_are_reduced():
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(1, 1, 3, 4)
    observed = np.ones(values.shape, bool)
    observed[..., 1, 1] = False
    one = Window(values, 0 * values, observed, 0, 0, 0, (3, 4), slice(0, 3), slice(0, 4))
    new, _ = Patches(Round(patch=9, stride=4)).run(one, 1)
    smaller, _ = Patches(Round(patch=3, stride=3)).run(one, 1)
    np.testing.assert_array_equal(new, smaller)


def test_smooth_surfaces_continue_what_they_touch():
    """Slopes are biharmonic; harmonic surfaces stay between their ends.

    Conjugate gradients stop at a residual of all pixels, which says less of single ones: they are compared
    with an exact solution within a fraction of a step of the slope, and the exact solution with the slope.
    """
    slope = np.add.outer(np.linspace(0, 1, 40), np.linspace(0, 2, 40)).astype("f")[np.newaxis, np.newaxis]
    observed = np.random.default_rng(0).random(slope.shape) > 0.4
    start = np.where(observed, slope, np.float32(1.5))
    one = Window(start, 0 * start, observed, 0, 0, 0, (40, 40), slice(0, 40), slice(0, 40))
    smooth, variances = Smooth().run(one, 1)
    exact = biharmonic_surface(start[0, 0].astype(np.float64), observed[0, 0])
    np.testing.assert_allclose(exact[3:-3, 3:-3], slope[0, 0, 3:-3, 3:-3], atol=2e-3)
    np.testing.assert_allclose(smooth[0], exact, atol=1e-2)
    np.testing.assert_array_equal(variances > 0, ~observed[0])
    harmonic, _ = Harmonic().run(one, 1)
    assert harmonic.min() >= start[observed].min() - 1e-4
    assert harmonic.max() <= start[observed].max() + 1e-4


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.02, 0.98), seeds)
def test_far_gaps_are_those_beyond_a_disc(height, width, share, seed):
    observed = np.random.default_rng(seed).random((2, height, width)) < share
    found = far_gaps(observed)
    for far, seen in zip(found, observed, strict=True):
        expected = distance_transform_edt(~seen) > 2.5 if seen.any() else np.ones(seen.shape, bool)
        np.testing.assert_array_equal(far, expected)


@given(st.integers(1, 7), st.integers(1, 7), seeds)
def test_grid_laplacian_adds_differences_to_the_four_next_pixels(height, width, seed):
    x = np.random.default_rng(seed).random((height, width)).astype(np.float32)
    expected = np.zeros_like(x)
    for y in range(height):
        for u in range(width):
            for v, w in ((y - 1, u), (y + 1, u), (y, u - 1), (y, u + 1)):
                if 0 <= v < height and 0 <= w < width:
                    expected[y, u] += x[y, u] - x[v, w]
    np.testing.assert_allclose(grid_laplacian(height, width) @ x.ravel(), expected.ravel(), atol=1e-5)
