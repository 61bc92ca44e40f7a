"""Smaller copies of a picture, and stages that stop in time, after an interrupt, and continue from a file."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp import masks
from airnp.commands.demo import scene
from airnp.images import inpainting, trials
from airnp.images.checkpoints import StageFile, fingerprint
from airnp.images.painting import Painter, Plan, State, count_levels, enlarge, shrink
from airnp.resemblance.patch_graph import GraphSettings
from airnp.resemblance.patches import Round
from airnp.resemblance.stages import Graph, Patches
from airnp.training.options import Checkpoint
from tests.strategies import seeds

PICTURE = scene(48).astype(np.float32)[np.newaxis, np.newaxis]
HOLE = np.ones(PICTURE.shape, bool)
HOLE[..., 14:32, 16:34] = False
PLAN = Plan((Graph(GraphSettings(search=5)), Patches(Round(search=5, neighbours=30, step=1.5)),
             Patches(Round(search=5, neighbours=30))))  # fmt: skip


def filled(painter: Painter | None = None, plan: Plan = PLAN) -> tuple[State, np.ndarray]:
    return (painter or Painter()).fill(np.where(HOLE, PICTURE, np.float32(0)), HOLE, plan)


# --- smaller copies ---


@given(st.integers(1, 9), st.integers(1, 9), seeds)
def test_shrink_takes_the_mean_of_what_is_observed(height, width, seed):
    rng = np.random.default_rng(seed)
    values, observed = rng.random((2, height, width)).astype("f"), rng.random((2, height, width)) < 0.6
    means, seen = shrink(np.where(observed, values, np.float32(np.nan)), observed)
    assert means.shape == seen.shape == (2, (height + 1) // 2, (width + 1) // 2)
    for place in np.ndindex(seen.shape):
        square = (place[0], *(slice(2 * k, 2 * k + 2) for k in place[1:]))
        known = values[square][observed[square]]
        assert seen[place] == (known.size >= min(2, values[square].size))
        np.testing.assert_allclose(means[place], known.mean() if seen[place] else 0, rtol=1e-6)


@given(st.integers(1, 12), st.integers(1, 12))
def test_enlarge_keeps_constants_and_continues_slopes(height, width):
    shape = ((height + 1) // 2, (width + 1) // 2)
    np.testing.assert_allclose(enlarge(np.full((3, *shape), 0.3, "f"), (height, width)), 0.3, rtol=1e-6)
    slope = np.add.outer(np.arange(height), 3.0 * np.arange(width)).astype("f")
    small, _ = shrink(slope, np.ones(slope.shape, bool))
    again = enlarge(small, slope.shape)
    inner = (slice(4, height - 5), slice(4, width - 5))
    np.testing.assert_allclose(again[inner], slope[inner], atol=1e-4)


def test_a_large_hole_needs_copies_and_scattered_gaps_do_not():
    observed = np.ones((1, 1, 128, 128), bool)
    assert count_levels(observed) == 0
    observed[..., 30:34, 30:34] = False
    assert count_levels(observed) == 0
    observed[..., 20:60, 20:60] = False
    assert count_levels(observed) == 3
    assert count_levels(observed[..., :62, :]) == 1, "a copy is not smaller than 16 pixels"
    scattered = masks.random((128, 128), 0.5, seed=0)
    assert count_levels(scattered[np.newaxis, np.newaxis]) == 0


def test_copies_make_a_hole_start_from_its_surroundings():
    slope = np.add.outer(np.linspace(0, 0.5, 64), np.linspace(0, 0.5, 64)).astype("f")[np.newaxis, np.newaxis]
    observed = np.ones(slope.shape, bool)
    observed[..., 16:48, 16:48] = False
    start = Painter().begin(np.where(observed, slope, np.float32(0)), observed, PLAN)
    np.testing.assert_allclose(start.values, slope, atol=0.05)
    np.testing.assert_array_equal(start.values[observed], slope[observed])
    assert (start.variances[~observed] > 0).all()
    assert (start.variances[observed] == 0).all()


# --- stops ---


class InterruptedPatches(Patches):
    def run(self, window, threads):
        raise KeyboardInterrupt


@pytest.mark.parametrize("before", range(4))
def test_an_interrupt_returns_the_picture_so_far(before):
    stages = PLAN.stages[:before]
    painter = Painter()
    state, start = filled(painter, Plan((*stages, InterruptedPatches(), *PLAN.stages), levels=False))
    expected, smooth = filled(plan=Plan(stages, levels=False))
    assert painter.stop_reason == "interrupted"
    np.testing.assert_array_equal(state.values, expected.values)
    np.testing.assert_array_equal(start, smooth)


def test_after_the_time_limit_only_the_smooth_surface_is_made():
    painter = Painter(deadline=time.monotonic() - 1)
    state, start = filled(painter)
    assert painter.stop_reason == "time limit"
    np.testing.assert_array_equal(state.values, start)
    assert np.isfinite(state.values).all()
    found = airnp.inpaint(PICTURE[0, 0], HOLE[0, 0], time_limit=1e-6, full=True)
    assert found.stop_reason == "time limit"
    assert np.isfinite(found.image).all()


def test_a_tile_is_left_out_only_if_it_has_no_gap():
    """Tiles of any size, as long as they consist of whole cells, and any number of threads: the same bits."""
    rng = np.random.default_rng(0)
    values = rng.random((1, 2, 150, 300)).astype("f")
    observed = np.ones(values.shape, bool)
    observed[:, 0, 100:140, 110:150] = rng.random((40, 40)) < 0.5
    observed[:, 1, :8, 280:] = rng.random((8, 20)) < 0.5
    results = [
        Painter(threads, tile).fill(np.where(observed, values, np.float32(0)), observed, PLAN)[0]
        for threads, tile in ((1, 128), (2, 256), (3, 512))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other.values, results[0].values)
        np.testing.assert_array_equal(other.variances, results[0].variances)


def test_progress_adds_up_to_the_cost():
    painter, done = Painter(), []
    painter.on_progress = lambda label, cost: done.append(cost)
    painter.fill(np.where(HOLE, PICTURE, np.float32(0)), HOLE, PLAN)
    total = painter.cost(HOLE, PLAN)
    assert total <= sum(done) <= 1.1 * total


# --- checkpoints ---


class StoppedError(Exception):
    pass


def stop_after(count, monkeypatch):
    """Let a run die when it has saved so many stages."""
    real, saves = StageFile.save, []

    def save(self, *state):
        real(self, *state)
        saves.append(state)
        if len(saves) == count:
            raise StoppedError

    monkeypatch.setattr(StageFile, "save", save)
    return saves


@pytest.fixture
def mixed(monkeypatch):
    """Let trials choose shares of the smooth surface, and of the filling without copies."""
    candidate = trials.Candidate(1, (Round(search=5, neighbours=30),), graph=GraphSettings(search=5))
    monkeypatch.setattr(inpainting, "choose", lambda *given: trials.Choice(candidate, flat=0.3, smooth=0.2))


# Two levels with 3 or 4 stages each, then the same without copies: 7 and 4 stages.
@pytest.mark.parametrize("count", range(1, 12))
def test_the_same_call_continues_to_the_same_bits(count, tmp_path, monkeypatch, mixed):
    file = Checkpoint(tmp_path / "work.npz", every=0)
    given = PICTURE[0, 0], HOLE[0, 0]
    expected = airnp.inpaint(*given, full=True)
    with monkeypatch.context() as patch:
        stop_after(count, patch)
        with pytest.raises(StoppedError):
            airnp.inpaint(*given, checkpoint=file)
    assert file.file.exists()
    with monkeypatch.context() as patch:
        saves = stop_after(100, patch)
        found = airnp.inpaint(*given, checkpoint=file, full=True)
    assert len(saves) == 11 - count
    np.testing.assert_array_equal(found.image, expected.image)
    np.testing.assert_array_equal(found.std, expected.std)
    assert list(tmp_path.iterdir()) == [], "it is removed at the end"


def test_an_interrupted_trial_leaves_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(Patches, "run", InterruptedPatches.run)
    file = Checkpoint(tmp_path / "work.npz", every=0)
    found = airnp.inpaint(PICTURE[0, 0], HOLE[0, 0], checkpoint=file, full=True)
    assert found.stop_reason == "interrupted"
    assert np.isfinite(found.image).all()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["picture", "mask", "settings"])
def test_a_foreign_checkpoint_is_refused(change, tmp_path, monkeypatch, mixed):
    file = Checkpoint(tmp_path / "work.npz", every=0)
    picture, mask = PICTURE[0, 0], HOLE[0, 0]
    with monkeypatch.context() as patch:
        stop_after(5, patch)
        with pytest.raises(StoppedError):
            airnp.inpaint(picture, mask, checkpoint=file)
    method = "auto"
    if change == "picture":
        picture = picture.copy()
        picture[0, 0] *= 0.5
    elif change == "mask":
        mask = mask.copy()
        mask[0, 0] = False
    else:
        method = "patches"
    before = file.file.read_bytes()
    with pytest.raises(
        ValueError, match=r"^checkpoint: .*work\.npz' is of another picture, mask or settings"
    ):
        airnp.inpaint(picture, mask, method=method, checkpoint=file)
    assert file.file.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no file of ours", b"PK\x03\x04 cut off"])
def test_a_corrupted_checkpoint_is_refused(content, tmp_path):
    path = tmp_path / "work.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^checkpoint: .*work\.npz' is not a checkpoint of inpaint"):
        airnp.inpaint(PICTURE[0, 0], HOLE[0, 0], method="patches", checkpoint=path)
    assert path.read_bytes() == content


def test_a_checkpoint_with_arrays_of_wrong_sizes_is_refused(tmp_path):
    file = StageFile(tmp_path / "work.npz", 0, "same")
    short = np.zeros((2, 2), np.float32)
    file.save(1, short, short, short == 0, None)
    again = StageFile(tmp_path / "work.npz", 0, "same")
    painter = Painter()
    painter.file = again
    with pytest.raises(ValueError, match=r"^checkpoint: the saved state does not fit"):
        filled(painter)
    np.savez(tmp_path / "work.npz", record=np.array('{"position": 1, "fingerprint": "same"}'), values=short,
             variances=short[0], start=short[0])  # fmt: skip
    with pytest.raises(ValueError, match=r"^checkpoint: .* arrays of wrong types or shapes"):
        StageFile(tmp_path / "work.npz", 0, "same")


def test_the_fingerprint_ignores_what_stands_in_gaps():
    seen = np.ones((1, 1, 4, 4), bool)
    seen[..., 1] = False
    values = np.random.default_rng(0).random(seen.shape)
    assert fingerprint(values, seen, "") == fingerprint(np.where(seen, values, 9), seen, "")
    assert fingerprint(values, seen, "") != fingerprint(values, ~seen, "")
    assert fingerprint(values, seen, "") != fingerprint(values, seen, "other")
