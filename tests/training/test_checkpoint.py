"""A run that was stopped and resumed ends like one that never was, bit for bit."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import airnp
from airnp import (
    Adam,
    AdaptiveLaplacian,
    EnergyChange,
    ExponentialDecay,
    FixedLaplacian,
    GradientDescent,
    HeldOut,
    TotalVariation,
)
from airnp.results.atomic import write_atomically
from airnp.training import monitors
from airnp.training import monitors as heldout
from airnp.training import stopping as rules
from airnp.training.checkpoints import Checkpoint
from airnp.training.steps import Training
from tests.results.test_storage import assert_same as assert_same_result
from tests.results.test_storage import assert_same_array

RNG = np.random.default_rng(3)
TRUTH = RNG.random((10, 3)) @ RNG.random((3, 8)) + 0.1 * RNG.standard_normal((10, 8))
EXACT = RNG.random((24, 2)) @ RNG.random((2, 20))
NOISY = EXACT + 0.1 * np.random.default_rng(1).standard_normal(EXACT.shape)
MASK = RNG.random(TRUTH.shape) < 0.75
RING = np.roll(np.eye(10), 1, axis=1) + np.roll(np.eye(10), -1, axis=1)
MEASURES = RNG.standard_normal((60, TRUTH.size))
QUICK = HeldOut(patience=30, every=10)
LIVELY = airnp.Gaussian(0.3, 0.1)


class CrashError(Exception):
    """What a power cut would be."""


class Halves:
    """A user's own transform: the upper half of a matrix and the lower one."""

    def forward(self, X: Any) -> Any:
        return X.reshape(*X.shape[:-2], 2, -1)

    def adjoint(self, Z: Any) -> Any:
        return Z.reshape(*Z.shape[:-2], 10, 8)


class Countdown(rules.StopRule):
    """A user's own rule, with something to remember."""

    def __init__(self, looks: int, named: bool = True) -> None:
        self.looks, self.named = looks, named

    def begin(self, observations: Any, operator: Any, seed: int) -> monitors.Monitor:
        class Monitor(monitors.Monitor):
            every = 7
            remembered = ("left",) if self.named else None
            left = self.looks

            def check(self, state: Any) -> str | None:
                self.left -= 1
                return None if self.left else "counted down"

        return Monitor()


def slower(step: int) -> float:
    return 1 / step


Case = tuple[Any, Any, dict[str, Any], tuple[str, ...]]
"""Data, mask, options, and the names of those options that must be given again."""

CASES: dict[str, Case] = {
    "AIR": (TRUTH, MASK, {"stop": None, "max_iter": 95, "truth": TRUTH}, ()),
    "AIR, float32": (TRUTH, MASK, {"stop": None, "max_iter": 90, "dtype": "float32"}, ()),
    "all adjacencies": (
        *(TRUTH, MASK),
        {
            "regularizers": [
                AdaptiveLaplacian("rows", 1e-3, "global"),
                AdaptiveLaplacian("columns", 1e-3, "product"),
                AdaptiveLaplacian(airnp.Blocks(5, 4)),
                TotalVariation(1e-3, "quadratic"),
            ],
            "stop": None,
            "max_iter": 60,
        },
        (),
    ),
    "given graphs": (
        *(TRUTH, MASK),
        {
            "regularizers": [
                FixedLaplacian(scipy.sparse.csr_array(RING)),
                FixedLaplacian(RING.tolist(), kind="adjacency"),
                airnp.DirichletEnergy("columns"),
                TotalVariation(),
            ],
            "max_iter": 60,
        },
        (),
    ),
    "held out": (TRUTH, MASK, {"stop": QUICK, "max_iter": 900, "learning_rate": 3e-2}, ()),
    "held out, both phases to their limits": (TRUTH, MASK, {"stop": HeldOut(every=7), "max_iter": 333}, ()),
    "held out, stack": (
        *(np.stack([TRUTH, TRUTH**2, TRUTH[::-1]]), MASK),
        {"stop": QUICK, "max_iter": 900, "learning_rate": 3e-2, "regularizers": [TotalVariation()]},
        (),
    ),
    "low rank, beaten": (NOISY, None, {"stop": HeldOut(0.2, every=10, low_rank=True), "max_iter": 250}, ()),
    "low rank, exact": (EXACT, None, {"stop": HeldOut(0.2, low_rank=True), "max_iter": 120}, ()),
    "low rank in one of a stack": (
        *(np.stack([EXACT, RNG.random(EXACT.shape)]), None),
        {"stop": HeldOut(0.2, patience=50, every=10, low_rank=True), "max_iter": 300, "learning_rate": 1e-2},
        (),
    ),
    "energies": (TRUTH, MASK, {"stop": EnergyChange(1e-3), "max_iter": 900, "init": LIVELY}, ()),
    "energies of a stack": (
        *(np.stack([TRUTH, TRUTH**2]), MASK),
        {"stop": EnergyChange(1e-3), "max_iter": 900, "init": LIVELY, "regularizers": None},
        (),
    ),
    "decay": (
        *(TRUTH, MASK),
        {"optimizer": Adam(1e-2, 1e-3, (0.8, 0.99), 1e-7, ExponentialDecay(0.5, 40)), "max_iter": 400},
        (),
    ),
    "one second moment": (TRUTH, MASK, {"optimizer": Adam(second_moment="matrix"), "max_iter": 80}, ()),
    "descent": (TRUTH, MASK, {"optimizer": GradientDescent(0.5, 0.1), "stop": QUICK, "max_iter": 300}, ()),
    "weights, bounds and more": (
        *(np.rint(4 * TRUTH), MASK),
        {
            "weights": RNG.random(TRUTH.shape) + 0.1,
            "bounds": (-5, 20),
            "integers": [0, 3],
            "loss": "huber",
            "fidelity": "sum",
            "depth": 2,
            "rank": 4,
            "init": "balanced",
            "normalize": False,
            "record_every": 3,
            "max_iter": 70,
            "stop": None,
        },
        (),
    ),
    "operator": (
        MEASURES @ TRUTH.ravel(),
        None,
        {"operator": aslinearoperator(MEASURES), "shape": TRUTH.shape, "stop": QUICK, "max_iter": 300},
        ("operator",),
    ),
    "own transform": (
        *(TRUTH, MASK),
        {"regularizers": [AdaptiveLaplacian(Halves()), TotalVariation()], "max_iter": 60, "stop": None},
        ("regularizers",),
    ),
    "own rule": (TRUTH, MASK, {"stop": Countdown(12), "max_iter": 200}, ("stop",)),
    "own schedule": (
        *(TRUTH, MASK),
        {"optimizer": Adam(1e-2, schedule=slower), "stop": QUICK, "max_iter": 400},
        ("optimizer",),
    ),
    "reference engine": (TRUTH, MASK, {"engine": "reference", "max_iter": 60}, ()),
}


def fit(case: Case, **options: Any) -> airnp.FitResult:
    return airnp.fit(case[0], case[1], **{"seed": 5, **case[2], **options})


def again(case: Case) -> dict[str, Any]:
    return {name: case[2][name] for name in case[3]}


def assert_same(a: airnp.FitResult, b: airnp.FitResult) -> None:
    assert_same_result(a, b)
    for mine, other in ((a.calibration, b.calibration), (a.bounds, b.bounds)):
        if mine is None or other is None:
            assert mine is other
        else:
            for array, same in zip(vars(mine).values(), vars(other).values(), strict=True):
                assert_same_array(array, same)


def goes_at(iteration: int, error: type[BaseException]) -> Any:
    """A callback that raises once, at the first record from an iteration on."""
    raised = []

    def callback(now: int, state: Any) -> None:
        if now >= iteration and not raised:
            raised.append(now)
            raise error

    return callback


def interrupted_inside(monkeypatch: pytest.MonkeyPatch, iteration: int) -> None:
    """Let Ctrl-C come once, in the middle of the portion that would end at or after an iteration."""
    attempt, raised = Training.attempt, []

    def half(self: Training, iterations: int) -> Any:
        if self.iteration + iterations < iteration or raised:
            return attempt(self, iterations)
        raised.append(iteration)
        self._stepping = True
        self._run((iterations + 1) // 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "attempt", half)


def save_now_and_then(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Let checkpoints be due after the first portion, and at random later."""
    due = itertools.chain([True], (rng.random() < 0.05 for _ in itertools.count()))
    monkeypatch.setattr(Checkpoint, "is_due", property(lambda self: next(due)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


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
            interrupted_inside(patch, moment)
            part = fit(case, checkpoint=file)
        assert (part.stop_reason, part.n_iter < moment) == ("interrupted", True)
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


def print_nothing(iteration: int, state: Any) -> None:
    """A callback that has no effect."""


@pytest.mark.parametrize("name", CASES)
def test_checkpoints_do_not_change_the_answer(name, file, monkeypatch):
    case, rng = CASES[name], np.random.default_rng(0)
    save_now_and_then(monkeypatch, rng)
    assert_same(fit(case, checkpoint=file), fit(case))


REGULARIZERS = [
    AdaptiveLaplacian("rows"),
    AdaptiveLaplacian("columns", adjacency="global"),
    AdaptiveLaplacian("rows", 1e-3, "product"),
    TotalVariation(1e-3),
    FixedLaplacian(RING, "rows", 1e-2),
]
OPTIMIZERS = [
    Adam(1e-2),
    Adam(3e-3, schedule=ExponentialDecay(0.3, 50)),
    Adam(second_moment="matrix"),
    GradientDescent(0.3, schedule=ExponentialDecay(0.9, 10)),
]
RULES = [
    None,
    EnergyChange(1e-3),
    HeldOut(patience=20, every=5, refit=False),
    HeldOut(patience=20, every=9),
    HeldOut(patience=40, every=8, low_rank=True),
]


@settings(max_examples=40)
@given(
    regularizers=st.lists(st.sampled_from(REGULARIZERS), min_size=1, max_size=3),
    optimizer=st.sampled_from(OPTIMIZERS),
    rule=st.sampled_from(RULES),
    record_every=st.integers(1, 30),
    max_iter=st.integers(1, 300),
    dtype=st.sampled_from(["float32", "float64"]),
    stack=st.integers(0, 2),
    depth=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    pauses=st.lists(st.integers(1, 120), min_size=1, max_size=4),
)
def test_any_run_with_any_stops(
    tmp_path_factory, regularizers, optimizer, rule, record_every, max_iter, dtype, stack, depth, seed, pauses
):
    file = tmp_path_factory.mktemp("run") / "run.npz"
    data = np.stack([TRUTH * (1 + k) for k in range(stack)]) if stack else TRUTH
    case = (data, MASK, {"regularizers": regularizers, "optimizer": optimizer, "stop": rule}, ())
    options = {
        "record_every": record_every,
        "max_iter": max_iter,
        "dtype": dtype,
        "depth": depth,
        "seed": seed,
    }
    whole = fit(case, **options)
    moments = list(itertools.accumulate(pauses))
    callback = goes_at(moments[0], KeyboardInterrupt)
    result = fit(case, **options, checkpoint=file, callback=callback)
    for moment in moments[1:]:
        if result.stop_reason == "interrupted":
            result = airnp.resume(file, callback=goes_at(moment, KeyboardInterrupt))
    if result.stop_reason == "interrupted":
        result = airnp.resume(file, callback=print_nothing)
    assert_same(result, whole)
    assert_same(airnp.resume(file), whole)


def test_ctrl_c_waits_while_a_portion_is_looked_at(file, monkeypatch):
    """The monitor and the history have seen a portion, or they have not; never one of them alone."""
    case = CASES["held out"]
    whole = fit(case)
    check, looks = heldout.HeldOutMonitor.check, []

    def pressed(self: Any, state: Any) -> str | None:
        looks.append(state.iteration)
        if len(looks) == 4:
            signal.raise_signal(signal.SIGINT)
        return check(self, state)

    monkeypatch.setattr(heldout.HeldOutMonitor, "check", pressed)
    part = fit(case, checkpoint=file)
    assert (part.stop_reason, part.n_iter) == ("interrupted", looks[3])
    assert_same(airnp.resume(file), whole)
    assert len(looks) == len(set(looks))


def test_tables_keep_their_labels(file):
    frame = pd.DataFrame(np.where(MASK, TRUTH, np.nan), index=list("abcdefghij"))
    case = (frame, None, {"max_iter": 60, "stop": None}, ())
    stop = goes_at(30, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    assert airnp.resume(file, callback=stop).X.equals(fit(case).X)


def test_runs_of_other_namespaces(backend, file):
    case = (backend.array(TRUTH), backend.array(MASK), {"max_iter": 80, "stop": HeldOut(every=10)}, ())
    stop = goes_at(40, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    other = {} if backend.xp is np else {"xp": backend.xp}
    resumed = airnp.resume(file, callback=stop, device=backend.device, **other)
    assert type(resumed.matrix) is type(fit(case).matrix)
    assert_same(resumed.to_numpy(), fit(case).to_numpy())
    if backend.xp is not np:
        fit(case, checkpoint=file, callback=goes_at(40, KeyboardInterrupt))
        with pytest.raises(ValueError, match=r"xp: the run had arrays of .*; give the module again"):
            airnp.resume(file, callback=stop)
        with pytest.raises(ValueError, match=r"xp: the run had arrays of .*, got numpy"):
            airnp.resume(file, callback=stop, xp=np)


@pytest.mark.parametrize(("second_moment", "moment"), [("entry", 205), ("matrix", 20)])
def test_runs_on_the_cuda_engine(gpu, file, second_moment, moment):
    optimizer = Adam(1e-2, second_moment=second_moment)
    most = moment + 10
    case = (TRUTH, MASK, {"xp": gpu.cupy, "max_iter": most, "optimizer": optimizer}, ())
    stop = goes_at(moment, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    resumed = airnp.resume(file, xp=gpu.cupy, device=1, callback=stop)
    assert resumed.matrix.device.id == 1
    assert_same(resumed.to_numpy(), fit(case).to_numpy())


# ------------------------------------------------------------------------------------------ more iterations


@pytest.mark.parametrize("name", ["AIR", "held out", "low rank, beaten", "energies"])
@pytest.mark.parametrize("most", [150, 451])
def test_more_iterations_are_those_of_a_longer_run(name, most, file):
    case = CASES[name]
    stop = goes_at(60, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop, max_iter=97)
    assert_same(airnp.resume(file, callback=stop, max_iter=most), fit(case, max_iter=most))


@pytest.mark.parametrize("name", ["AIR", "low rank, exact", "energies", "held out"])
def test_a_finished_run_can_have_more_iterations(name, file):
    """97 is no multiple of anything: the record and the look at the end are not those of a longer run."""
    case = CASES[name]
    assert_same(fit(case, checkpoint=file, max_iter=97), fit(case, max_iter=97))
    assert_same(airnp.resume(file), fit(case, max_iter=97))
    assert_same(airnp.resume(file, max_iter=97), fit(case, max_iter=97))
    assert_same(airnp.resume(file, max_iter=211), fit(case, max_iter=211))
    assert_same(airnp.load(file), fit(case, max_iter=211))


def test_a_run_that_has_ended_by_itself_needs_no_more_iterations(file):
    whole = fit(CASES["held out"], checkpoint=file)
    assert whole.stop_reason == "held-out error stopped falling"
    assert_same(airnp.resume(file, max_iter=100_000), whole)


def test_there_are_no_more_iterations_after_a_second_phase_that_came_of_the_limit(file):
    case = CASES["held out, both phases to their limits"]
    fit(case, checkpoint=file)
    with pytest.raises(ValueError, match="max_iter: the run has used its 333 iterations up"):
        airnp.resume(file, max_iter=400)
    stop = goes_at(330, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match="max_iter: the run has used its 333 iterations up"):
        airnp.resume(file, max_iter=400, callback=stop)
    with pytest.raises(
        ValueError, match="max_iter: expected at least the 333 that the run was to have, got 9"
    ):
        airnp.resume(file, max_iter=9, callback=stop)


def test_a_longer_run_may_have_had_a_shorter_first_phase(file):
    """With 199 iterations none are kept for a second phase, with 200 there are ten."""
    case = (TRUTH, MASK, {"stop": HeldOut(every=10)}, ())
    stop = goes_at(195, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop, max_iter=199, record_every=5)
    with pytest.raises(ValueError, match="max_iter: the run has made 195 iterations before its second phase"):
        airnp.resume(file, callback=stop, max_iter=200)
    longer = fit(case, max_iter=220, record_every=5)
    assert_same(airnp.resume(file, callback=stop, max_iter=220), longer)


def test_a_run_that_its_callback_stopped_can_go_on(file):
    case = CASES["held out"]
    part = fit(case, checkpoint=file, callback=lambda iteration, state: iteration == 35, record_every=5)
    assert part.stop_reason == "stopped by callback"
    assert_same(airnp.resume(file, callback=print_nothing), fit(case, record_every=5))


# ------------------------------------------------------------------------------------------ given again


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[3]])
def test_what_a_file_cannot_hold_must_be_given_again(name, file, monkeypatch):
    case = CASES[name]
    with monkeypatch.context() as patch:
        interrupted_inside(patch, 20)
        fit(case, checkpoint=file)
    with pytest.raises(ValueError, match=f"^{case[3][0]}: the run had an .*; give it again"):
        airnp.resume(file)
    # A callback may be new: it only looks on.
    assert_same(airnp.resume(file, callback=print_nothing, **again(case)), fit(case))


@pytest.mark.parametrize(
    "more",
    [
        {"operator": aslinearoperator(MEASURES)},
        {"regularizers": [TotalVariation()]},
        {"stop": HeldOut()},
        {"optimizer": Adam()},
    ],
    ids=lambda more: next(iter(more)),
)
def test_what_the_file_holds_must_not_be_given(more, file):
    stop = goes_at(20, KeyboardInterrupt)
    fit(CASES["AIR"], checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match=f"^{next(iter(more))}: expected None, the run had none or the file"):
        airnp.resume(file, callback=stop, **more)
    with pytest.raises(ValueError, match=r"^callback: the run had a callback, .*; give it again"):
        airnp.resume(file)
    with pytest.raises(TypeError, match=r"^callback: expected a function"):
        airnp.resume(file, callback=3)
    with pytest.raises(TypeError, match=r"^max_iter: expected a whole number"):
        airnp.resume(file, callback=stop, max_iter=1e5)


def test_something_else_than_before_is_refused(file):
    case = CASES["own transform"]
    stop = goes_at(20, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match=r"^regularizers: expected those of the run"):
        airnp.resume(file, callback=stop, regularizers=[AdaptiveLaplacian("rows"), TotalVariation()])
    with pytest.raises(ValueError, match=r"^regularizers: expected those of the run"):
        airnp.resume(file, callback=stop, regularizers=[AdaptiveLaplacian(Halves())])
    stop = goes_at(20, KeyboardInterrupt)
    fit(CASES["own rule"], checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match=r"^stop: holds out other entries"):
        airnp.resume(file, callback=stop, stop=HeldOut())


def test_a_monitor_must_say_what_it_remembers(file):
    stop = goes_at(20, KeyboardInterrupt)
    part = fit(CASES["AIR"], stop=Countdown(9, named=False), checkpoint=file, callback=stop)
    assert_same(airnp.load(file), part)
    with pytest.raises(
        ValueError, match=r"cannot be resumed \(stop: Monitor does not say what is remembered"
    ):
        airnp.resume(file, callback=stop, stop=Countdown(9))
    part = fit(CASES["AIR"], stop=Countdown(99, named=False), checkpoint=file)
    assert_same(airnp.resume(file), part)
    with pytest.raises(ValueError, match=r"cannot be resumed \(stop: Monitor does not say"):
        airnp.resume(file, max_iter=1000)


def test_an_optimizer_whose_memory_cannot_be_stored(file):
    class Own:
        def init(self, params: Any, kinds: Any = None) -> Any:
            return object()

        def updates(self, state: Any) -> Any:
            return GradientDescent(0.1).updates(GradientDescent(0.1).init([0] * 5))

    stop = goes_at(20, KeyboardInterrupt)
    part = fit(CASES["AIR"], optimizer=Own(), checkpoint=file, callback=stop)
    assert_same(airnp.load(file), part)
    with pytest.raises(ValueError, match=r"cannot be resumed \(an object of object\)"):
        airnp.resume(file, callback=stop, optimizer=Own())


# ------------------------------------------------------------------------------------------ files


def test_a_finished_run_is_returned_at_once(file, monkeypatch):
    whole = fit(CASES["held out"], checkpoint=file)
    monkeypatch.setattr(Training, "attempt", lambda *arguments: pytest.fail("an iteration was made"))
    assert_same(airnp.resume(file), whole)
    assert_same(airnp.resume(file, callback=print_nothing, stop=HeldOut()), whole)
    for more in ({"threads": 0}, {"callback": 3}, {"checkpoint_every": -1}, {"checkpoint": 3}):
        with pytest.raises((ValueError, TypeError), match=f"^{next(iter(more))}: expected "):
            airnp.resume(file, **more)


def test_a_mere_result_is_no_run(file):
    fit(CASES["AIR"]).save(file)
    with pytest.raises(ValueError, match="holds a result, but no run to go on with; see checkpoint="):
        airnp.resume(file)
    airnp.fit(scipy.sparse.eye_array(4), form="sparse", rank=2, max_iter=2, stop=None, seed=0).save(file)
    with pytest.raises(ValueError, match="holds a result, but no run to go on with; see checkpoint="):
        airnp.resume(file)
    with pytest.raises(FileNotFoundError):
        airnp.resume(file.parent / "nothing.npz")
    file.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
        airnp.resume(file)


def test_a_damaged_run_is_not_resumed(file):
    stop = goes_at(40, KeyboardInterrupt)
    fit(CASES["held out"], checkpoint=file, callback=stop)
    whole = file.read_bytes()
    for size in range(0, len(whole), len(whole) // 40):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
            airnp.resume(file, callback=stop)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_pickled(name, file):
    fit(CASES[name], checkpoint=file, callback=goes_at(20, KeyboardInterrupt))
    with np.load(file, allow_pickle=False) as archive:
        for member in archive.files:
            assert archive[member].dtype.kind in "biufU", member
    for member in zipfile.ZipFile(file).infolist():
        assert member.filename.endswith(".npy")


def test_where_a_resumed_run_saves(file, tmp_path):
    case = CASES["AIR"]
    stop = goes_at(20, KeyboardInterrupt)
    fit(case, checkpoint=file, callback=stop)
    before = file.read_bytes()
    assert_same(airnp.resume(file, callback=stop, checkpoint=None), fit(case))
    assert_same(airnp.resume(file, callback=stop, checkpoint=tmp_path / "other.npz"), fit(case))
    assert file.read_bytes() == before
    assert_same(airnp.load(tmp_path / "other.npz"), fit(case))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"^checkpoint: expected an ordinary file, which can be replaced"):
        fit(CASES["AIR"], checkpoint=tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="checkpoint: expected a file in a directory that exists"):
        airnp.resume(file, callback=stop, checkpoint=tmp_path / "no" / "a.npz")


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1"])
def test_odd_times_between_checkpoints_are_refused(seconds):
    with pytest.raises((ValueError, TypeError), match=r"^checkpoint_every: expected"):
        fit(CASES["AIR"], checkpoint_every=seconds)


def test_a_file_is_written_only_when_it_is_old_enough(file, monkeypatch):
    checkpoints = sys.modules["airnp.training.checkpoints"]
    clock = itertools.count()
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: float(next(clock)))
    written = []
    monkeypatch.setattr(
        checkpoints, "write_archive", lambda path, header, arrays: written.append(header["n_iter"])
    )
    fit(CASES["AIR"], checkpoint=file, checkpoint_every=4, record_every=10)
    # Looking at the clock takes a second here, and so does starting to write.
    assert written == [30, 70, 95]


def test_behind_a_link_the_file_is_replaced(file, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "real.npz"
    real.write_bytes(b"before")
    file.symlink_to(real)
    write_atomically(file, lambda stream: stream.write(b"after"))
    assert file.is_symlink()
    assert real.read_bytes() == b"after"
    assert list(real.parent.iterdir()) == [real]


def test_leftovers_of_killed_processes_are_removed_but_not_those_of_live_ones(file, tmp_path):
    leftover, other = tmp_path / ".run.npz.0123abcd.part", tmp_path / ".run2.npz.0123abcd.part"
    foreign = tmp_path / ".run.npz.hello.part"
    for path in (leftover, other, foreign):
        path.write_bytes(b"half of it")
    inner: list[set[str]] = []

    def write(stream: Any) -> None:
        stream.write(b"outer")
        write_atomically(file, lambda stream: stream.write(b"inner"))  # as another process would
        inner.append({path.name for path in tmp_path.iterdir()})

    write_atomically(file, write)
    assert file.read_bytes() == b"outer"
    assert {path.name for path in tmp_path.iterdir()} == {"run.npz", other.name, foreign.name}
    assert len(inner[0]) == 4  # what was being written outside was still there


# ------------------------------------------------------------------------------------------ kill -9


def killed(tmp_path: Path, kills: int, *form: str) -> dict[str, Any]:
    arguments = [sys.executable, "-m", "tests.kill_and_resume", str(tmp_path), str(kills), *form]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed")
@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_run_survives_being_killed(tmp_path, kills):
    outcome = killed(tmp_path, kills)
    assert outcome["kills"] == kills
    assert outcome["found"] >= kills / 2  # most kills came after the first checkpoint
    assert outcome["problems"] == []
