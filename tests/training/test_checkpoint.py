"""A run that was stopped and resumed, dense or sparse, ends like one that never was, bit for bit."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
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
    Checkpoint,
    EnergyChange,
    ExponentialDecay,
    FixedLaplacian,
    GradientDescent,
    HeldOut,
    Nearest,
    Record,
    TotalVariation,
    WeightDecay,
)
from airnp.ratings import Trials
from airnp.results.atomic import write_atomically
from airnp.training import checkpoints, monitors
from airnp.training.checkpoints import CheckpointFile
from airnp.training.steps import Steps
from airnp.training.stopping import StopRule
from tests.equality import assert_same

RNG = np.random.default_rng(3)
TRUTH = RNG.random((10, 3)) @ RNG.random((3, 8)) + 0.1 * RNG.standard_normal((10, 8))
MASK = RNG.random(TRUTH.shape) < 0.75
RING = np.roll(np.eye(10), 1, axis=1) + np.roll(np.eye(10), -1, axis=1)
MEASURES = RNG.standard_normal((60, TRUTH.size))
OPERATOR = airnp.Operator(aslinearoperator(MEASURES), TRUTH.shape)
QUICK = HeldOut(patience=30, every=10)
LIVELY = airnp.Gaussian(0.3, 0.1)

TABLE = 3 + RNG.standard_normal((17, 2)) @ RNG.standard_normal((2, 13)) + 0.2 * RNG.standard_normal((17, 13))
STORED = RNG.random(TABLE.shape) < 0.6
STORED[0] = STORED[:, 0] = True
S = scipy.sparse.csr_array(np.where(STORED, TABLE, 0))
SPARSE_RING = scipy.sparse.csr_array(np.roll(np.eye(13), 1, axis=1) + np.roll(np.eye(13), -1, axis=1))
NEAREST = AdaptiveLaplacian("rows", 1e-2, candidates=Nearest(4, refresh=7))
DECAY = [WeightDecay(1e-3, "sqrt"), WeightDecay(1e-3, on="mask")]
SPARSE_QUICK = HeldOut(0.1, patience=20, every=5)


class CrashError(Exception):
    """Stands for a power cut."""


class Halves:
    """A user's own transform: the upper half of a matrix and the lower one."""

    def forward(self, X: Any) -> Any:
        return X.reshape(*X.shape[:-2], 2, -1)

    def adjoint(self, Z: Any) -> Any:
        return Z.reshape(*Z.shape[:-2], 10, 8)


class Countdown(StopRule):
    """A user's own rule, with something to remember."""

    def __init__(self, looks: int, named: bool = True) -> None:
        self.looks, self.named = looks, named

    def begin(self, task: Any, seed: int) -> monitors.Monitor:
        class Monitor(monitors.Monitor):
            every = 7
            remembered = ("left",) if self.named else None
            left = self.looks

            def check(self, state: Any) -> str | None:
                self.left -= 1
                return None if self.left else "counted down"

        return Monitor()


class OwnStart:
    """A user's own initial factors."""

    def draw(self, rng: np.random.Generator, m: int, n: int, depth: int, rank: int) -> list[Any]:
        return [0.3 * factor for factor in airnp.Gaussian(0.5, 1.0).draw(rng, m, n, depth, rank)]


def slower(step: int) -> float:
    return 1 / step


@dataclass(frozen=True)
class Case:
    """A function to fit with, its arguments, and the names of those that must be given again."""

    function: Callable[..., Any]
    options: dict[str, Any]
    names: tuple[str, ...]

    def fit(self, **options: Any) -> Any:
        return self.function(**{**self.options, **options})

    @property
    def again(self) -> dict[str, Any]:
        return {name: self.options[name] for name in self.names}


def dense(*names: str, **options: Any) -> Case:
    return Case(airnp.fit, {"Y": TRUTH, "mask": MASK, "seed": 5, **options}, names)


def sparse(*names: str, **options: Any) -> Case:
    common = {"S": S, "rank": 3, "depth": 2, "seed": 5, "init": airnp.Gaussian(0.1, 0.3)}
    return Case(airnp.fit_sparse, {**common, "regularizers": [], **options}, names)


CASES: dict[str, Case] = {
    "AIR": dense(stop=None, max_iter=95, record=Record(truth=TRUTH)),
    "AIR, float32": dense(stop=None, max_iter=90, dtype="float32"),
    "all adjacencies": dense(
        regularizers=[
            AdaptiveLaplacian("rows", 1e-3, "global"),
            AdaptiveLaplacian("columns", 1e-3, "product"),
            AdaptiveLaplacian(airnp.Blocks(5, 4)),
            TotalVariation(1e-3, "quadratic"),
        ],
        stop=None,
        max_iter=60,
    ),
    "given graphs": dense(
        regularizers=[
            FixedLaplacian(scipy.sparse.csr_array(RING)),
            FixedLaplacian(RING.tolist(), kind="adjacency"),
            airnp.DirichletEnergy("columns"),
            TotalVariation(),
        ],
        max_iter=60,
    ),
    "held out": dense(stop=QUICK, max_iter=900, learning_rate=3e-2),
    "held out, tolerance": dense(
        stop=HeldOut(patience=30, every=10, tolerance=0.01), max_iter=900, learning_rate=3e-2
    ),
    "held out, both phases to their limits": dense(stop=HeldOut(every=7), max_iter=333),
    "held out, stack": dense(
        Y=np.stack([TRUTH, TRUTH**2, TRUTH[::-1]]),
        stop=QUICK,
        max_iter=900,
        learning_rate=3e-2,
        regularizers=[TotalVariation()],
    ),
    "energies": dense(stop=EnergyChange(1e-3), max_iter=900, init=LIVELY),
    "energies of a stack": dense(
        Y=np.stack([TRUTH, TRUTH**2]), stop=EnergyChange(1e-3), max_iter=900, init=LIVELY
    ),
    "decay": dense(optimizer=Adam(1e-2, 1e-3, (0.8, 0.99), 1e-7, ExponentialDecay(0.5, 40)), max_iter=400),
    "one second moment": dense(optimizer=Adam(second_moment="matrix"), max_iter=80),
    "descent": dense(optimizer=GradientDescent(0.5, 0.1), stop=QUICK, max_iter=300),
    "weights, bounds and more": dense(
        Y=np.rint(4 * TRUTH),
        weights=RNG.random(TRUTH.shape) + 0.1,
        bounds=airnp.Integers(-5, 20, columns=[0, 3]),
        fidelity=airnp.Huber(scale="sum"),
        depth=2,
        rank=4,
        init="balanced",
        normalize=False,
        record=3,
        max_iter=70,
        stop=None,
    ),
    "operator": dense(
        "operator", Y=MEASURES @ TRUTH.ravel(), mask=None, operator=OPERATOR, stop=QUICK, max_iter=300
    ),
    "own transform": dense(
        "regularizers", regularizers=[AdaptiveLaplacian(Halves()), TotalVariation()], max_iter=60, stop=None
    ),
    "own rule": dense("stop", stop=Countdown(12), max_iter=200),
    "own schedule": dense("optimizer", optimizer=Adam(1e-2, schedule=slower), stop=QUICK, max_iter=400),
    "reference engine": dense(engine="reference", max_iter=60),
    "sparse: factors": sparse(stop=None, max_iter=45),
    "sparse: nearest neighbours": sparse(
        regularizers=[NEAREST, AdaptiveLaplacian("columns", candidates=Nearest(3, refresh=10))],
        stop=None,
        max_iter=45,
    ),
    "sparse: default graphs, depth 3, float32": sparse(
        regularizers=None, depth=3, dtype="float32", max_iter=120, stop=SPARSE_QUICK
    ),
    "sparse: given graphs, both phases to their limits": sparse(
        regularizers=[
            AdaptiveLaplacian("columns", 1e-2, candidates=SPARSE_RING),
            FixedLaplacian(SPARSE_RING, "columns"),
        ],
        stop=HeldOut(0.1, every=7),
        max_iter=100,
    ),
    "sparse: ratings": sparse(
        regularizers=DECAY,
        offsets=3.0,
        mask_factor="both",
        fidelity=airnp.Squared("sum"),
        optimizer=Adam(1e-2, second_moment="matrix", schedule=ExponentialDecay(0.5, 20)),
        stop=HeldOut(0.1, 20, 0.0, 5, tolerance=1e-2),
        max_iter=400,
    ),
    "sparse: batches": sparse(
        regularizers=[NEAREST, *DECAY],
        offsets=True,
        mask_factor="rows",
        batch_size=30,
        stop=SPARSE_QUICK,
        optimizer=Adam(1e-2),
        max_iter=160,
    ),
    "sparse: held out, no refit": sparse(stop=HeldOut(0.1, every=7, refit=False), max_iter=60, batch_size=50),
    "sparse: energies": sparse(regularizers=[NEAREST], stop=EnergyChange(2e-4), max_iter=300),
    "sparse: descent": sparse(optimizer=GradientDescent(0.5), stop=SPARSE_QUICK, max_iter=120),
    "sparse: standstill": sparse(
        optimizer=GradientDescent(1e-30),
        stop=HeldOut(0.1, patience=10, relative_patience=0.0, every=5),
        max_iter=180,
    ),
    "sparse: weights, bounds and more": sparse(
        weights=RNG.integers(0, 4, S.nnz) + (np.arange(S.nnz) < 40),
        bounds=(-9, 20),
        mask_factor="columns",
        regularizers=[NEAREST],
        normalize=False,
        record=3,
        max_iter=40,
        stop=None,
    ),
    "sparse: own schedule": sparse(
        "optimizer", optimizer=Adam(1e-1, schedule=slower), stop=SPARSE_QUICK, max_iter=80
    ),
    "sparse: own start": sparse(
        "init", regularizers=[NEAREST], init=OwnStart(), stop=SPARSE_QUICK, max_iter=80
    ),
    "sparse: reference engine": sparse(regularizers=[NEAREST], engine="reference", max_iter=60),
}
BOTH_FORMS = pytest.mark.parametrize("name", ["held out", "sparse: ratings"])


def raise_at(iteration: int, error: type[BaseException]) -> Any:
    """Return a callback that raises once, at the first record from an iteration on."""
    raised = []

    def callback(now: int, state: Any) -> None:
        if now >= iteration and not raised:
            raised.append(now)
            raise error

    return callback


def do_nothing(iteration: int, state: Any) -> None:
    """Be a callback without effect."""


def interrupt_inside(monkeypatch: pytest.MonkeyPatch, iteration: int) -> None:
    """Let Ctrl-C come once, in the middle of the portion that would end at or after an iteration."""
    attempt, raised = Steps.attempt, []

    def half(self: Steps, iterations: int) -> Any:
        if self.iteration + iterations < iteration or raised:
            return attempt(self, iterations)
        raised.append(iteration)
        attempt(self, (iterations + 1) // 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Steps, "attempt", half)


def save_at_random(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Let checkpoints be due after the first portion, and at random later."""
    due = itertools.chain([True], (rng.random() < 0.05 for _ in itertools.count()))
    monkeypatch.setattr(CheckpointFile, "is_due", property(lambda self: next(due)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.npz"


# ------------------------------------------------------------------------------------------ bit for bit


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_ends_like_one_that_was_never_stopped(name, file, monkeypatch):
    case = CASES[name]
    whole = case.fit()
    rng = np.random.default_rng(len(name))
    for moment in (1, int(rng.integers(2, whole.n_iter)), whole.n_iter):
        # Ctrl-C between two iterations: the file holds this very moment.
        stop = raise_at(moment, KeyboardInterrupt)
        part = case.fit(checkpoint=file, callback=stop)
        assert part.stop_reason == "interrupted"
        assert_same(airnp.load(file), part)
        assert_same(airnp.resume(file, callback=stop, **case.again), whole)
        # Ctrl-C in the middle of one.
        with monkeypatch.context() as patch:
            interrupt_inside(patch, moment)
            if moment == 1:  # nothing has been computed that could be a result
                with pytest.raises(KeyboardInterrupt):
                    case.fit(checkpoint=file)
            else:
                part = case.fit(checkpoint=file)
                assert (part.stop_reason, part.n_iter < moment) == ("interrupted", True)
        assert_same(airnp.resume(file, **case.again), whole)
        # A crash: the file is that of a moment before.
        file.unlink()
        with monkeypatch.context() as patch:
            save_at_random(patch, rng)
            with pytest.raises(CrashError):
                case.fit(checkpoint=file, callback=raise_at(moment, CrashError))
        if file.exists():
            assert airnp.load(file).stop_reason == "checkpoint"
            assert_same(airnp.resume(file, callback=do_nothing, **case.again), whole)


@pytest.mark.parametrize("name", CASES)
def test_checkpoints_do_not_change_the_answer(name, file, monkeypatch):
    save_at_random(monkeypatch, np.random.default_rng(0))
    assert_same(CASES[name].fit(checkpoint=file), CASES[name].fit())


def rules(fraction: float, patience: int) -> st.SearchStrategy[Any]:
    held_out = [
        HeldOut(fraction, patience, every=5, refit=False),
        HeldOut(fraction, patience, every=9),
        HeldOut(fraction, patience, 0.0, 4, tolerance=0.05),
    ]
    return st.sampled_from([None, EnergyChange(1e-3), *held_out])


OPTIMIZERS = st.sampled_from(
    [
        Adam(1e-2),
        Adam(3e-3, schedule=ExponentialDecay(0.3, 50)),
        Adam(second_moment="matrix"),
        GradientDescent(0.3, schedule=ExponentialDecay(0.9, 10)),
    ]
)
COMMON = {
    "optimizer": OPTIMIZERS,
    "record": st.integers(1, 30),
    "dtype": st.sampled_from(["float32", "float64"]),
    "seed": st.integers(0, 2**32 - 1),
}
DENSE_TERMS = [
    AdaptiveLaplacian("rows"),
    AdaptiveLaplacian("columns", adjacency="global"),
    AdaptiveLaplacian("rows", 1e-3, "product"),
    TotalVariation(1e-3),
    FixedLaplacian(RING, "rows", 1e-2),
]
SPARSE_TERMS = [NEAREST, AdaptiveLaplacian("columns", candidates=Nearest(5, refresh=12)), DECAY[0]]
DENSE_RUNS = st.builds(
    dense,
    Y=st.sampled_from([TRUTH, TRUTH[None], np.stack([TRUTH, 2 * TRUTH])]),
    regularizers=st.lists(st.sampled_from(DENSE_TERMS), min_size=1, max_size=3),
    stop=rules(0.05, 20),
    max_iter=st.integers(1, 300),
    depth=st.integers(1, 3),
    **COMMON,
)
SPARSE_RUNS = st.builds(
    sparse,
    regularizers=st.lists(st.sampled_from(SPARSE_TERMS), min_size=1, max_size=2, unique=True),
    stop=rules(0.1, 10),
    max_iter=st.integers(1, 100),
    mask_factor=st.sampled_from([None, "rows", "both"]),
    offsets=st.booleans(),
    weights=st.sampled_from([None, 1 + np.arange(S.nnz) % 3]),
    batch_size=st.sampled_from([None, 20, 77]),
    depth=st.integers(2, 3),
    **COMMON,
)


@pytest.mark.parametrize("runs", [DENSE_RUNS, SPARSE_RUNS], ids=["dense", "sparse"])
@settings(max_examples=40)
@given(data=st.data(), pauses=st.lists(st.integers(1, 100), min_size=1, max_size=4))
def test_any_run_with_any_stops(tmp_path_factory, runs, data, pauses):
    case, file = data.draw(runs), tmp_path_factory.mktemp("run") / "run.npz"
    whole = case.fit()
    first, *others = itertools.accumulate(pauses)
    result = case.fit(checkpoint=file, callback=raise_at(first, KeyboardInterrupt))
    for moment in others:
        if result.stop_reason == "interrupted":
            result = airnp.resume(file, callback=raise_at(moment, KeyboardInterrupt))
    if result.stop_reason == "interrupted":
        result = airnp.resume(file, callback=do_nothing)
    assert_same(result, whole)
    assert_same(airnp.resume(file), whole)


@BOTH_FORMS
def test_ctrl_c_waits_while_a_portion_is_looked_at(name, file, monkeypatch):
    """The monitor and the history have seen a portion, or they have not; never one of them alone."""
    case = CASES[name]
    whole = case.fit()
    check, looks = monitors.HeldOutMonitor.check, []

    def press(self: Any, state: Any) -> str | None:
        looks.append(state.iteration)
        if len(looks) == 4:
            signal.raise_signal(signal.SIGINT)
        return check(self, state)

    monkeypatch.setattr(monitors.HeldOutMonitor, "check", press)
    part = case.fit(checkpoint=file)
    assert (part.stop_reason, part.n_iter) == ("interrupted", looks[3])
    assert_same(airnp.resume(file), whole)
    assert len(looks) == len(set(looks))


@BOTH_FORMS
def test_an_interrupt_before_the_first_iteration_loses_nothing(name, file, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_inside(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            CASES[name].fit(checkpoint=file)
    assert_same(airnp.resume(file), CASES[name].fit())


def test_until_a_sparse_refit_is_done_the_result_is_that_of_the_first_phase(file):
    case = CASES["sparse: ratings"]
    whole = case.fit()
    first = case.fit(stop=HeldOut(0.1, 20, 0.0, 5, refit=False, tolerance=1e-2))
    part = case.fit(checkpoint=file, callback=raise_at(first.n_iter + 1, KeyboardInterrupt))
    assert whole.n_iter > part.n_iter > first.n_iter
    for result in (part, airnp.load(file)):
        np.testing.assert_array_equal(result.X, first.X)
        assert result.best_iter == first.best_iter == whole.best_iter
    assert not np.array_equal(whole.X, first.X)


def test_fit_ratings_can_be_resumed(file, monkeypatch):
    ratings = scipy.sparse.coo_array(np.where(STORED, np.clip(np.rint(TABLE), 1, 5), 0))
    options = {"rank": 4, "max_iter": 80, "seed": 0}
    choose = Trials.choose
    whole = airnp.fit_ratings(ratings, **options)
    for moment in (3, whole.n_iter - 2):
        with monkeypatch.context() as patch:

            def choose_first(trials: Trials, moment: int = moment, patch: Any = patch) -> Any:
                chosen = choose(trials)
                interrupt_inside(patch, moment)
                return chosen

            patch.setattr(Trials, "choose", choose_first)
            part = airnp.fit_ratings(ratings, **options, checkpoint=Checkpoint(file, every=0))
        assert (part.stop_reason, part.n_iter < moment) == ("interrupted", True)
        resumed = airnp.resume(file)
        assert_same(resumed, airnp.SparseFitResult(**{key: getattr(whole, key) for key in vars(resumed)}))


def test_tables_keep_their_labels(file):
    frame = pd.DataFrame(np.where(MASK, TRUTH, np.nan), index=list("abcdefghij"))
    case = dense(Y=frame, mask=None, max_iter=60, stop=None)
    stop = raise_at(30, KeyboardInterrupt)
    case.fit(checkpoint=file, callback=stop)
    assert airnp.resume(file, callback=stop).X.equals(case.fit().X)


def test_runs_of_other_namespaces(backend, file):
    case = dense(Y=backend.array(TRUTH), mask=backend.array(MASK), max_iter=80, stop=HeldOut(every=10))
    stop = raise_at(40, KeyboardInterrupt)
    case.fit(checkpoint=file, callback=stop)
    other = {} if backend.xp is np else {"xp": backend.xp}
    resumed = airnp.resume(file, callback=stop, device=backend.device, **other)
    assert type(resumed.matrix) is type(case.fit().matrix)
    assert_same(resumed.to_numpy(), case.fit().to_numpy())
    if backend.xp is not np:
        case.fit(checkpoint=file, callback=raise_at(40, KeyboardInterrupt))
        with pytest.raises(ValueError, match=r"xp: the run had arrays of .*; give the module again"):
            airnp.resume(file, callback=stop)
        with pytest.raises(ValueError, match=r"xp: the run had arrays of .*, got numpy"):
            airnp.resume(file, callback=stop, xp=np)


SPARSE_TERM = AdaptiveLaplacian("rows", 1e-2, candidates=Nearest(4, refresh=3))
ON_CUDA = {
    "dense, over a replay": (dense(optimizer=Adam(1e-2), max_iter=215), 205),
    "dense, matrix": (dense(optimizer=Adam(1e-2, second_moment="matrix"), max_iter=30), 20),
    **{
        f"sparse, {moment}": (
            sparse(
                optimizer=Adam(1e-2, second_moment=moment),
                max_iter=8,
                regularizers=[SPARSE_TERM],
                stop=None,
                offsets=True,
                batch_size=40,
                record=1,
                weights=1 + np.arange(S.nnz) % 3,
            ),
            5,
        )
        for moment in ("entry", "matrix")
    },
}


@pytest.mark.parametrize("name", ON_CUDA)
def test_runs_on_the_cuda_engine(gpu, file, name):
    case, moment = ON_CUDA[name]
    stop = raise_at(moment, KeyboardInterrupt)
    case.fit(xp=gpu.cupy, checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match=r"^xp: the run had arrays of cupy, .*; give the module again"):
        airnp.resume(file, callback=stop)
    resumed, whole = airnp.resume(file, xp=gpu.cupy, device=1, callback=stop), case.fit(xp=gpu.cupy)
    if case.function is airnp.fit:
        assert resumed.matrix.device.id == 1
        resumed, whole = resumed.to_numpy(), whole.to_numpy()
    assert_same(resumed, whole)


# ------------------------------------------------------------------------------------------ more iterations


@pytest.mark.parametrize(
    ("name", "moment", "short", "most"),
    [
        *[(name, 60, 97, most) for name in ("AIR", "held out", "energies") for most in (150, 451)],
        *[
            (f"sparse: {name}", moment, 38, most)
            for name in ("factors", "held out, no refit", "energies")
            for moment in (20, 38)
            for most in (50, 91)
        ],
        ("sparse: batches", 12, 38, 50),  # a first phase of 19 iterations becomes one of 25
    ],
)
def test_more_iterations_are_those_of_a_longer_run(name, moment, short, most, file):
    """38 and 97 are no multiples of anything: the record and the look at the end are not a longer run's."""
    case, stop = CASES[name], raise_at(moment, KeyboardInterrupt)
    case.fit(checkpoint=file, callback=stop, max_iter=short)
    assert_same(airnp.resume(file, callback=stop, max_iter=most), case.fit(max_iter=most))


@pytest.mark.parametrize(
    ("name", "short", "most"),
    [
        *[(name, 97, 211) for name in ("AIR", "energies", "held out")],
        *[(f"sparse: {name}", 38, 61) for name in ("factors", "held out, no refit", "energies")],
    ],
)
def test_a_finished_run_can_have_more_iterations(name, short, most, file):
    case = CASES[name]
    assert_same(case.fit(checkpoint=file, max_iter=short), case.fit(max_iter=short))
    assert_same(airnp.resume(file), case.fit(max_iter=short))
    assert_same(airnp.resume(file, max_iter=short), case.fit(max_iter=short))
    assert_same(airnp.resume(file, max_iter=most), case.fit(max_iter=most))
    assert_same(airnp.load(file), case.fit(max_iter=most))


@BOTH_FORMS
def test_a_finished_run_is_returned_at_once(name, file, monkeypatch):
    whole = CASES[name].fit(checkpoint=file)
    assert whole.stop_reason == "held-out error stopped falling"
    monkeypatch.setattr(Steps, "attempt", lambda *arguments: pytest.fail("an iteration was made"))
    assert_same(airnp.resume(file), whole)
    assert_same(airnp.resume(file, max_iter=100_000), whole)
    assert_same(airnp.resume(file, callback=do_nothing, stop=HeldOut()), whole)
    for more in ({"callback": 3}, {"checkpoint": 3}):
        with pytest.raises(TypeError, match=f"^{next(iter(more))}: expected "):
            airnp.resume(file, **more)


@pytest.mark.parametrize(
    ("name", "moment", "most"),
    [
        ("held out, both phases to their limits", 330, 333),
        ("sparse: given graphs, both phases to their limits", 60, 100),
    ],
)
def test_a_second_phase_that_came_of_the_limit_cannot_have_more(name, moment, most, file):
    case = CASES[name]
    case.fit(checkpoint=file)
    with pytest.raises(ValueError, match=f"max_iter: the run has used its {most} iterations up"):
        airnp.resume(file, max_iter=most + 60)
    stop = raise_at(moment, KeyboardInterrupt)
    case.fit(checkpoint=file, callback=stop)
    with pytest.raises(ValueError, match=f"max_iter: the run has used its {most} iterations up"):
        airnp.resume(file, max_iter=most + 60, callback=stop)
    with pytest.raises(ValueError, match=f"max_iter: expected at least the {most} that the run was to have"):
        airnp.resume(file, max_iter=9, callback=stop)


def test_a_longer_run_may_have_had_a_shorter_first_phase(file):
    """With 199 iterations none are kept for a second phase, with 200 there are ten."""
    case = dense(stop=HeldOut(every=10), record=5)
    stop = raise_at(195, KeyboardInterrupt)
    case.fit(checkpoint=file, callback=stop, max_iter=199)
    with pytest.raises(ValueError, match="max_iter: the run has made 195 iterations before its second phase"):
        airnp.resume(file, callback=stop, max_iter=200)
    assert_same(airnp.resume(file, callback=stop, max_iter=220), case.fit(max_iter=220))


@BOTH_FORMS
def test_a_run_that_its_callback_stopped_can_go_on(name, file):
    case = CASES[name]
    part = case.fit(checkpoint=file, callback=lambda iteration, state: iteration == 21, record=3)
    assert (part.stop_reason, part.n_iter) == ("stopped by callback", 21)
    assert_same(airnp.resume(file, callback=do_nothing), case.fit(record=3))


# ------------------------------------------------------------------------------------------ given again


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.names])
def test_what_a_file_cannot_hold_must_be_given_again(name, file, monkeypatch):
    case = CASES[name]
    with monkeypatch.context() as patch:
        interrupt_inside(patch, 20)
        case.fit(checkpoint=file)
    with pytest.raises(ValueError, match=f"^{case.names[0]}: the run had an .*; give it again"):
        airnp.resume(file)
    # A callback may be new: it only looks on.
    assert_same(airnp.resume(file, callback=do_nothing, **case.again), case.fit())


@pytest.mark.parametrize("name", ["AIR", "sparse: factors"])
def test_what_the_file_holds_must_not_be_given(name, file):
    stop = raise_at(9, KeyboardInterrupt)
    CASES[name].fit(checkpoint=file, callback=stop)
    held = {"operator": OPERATOR, "regularizers": [TotalVariation()], "stop": HeldOut(), "optimizer": Adam()}
    for argument, value in {**held, "init": "gaussian"}.items():
        with pytest.raises(ValueError, match=f"^{argument}: expected None, the run had none or the file"):
            airnp.resume(file, callback=stop, **{argument: value})
    with pytest.raises(ValueError, match=r"^callback: the run had a callback, .*; give it again"):
        airnp.resume(file)
    with pytest.raises(TypeError, match=r"^callback: expected a function"):
        airnp.resume(file, callback=3)
    with pytest.raises(TypeError, match=r"^max_iter: expected a whole number"):
        airnp.resume(file, callback=stop, max_iter=1e5)


def test_the_engine_of_a_resumed_run_may_have_other_settings(file):
    stop = raise_at(20, KeyboardInterrupt)
    CASES["AIR"].fit(checkpoint=file, callback=stop)
    resumed = airnp.resume(file, callback=stop, engine=airnp.CPU(threads=2), checkpoint=None)
    np.testing.assert_allclose(resumed.X, CASES["AIR"].fit().X, rtol=1e-9)
    with pytest.raises(ValueError, match=r"^engine: 'cuda' works on CuPy arrays"):
        airnp.resume(file, callback=stop, engine=airnp.CUDA())


class OtherHeldOut(HeldOut):
    """A rule that a file cannot hold."""


@pytest.mark.parametrize("name", ["own transform", "own rule", "sparse: factors"])
def test_something_else_than_before_is_refused(name, file):
    stop, case = raise_at(9, KeyboardInterrupt), CASES[name]
    case.fit(
        checkpoint=file, callback=stop, **({"stop": OtherHeldOut(0.1)} if name == "sparse: factors" else {})
    )
    if name == "own transform":
        for terms in ([AdaptiveLaplacian("rows"), TotalVariation()], [AdaptiveLaplacian(Halves())]):
            with pytest.raises(ValueError, match=r"^regularizers: expected those of the run"):
                airnp.resume(file, callback=stop, regularizers=terms)
    else:
        with pytest.raises(ValueError, match=r"^stop: holds out other entries than the run did"):
            airnp.resume(file, callback=stop, stop=OtherHeldOut(0.3))


def test_a_monitor_must_say_what_it_remembers(file):
    stop, case = raise_at(20, KeyboardInterrupt), CASES["AIR"]
    part = case.fit(stop=Countdown(9, named=False), checkpoint=file, callback=stop)
    assert_same(airnp.load(file), part)
    with pytest.raises(
        ValueError, match=r"cannot be resumed \(stop: Monitor does not say what is remembered"
    ):
        airnp.resume(file, callback=stop, stop=Countdown(9))
    part = case.fit(stop=Countdown(99, named=False), checkpoint=file)
    assert_same(airnp.resume(file), part)
    with pytest.raises(ValueError, match=r"cannot be resumed \(stop: Monitor does not say"):
        airnp.resume(file, max_iter=1000)


def test_an_optimizer_whose_memory_cannot_be_stored(file):
    class Own:
        def init(self, params: Any, kinds: Any = None) -> Any:
            return object()

        def updates(self, state: Any) -> Any:
            return GradientDescent(0.1).updates(GradientDescent(0.1).init([0] * 5))

    stop = raise_at(20, KeyboardInterrupt)
    part = CASES["AIR"].fit(optimizer=Own(), checkpoint=file, callback=stop)
    assert_same(airnp.load(file), part)
    with pytest.raises(ValueError, match=r"cannot be resumed \(an object of object\)"):
        airnp.resume(file, callback=stop, optimizer=Own())


# ------------------------------------------------------------------------------------------ files


def test_checkpoints_are_written_on_the_way_and_load(file):
    found = []

    def look(iteration, state):
        if iteration > 1:
            found.append((airnp.load(file), state.X.copy()))

    result = CASES["AIR"].fit(checkpoint=Checkpoint(file, every=0), callback=look)
    assert [stored.n_iter for stored, _ in found] == [1, *range(10, 91, 10)]
    assert {stored.stop_reason for stored, _ in found} == {"checkpoint"}
    for (_, x), (stored, _) in itertools.pairwise(found):
        np.testing.assert_array_equal(x, stored.X)  # each file holds the state of the record before
    assert_same(airnp.load(str(file)), result)
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("fit", [dense().fit, sparse(stop=None).fit], ids=["dense", "sparse"])
def test_a_checkpoint_never_holds_a_state_that_is_not_finite(fit, file):
    jump = GradientDescent(0.1, schedule=lambda step: 1.0 if step < 7 else 1e300)
    with pytest.raises(airnp.DivergenceError, match="after 7 iterations") as caught:
        fit(record=1, checkpoint=Checkpoint(file, every=0), optimizer=jump, init=airnp.Gaussian(0.1, 0.1))
    for result in (caught.value.result, airnp.load(file)):
        assert result.n_iter == 6
        assert np.isfinite(result.X).all()


@pytest.mark.parametrize("name", ["AIR", "sparse: factors"])
def test_a_full_disk_does_not_cost_the_fit(name, file, monkeypatch):
    whole = CASES[name].fit()

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.warns(RuntimeWarning, match=r"^checkpoint: could not write .*No space left"):
        assert_same(CASES[name].fit(checkpoint=file), whole)
    assert list(file.parent.iterdir()) == []


def test_a_mere_result_is_no_run(file):
    for name in ("AIR", "sparse: factors"):
        CASES[name].fit().save(file)
        with pytest.raises(ValueError, match="holds a result, but no run to go on with; see checkpoint="):
            airnp.resume(file)
    with pytest.raises(FileNotFoundError):
        airnp.resume(file.parent / "nothing.npz")
    file.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
        airnp.resume(file)


@BOTH_FORMS
def test_a_damaged_run_is_not_resumed(name, file):
    stop = raise_at(40, KeyboardInterrupt)
    CASES[name].fit(checkpoint=file, callback=stop)
    whole = file.read_bytes()
    torn = bytearray(whole)
    torn[len(torn) // 2] ^= 1
    for content in (bytes(torn), *(whole[:size] for size in range(0, len(whole), len(whole) // 40))):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="not a result saved by airnp, or damaged"):
            airnp.resume(file, callback=stop)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_pickled_and_no_entry_is_stored_twice(name, file):
    CASES[name].fit(checkpoint=file, callback=raise_at(10, KeyboardInterrupt))
    with np.load(file, allow_pickle=False) as archive:
        arrays = {member: archive[member] for member in archive.files}
    for member, array in arrays.items():
        assert array.dtype.kind in "biufU", member
    for member in zipfile.ZipFile(file).infolist():
        assert member.filename.endswith(".npy")
    if CASES[name].function is airnp.fit_sparse:
        # Of as many numbers as there are entries: their columns, their values, and weights if there are.
        task = json.loads(str(arrays["header"]))["run"]["task"]
        values = task["stored"]["dict"]["entries"]["arguments"]["values"]["array"]
        count = len(arrays[values])
        expected = 3 if "weights" in CASES[name].options else 2
        assert sum(array.shape == (count,) for array in arrays.values()) == expected


def test_where_a_resumed_run_saves(file, tmp_path):
    case, stop = CASES["AIR"], raise_at(20, KeyboardInterrupt)
    case.fit(checkpoint=file, callback=stop)
    before = file.read_bytes()
    assert_same(airnp.resume(file, callback=stop, checkpoint=None), case.fit())
    assert_same(airnp.resume(file, callback=stop, checkpoint=tmp_path / "other.npz"), case.fit())
    assert file.read_bytes() == before
    assert_same(airnp.load(tmp_path / "other.npz"), case.fit())
    with pytest.raises(FileNotFoundError, match="checkpoint: expected a file in a directory that exists"):
        airnp.resume(file, callback=stop, checkpoint=tmp_path / "no" / "a.npz")


@pytest.mark.parametrize("name", ["AIR", "sparse: factors"])
def test_a_checkpoint_that_could_never_be_written_is_refused_at_once(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, error, message in [
        (tmp_path / "no" / "run.npz", FileNotFoundError, "expected a file in a directory that exists"),
        (tmp_path, IsADirectoryError, "expected a file"),
        (tmp_path / "pipe", ValueError, "expected an ordinary file, which can be replaced"),
        (3, TypeError, "expected a path, got int"),
    ]:
        with pytest.raises(error, match=f"^checkpoint: {message}"):
            CASES[name].fit(checkpoint=path, callback=lambda *_: pytest.fail("an iteration was made"))


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1"])
def test_odd_times_between_checkpoints_are_refused(seconds, file):
    with pytest.raises((ValueError, TypeError), match=r"^every: expected"):
        Checkpoint(file, seconds)


def test_a_file_is_written_only_when_it_is_old_enough(file, monkeypatch):
    clock, written = itertools.count(), []
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(
        checkpoints, "write_archive", lambda path, header, arrays: written.append(header["n_iter"])
    )
    CASES["AIR"].fit(checkpoint=Checkpoint(file, every=4), record=10)
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked to be killed")
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_run_survives_being_killed(tmp_path, kills, form):
    arguments = [sys.executable, "-m", "tests.training.kill_and_resume", str(tmp_path), str(kills), form]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["kills"], outcome["problems"]) == (kills, [])
    assert outcome["finished"] >= 1
