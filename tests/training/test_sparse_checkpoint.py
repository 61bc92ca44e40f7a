"""A sparse run that was stopped and resumed ends like one that never was, bit for bit."""

from __future__ import annotations

import itertools
import json
import os
import signal
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from airnp.training.sparse_loop import SparseLoop, SparseTraining
from hypothesis import given, settings
from hypothesis import strategies as st

import airnp
from airnp import (
    Adam,
    AdaptiveLaplacian,
    EnergyChange,
    ExponentialDecay,
    FixedLaplacian,
    GradientDescent,
    HeldOut,
    WeightDecay,
)
from airnp.training import sparse_watch as watching
from airnp.training.checkpoints import Checkpoint
from airnp.training.stopping import LastOfTheBest
from tests.sparse_results import assert_same
from tests.training.test_checkpoint import CrashError, goes_at, killed, print_nothing, save_now_and_then

M, N = 17, 13
RNG = np.random.default_rng(5)
TRUTH = 3 + RNG.standard_normal((M, 2)) @ RNG.standard_normal((2, N)) + 0.2 * RNG.standard_normal((M, N))
MASK = RNG.random(TRUTH.shape) < 0.6
MASK[0] = MASK[:, 0] = True
S = scipy.sparse.csr_array(np.where(MASK, TRUTH, 0))
RING = scipy.sparse.csr_array(np.roll(np.eye(N), 1, axis=1) + np.roll(np.eye(N), -1, axis=1))
NEAREST = AdaptiveLaplacian("rows", 1e-2, neighbors=4, refresh=7)
DECAY = [WeightDecay(1e-3, "sqrt"), WeightDecay(1e-3, on="mask")]
QUICK = HeldOut(0.1, patience=20, every=5)
COMMON = {"form": "sparse", "rank": 3, "depth": 2, "seed": 5, "init": airnp.Gaussian(0.1, 0.3), "threads": 1}


def slower(step: int) -> float:
    return 1 / step


class Own:
    """A user's own start."""

    def draw(self, rng: np.random.Generator, m: int, n: int, depth: int, rank: int) -> list[Any]:
        return [0.3 * factor for factor in airnp.Gaussian(0.5, 1.0).draw(rng, m, n, depth, rank)]


Case = tuple[dict[str, Any], tuple[str, ...]]
"""Options, and the names of those that must be given again."""

CASES: dict[str, Case] = {
    "factors": ({"regularizers": [], "stop": None, "max_iter": 45}, ()),
    "nearest neighbours": (
        {
            "regularizers": [NEAREST, AdaptiveLaplacian("columns", neighbors=3, refresh=10)],
            "stop": None,
            "max_iter": 45,
        },
        (),
    ),
    "all candidates, depth 3, float32": (
        {"regularizers": None, "depth": 3, "dtype": "float32", "max_iter": 60, "stop": QUICK},
        (),
    ),
    "given graphs": (
        {
            "regularizers": [
                AdaptiveLaplacian("columns", 1e-2, candidates=RING),
                FixedLaplacian(RING, "columns"),
            ],
            "stop": HeldOut(0.1, every=7),
            "max_iter": 50,
        },
        (),
    ),
    "ratings": (
        {
            "regularizers": DECAY,
            "offsets": 3.0,
            "mask_factor": "both",
            "fidelity": "sum",
            "optimizer": Adam(1e-2, second_moment="matrix", schedule=ExponentialDecay(0.5, 20)),
            "stop": LastOfTheBest(1e-2, 0.1, 20, 0.0, 5),
            "max_iter": 200,
        },
        (),
    ),
    "batches": (
        {
            "regularizers": [NEAREST, *DECAY],
            "offsets": True,
            "mask_factor": "rows",
            "batch_size": 30,
            "stop": QUICK,
            "optimizer": Adam(1e-2),
            "max_iter": 80,
        },
        (),
    ),
    "held out, no refit": (
        {"regularizers": [], "stop": HeldOut(0.1, every=7, refit=False), "max_iter": 60, "batch_size": 50},
        (),
    ),
    "energies": ({"regularizers": [NEAREST], "stop": EnergyChange(2e-4), "max_iter": 300}, ()),
    "descent": ({"regularizers": [], "optimizer": GradientDescent(0.5), "stop": QUICK, "max_iter": 60}, ()),
    "standstill": (
        {
            "regularizers": [],
            "optimizer": GradientDescent(1e-30),
            "stop": HeldOut(0.1, patience=10, relative_patience=0.0, every=5),
            "max_iter": 90,
        },
        (),
    ),
    "weights, bounds and more": (
        {
            "weights": RNG.integers(0, 4, S.nnz) + (np.arange(S.nnz) < 40),
            "bounds": (-9, 20),
            "mask_factor": "columns",
            "regularizers": [NEAREST],
            "normalize": False,
            "record_every": 3,
            "max_iter": 40,
            "stop": None,
        },
        (),
    ),
    "own schedule": (
        {"regularizers": [], "optimizer": Adam(1e-1, schedule=slower), "stop": QUICK, "max_iter": 40},
        ("optimizer",),
    ),
    "own start": ({"regularizers": [NEAREST], "init": Own(), "stop": QUICK, "max_iter": 40}, ("init",)),
    "reference engine": ({"regularizers": [NEAREST], "engine": "reference", "max_iter": 30}, ()),
}


def fit(case: Case, **options: Any) -> Any:
    return airnp.fit(S, **{**COMMON, **case[0], **options})


def again(case: Case) -> dict[str, Any]:
    return {name: case[0][name] for name in case[1]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


def pressed_inside(monkeypatch: pytest.MonkeyPatch, iteration: int) -> None:
    """Let Ctrl-C be pressed once, in the middle of an iteration."""
    step, made = SparseTraining.step, itertools.count(1)

    def half(self: SparseTraining) -> list[float]:
        values = step(self)
        if next(made) == iteration:
            signal.raise_signal(signal.SIGINT)
        return values

    monkeypatch.setattr(SparseTraining, "step", half)


# ------------------------------------------------------------------------------------------ bit for bit


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_ends_like_one_that_was_never_stopped(name, file, monkeypatch):
    case = CASES[name]
    whole = fit(case)
    rng = np.random.default_rng(len(name))
    for moment in (1, int(rng.integers(2, whole.n_iter)), whole.n_iter):
        # Ctrl-C between two iterations: the file holds this very moment.
        stop = goes_at(moment, KeyboardInterrupt)
        part = fit(case, checkpoint=file, callback=stop)
        assert part.stop_reason == "interrupted"
        assert_same(airnp.load(file), part)
        assert_same(airnp.resume(file, callback=stop, **again(case)), whole)
        # Ctrl-C in the middle of one.
        with monkeypatch.context() as patch:
            pressed_inside(patch, moment)
            part = fit(case, checkpoint=file)
        assert (part.stop_reason, part.n_iter) == ("interrupted", moment)
        assert_same(airnp.resume(file, **again(case)), whole)
        # A crash: the file is that of a moment before.
        file.unlink()
        with monkeypatch.context() as patch:
            save_now_and_then(patch, rng)
            with pytest.raises(CrashError):
                fit(case, checkpoint=file, callback=goes_at(moment, CrashError))
        if file.exists():
            assert airnp.load(file).stop_reason == "checkpoint"
            assert_same(airnp.resume(file, callback=print_nothing, **again(case)), whole)


@pytest.mark.parametrize("name", CASES)
def test_checkpoints_do_not_change_the_answer(name, file, monkeypatch):
    case = CASES[name]
    save_now_and_then(monkeypatch, np.random.default_rng(0))
    assert_same(fit(case, checkpoint=file), fit(case))


REGULARIZERS = [NEAREST, AdaptiveLaplacian("columns", neighbors=5, refresh=12), DECAY[0]]
OPTIMIZERS = [
    Adam(1e-2),
    Adam(1e-2, second_moment="matrix"),
    Adam(3e-2, schedule=ExponentialDecay(0.3, 20)),
    GradientDescent(0.3, schedule=ExponentialDecay(0.9, 10)),
]
RULES = [
    None,
    EnergyChange(1e-3),
    HeldOut(0.1, patience=10, every=5, refit=False),
    HeldOut(0.1, patience=10, every=9),
    LastOfTheBest(0.05, 0.1, 10, 0.0, 4),
]


@settings(max_examples=40, deadline=None)
@given(
    regularizers=st.lists(st.sampled_from(REGULARIZERS), min_size=1, max_size=2, unique=True),
    optimizer=st.sampled_from(OPTIMIZERS),
    rule=st.sampled_from(RULES),
    record_every=st.integers(1, 12),
    max_iter=st.integers(1, 50),
    mask_factor=st.sampled_from([None, "rows", "both"]),
    offsets=st.booleans(),
    weighted=st.booleans(),
    batch_size=st.sampled_from([None, 20, 77]),
    dtype=st.sampled_from(["float32", "float64"]),
    depth=st.integers(2, 3),
    seed=st.integers(0, 2**32 - 1),
    pauses=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_any_run_with_any_stops(tmp_path_factory, regularizers, optimizer, rule, weighted, pauses, **options):
    file = tmp_path_factory.mktemp("run") / "run.npz"
    weights = 1 + np.arange(S.nnz) % 3 if weighted else None
    case = ({"regularizers": regularizers, "optimizer": optimizer, "stop": rule, "weights": weights}, ())
    whole = fit(case, **options)
    moments = list(itertools.accumulate(pauses))
    result = fit(case, **options, checkpoint=file, callback=goes_at(moments[0], KeyboardInterrupt))
    for moment in moments[1:]:
        if result.stop_reason == "interrupted":
            result = airnp.resume(file, callback=goes_at(moment, KeyboardInterrupt))
    if result.stop_reason == "interrupted":
        result = airnp.resume(file, callback=print_nothing)
    assert_same(result, whole)
    assert_same(airnp.resume(file), whole)


def test_ratings_go_on(file, monkeypatch):
    ratings = scipy.sparse.coo_array(np.where(MASK, np.clip(np.rint(TRUTH), 1, 5), 0))
    settings = {"rank": 4, "max_iter": 40, "seed": 0, "threads": 1}
    whole = airnp.fit_ratings(ratings, **settings)
    for moment in (3, whole.n_iter - 2):
        with monkeypatch.context() as patch:
            pressed_inside(patch, moment)
            part = airnp.fit_ratings(ratings, **settings, checkpoint=file, checkpoint_every=0)
        assert (part.stop_reason, part.n_iter) == ("interrupted", moment)
        assert_same(airnp.resume(file), whole)


def test_ctrl_c_waits_while_an_iteration_is_looked_at(file, monkeypatch):
    """The watch and the history have seen an iteration, or they have not; never one of them alone."""
    case = CASES["ratings"]
    whole = fit(case)
    check, looks = watching.HeldOutWatch.check, []

    def pressed(self: Any, iteration: int, *given: Any) -> str | None:
        looks.append(iteration)
        if len(looks) == 4:
            signal.raise_signal(signal.SIGINT)
        return check(self, iteration, *given)

    monkeypatch.setattr(watching.HeldOutWatch, "check", pressed)
    part = fit(case, checkpoint=file)
    assert (part.stop_reason, part.n_iter) == ("interrupted", looks[3])
    assert_same(airnp.resume(file), whole)
    assert len(looks) == len(set(looks))


def test_until_a_second_phase_is_done_the_result_is_that_of_the_first(file):
    case = CASES["ratings"]
    whole = fit(case)
    rule = LastOfTheBest(1e-2, 0.1, 20, 0.0, 5)
    rule.refit = False
    first = fit(case, stop=rule)
    stop = goes_at(first.n_iter + 1, KeyboardInterrupt)
    part = fit(case, checkpoint=file, callback=stop)
    assert whole.n_iter > part.n_iter > first.n_iter
    for result in (part, airnp.load(file)):
        np.testing.assert_array_equal(result.X, first.X)
        assert result.best_iter == first.best_iter == whole.best_iter
    assert not np.array_equal(whole.X, first.X)


@pytest.mark.parametrize("second_moment", ["entry", "matrix"])
def test_runs_on_the_cuda_engine(gpu, file, second_moment):
    terms = [AdaptiveLaplacian("rows", 1e-2, neighbors=4, refresh=3)]
    optimizer = Adam(1e-2, second_moment=second_moment)
    case = ({"xp": gpu.cupy, "max_iter": 8, "regularizers": terms, "optimizer": optimizer, "stop": None}, ())
    options = {"offsets": True, "batch_size": 40, "record_every": 1, "weights": 1 + np.arange(S.nnz) % 3}
    stop = goes_at(5, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop, **options)
    with pytest.raises(ValueError, match=r"^xp: the run had arrays of cupy, .*; give the module again"):
        airnp.resume(file, callback=stop)
    resumed = airnp.resume(file, xp=gpu.cupy, device=1, callback=stop)
    assert_same(resumed, fit(case, **options))


# ------------------------------------------------------------------------------------------ more iterations


@pytest.mark.parametrize("name", ["factors", "batches", "held out, no refit", "energies"])
@pytest.mark.parametrize("most", [50, 91])
def test_more_iterations_are_those_of_a_longer_run(name, most, file):
    """38 is no multiple of anything: the record and the look at the end are not those of a longer run."""
    case = CASES[name]
    for moment in (20, 38):
        stop = goes_at(moment, KeyboardInterrupt)
        fit(case, checkpoint=file, callback=stop, max_iter=38)
        assert_same(airnp.resume(file, callback=stop, max_iter=most), fit(case, max_iter=most))


@pytest.mark.parametrize("name", ["factors", "held out, no refit", "energies"])
def test_a_finished_run_can_have_more_iterations(name, file):
    case = CASES[name]
    assert_same(fit(case, checkpoint=file, max_iter=38), fit(case, max_iter=38))
    assert_same(airnp.resume(file), fit(case, max_iter=38))
    assert_same(airnp.resume(file, max_iter=61), fit(case, max_iter=61))
    assert_same(airnp.load(file), fit(case, max_iter=61))


def test_a_second_phase_that_came_of_the_limit_cannot_have_more(file):
    case = CASES["given graphs"]
    fit(case, checkpoint=file)
    with pytest.raises(ValueError, match="max_iter: the run has used its 50 iterations up"):
        airnp.resume(file, max_iter=60)
    stop = goes_at(60, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match="max_iter: the run has used its 50 iterations up"):
        airnp.resume(file, max_iter=60, callback=stop)
    with pytest.raises(ValueError, match="max_iter: expected at least the 50 that the run was to have"):
        airnp.resume(file, max_iter=9, callback=stop)


def test_a_run_that_its_callback_stopped_can_go_on(file):
    case = CASES["ratings"]
    part = fit(case, checkpoint=file, callback=lambda iteration, state: iteration == 21, record_every=3)
    assert (part.stop_reason, part.n_iter) == ("stopped by callback", 21)
    assert_same(airnp.resume(file, callback=print_nothing), fit(case, record_every=3))


# ------------------------------------------------------------------------------------------ given again


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1]])
def test_what_a_file_cannot_hold_must_be_given_again(name, file, monkeypatch):
    case = CASES[name]
    with monkeypatch.context() as patch:
        pressed_inside(patch, 9)
        fit(case, checkpoint=file)
    with pytest.raises(ValueError, match=f"^{case[1][0]}: the run had an .*; give it again"):
        airnp.resume(file)
    assert_same(airnp.resume(file, callback=print_nothing, **again(case)), fit(case))


def test_what_the_file_holds_must_not_be_given(file):
    stop = goes_at(9, KeyboardInterrupt)
    fit(CASES["factors"], checkpoint=file, callback=stop)
    for more in ({"regularizers": []}, {"stop": HeldOut()}, {"optimizer": Adam()}, {"init": "gaussian"}):
        with pytest.raises(ValueError, match=f"^{next(iter(more))}: expected None, the run had none or"):
            airnp.resume(file, callback=stop, **more)
    with pytest.raises(ValueError, match=r"^callback: the run had a callback, .*; give it again"):
        airnp.resume(file)


def test_a_rule_that_holds_out_others_is_refused(file):
    class Mine(HeldOut):
        pass

    stop = goes_at(9, KeyboardInterrupt)
    fit(CASES["factors"], stop=Mine(0.1), checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match=r"^stop: holds out other entries than the run did"):
        airnp.resume(file, callback=stop, stop=Mine(0.3))


# ------------------------------------------------------------------------------------------ files


def test_a_finished_run_is_returned_at_once(file, monkeypatch):
    whole = fit(CASES["ratings"], checkpoint=file)
    monkeypatch.setattr(SparseTraining, "step", lambda *arguments: pytest.fail("an iteration was made"))
    assert_same(airnp.resume(file), whole)
    assert_same(airnp.resume(file, max_iter=100_000), whole)


def test_a_damaged_run_is_not_resumed(file):
    stop = goes_at(30, KeyboardInterrupt)
    fit(CASES["batches"], checkpoint=file, callback=stop)
    whole = file.read_bytes()
    for size in range(0, len(whole), len(whole) // 20):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
            airnp.resume(file, callback=stop)
    torn = bytearray(whole)
    torn[len(torn) // 2] ^= 1
    file.write_bytes(bytes(torn))
    with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
        airnp.resume(file, callback=stop)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_pickled_and_nothing_is_stored_twice(name, file):
    fit(CASES[name], checkpoint=file, callback=goes_at(10, KeyboardInterrupt))
    with np.load(file, allow_pickle=False) as archive:
        arrays = {member: archive[member] for member in archive.files}
    for member, array in arrays.items():
        assert array.dtype.kind in "biufU", member
    # Of as many numbers as there are entries: their columns, their values, and their weights if there are.
    seen = json.loads(str(arrays["header"]))["run"]["task"]["plain"]["dict"]["entries"]["arguments"]
    count = len(arrays[seen["values"]["array"]])
    assert sum(array.shape == (count,) for array in arrays.values()) == 2 + ("weights" in CASES[name][0])
    for member in zipfile.ZipFile(file).infolist():
        assert member.filename.endswith(".npy")


def test_a_disk_that_is_full_does_not_cost_the_fit(file, monkeypatch):
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("airnp.training.checkpoints.write_archive", full)
    with pytest.warns(RuntimeWarning, match=r"^checkpoint: could not write .*No space left"):
        result = fit(CASES["factors"], checkpoint=file)
    assert_same(result, fit(CASES["factors"]))


def test_a_run_that_is_no_longer_finite_leaves_the_file_as_it_was(file, monkeypatch):
    monkeypatch.setattr(Checkpoint, "is_due", property(lambda self: True))
    options = {"optimizer": GradientDescent(1e3), "fidelity": "sum", "regularizers": [], "stop": None}
    with pytest.raises(airnp.DivergenceError) as caught:
        fit((options, ()), max_iter=50, checkpoint=file)
    assert np.isfinite(caught.value.result.X).all()
    assert np.isfinite(airnp.load(file).X).all()


def test_an_interrupt_before_the_first_iteration(file, monkeypatch):
    case, step = CASES["batches"], SparseLoop._step
    with monkeypatch.context() as patch:
        patch.setattr(SparseLoop, "_step", lambda *given: signal.raise_signal(signal.SIGINT) or step(*given))
        part = fit(case, checkpoint=file)
    assert part.n_iter == 1
    with monkeypatch.context() as patch:
        patch.setattr(SparseTraining, "step", goes_now)
        part = fit(case, checkpoint=file)
    assert part.n_iter == 0
    assert_same(airnp.resume(file), fit(case))


def goes_now(training: SparseTraining) -> list[float]:
    raise KeyboardInterrupt


# ------------------------------------------------------------------------------------------ kill -9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed")
@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_a_run_survives_being_killed(tmp_path, kills):
    outcome = killed(tmp_path, kills, "sparse")
    assert outcome["kills"] == kills
    assert outcome["found"] >= kills / 2  # most kills came after the first checkpoint
    assert outcome["problems"] == []
