"""``fit_many`` on airnp's own processes and on executors of the caller, also when workers die."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import dask
import distributed
import numpy as np
import pytest

import airnp
from airnp import fit_many
from airnp.fleet.pools import ExecutorPool, ProcessPool
from tests.fleet.problems import (
    QUICK,
    ThreadCounter,
    kill_itself,
    raise_unpicklable,
    same,
    tables,
    wait_to_be_killed,
)

PATIENCE = 600.0
"""Seconds after which a wait is a failure; a busy machine may need minutes to start a process."""

Y = tables(1)[0]


def outcomes_of(problems: object, **settings: object) -> dict[object, airnp.Outcome]:
    return {outcome.index: outcome for outcome in fit_many(problems, **{**QUICK, **settings})}


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def pipe(tmp_path):
    """A named pipe: reading it blocks until another process writes."""
    path = tmp_path / "number"
    os.mkfifo(path)
    return path


@pytest.fixture
def killer(pipe):
    """Kill the process that writes its number into the pipe."""
    thread = threading.Thread(target=lambda: os.kill(int(pipe.read_text()), signal.SIGKILL), daemon=True)
    thread.start()
    return thread


# --- problems ---


def test_own_processes_give_what_fit_gives_alone():
    data = tables(5)
    found = outcomes_of(data, workers=2, threads=1)
    assert sorted(found) == [0, 1, 2, 3, 4]
    for index, outcome in found.items():
        assert same(outcome, data[index])
        assert (outcome.attempts, outcome.error) == (1, None)
        assert outcome.seconds > 0


def test_every_kind_of_problem_in_threads(threads):
    mask = ~np.isnan(Y)
    filled = np.where(mask, Y, 0)
    problems = {
        "data": Y,
        "pair": (filled, mask),
        "mapping": {"Y": filled, "mask": mask, "depth": 2, "seed": 8},
        "lists": Y.tolist(),
    }
    found = outcomes_of(problems, executor=threads)
    assert set(found) == set(problems)
    assert same(found["data"], Y)
    assert same(found["lists"], Y)
    assert same(found["pair"], filled, mask)
    assert same(found["mapping"], filled, mask, depth=2, seed=8)


def test_a_stack_is_read_matrix_by_matrix(threads):
    stack = np.stack(tables(3))
    found = outcomes_of(stack, executor=threads)
    assert len(found) == 3
    assert all(same(outcome, stack[index]) for index, outcome in found.items())


def test_a_failed_problem_does_not_affect_the_others(threads):
    problems = [Y, {"Y": Y, "depth": 0}, {"mask": Y}, (Y, Y, Y), {"Y": Y, "colour": 1}, Y]
    found = outcomes_of(problems, executor=threads)
    assert [found[place].error is None for place in range(6)] == [True, False, False, False, False, True]
    for place, name in ((1, "depth"), (2, "Y"), (3, "problem"), (4, "colour")):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            found[place].unwrap()


def test_errors_come_back_from_processes_with_their_traceback():
    callbacks = [raise_unpicklable, lambda *_: None]
    problems = [{"Y": Y, "depth": 0}, *({"Y": Y, "callback": callback} for callback in callbacks), Y]
    found = outcomes_of(problems, workers=1)
    assert isinstance(found[0].error, ValueError)
    assert "checked_whole" in found[0].error.__notes__[0]
    assert isinstance(found[1].error, RuntimeError)
    assert "UnpicklableError: 1 and 2" in str(found[1].error)
    assert isinstance(found[2].error, TypeError)
    assert str(found[2].error).startswith("callback: ")
    assert found[2].attempts == 0
    assert same(found[3], Y)


def test_generators_are_read_a_little_ahead_and_may_fail(threads):
    read = []

    def source():
        for place, table in enumerate(tables(9)):
            read.append(place)
            yield table
        raise OSError("no more")

    outcomes = fit_many(source(), executor=threads, **QUICK)
    assert read == []
    next(outcomes)
    assert len(read) <= 3
    rest: deque[airnp.Outcome] = deque()
    with pytest.raises(OSError, match="no more"):
        rest.extend(outcomes)
    assert read == list(range(9))
    assert [outcome.index for outcome in rest] == list(range(1, 9)), "problems in flight come first"


def test_without_a_seed_every_problem_draws_one(threads):
    found = outcomes_of([Y, Y], executor=threads, seed=None)
    seeds = [found[place].unwrap().seed for place in (0, 1)]
    assert seeds[0] != seeds[1]
    assert same(found[0], Y, seed=seeds[0])


@pytest.mark.parametrize(
    ("problems", "settings", "message"),
    [
        ([], {"workers": 0}, "workers: "),
        ([], {"threads": 1.5}, "threads: "),
        ([], {"retries": -1}, "retries: "),
        ([], {"executor": 3}, "executor: "),
        ([], {"checkpoint": "x.npz"}, "checkpoint: "),
        ([], {"colour": 3}, "colour: "),
        ([], {"callback": lambda *_: None}, "callback: expected what can be sent"),
        (3, {}, "problems: "),
        (np.eye(3), {}, "problems: "),
        ({"Y": np.eye(3)}, {}, "problems: "),
    ],
)
def test_wrong_arguments_are_refused_at_once(problems, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit_many(problems, **settings)


def test_no_problems_give_no_outcomes():
    assert list(fit_many([])) == []


def test_modules_are_sent_by_name():
    assert pickle.loads(ProcessPool(1, 1).pack({"xp": np})) == {"xp": np}


def test_the_bar_counts_problems(threads, capsys):
    outcomes_of([Y, {"Y": Y, "depth": 0}], executor=threads, progress=True)
    output = capsys.readouterr().err
    assert "2/2" in output
    assert "failed=1" in output


# --- threads ---


def test_workers_use_no_more_threads_than_allowed(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    problems = [{"Y": Y, "checkpoint": ThreadCounter(tmp_path / f"{place}.npz")} for place in range(3)]
    for outcome in fit_many(problems, workers=2, threads=1, **QUICK):
        outcome.unwrap()
    assert [path.read_text() for path in tmp_path.glob("*.threads")] == ["1 1"] * 3


def test_threads_are_divided_between_workers(monkeypatch):
    for name in ("processors", "available_threads"):
        monkeypatch.setattr(f"airnp.fleet.pools.{name}", lambda: 12)
    assert ProcessPool(4, None).threads == 3
    assert ProcessPool(24, None).threads == 1
    assert (ProcessPool(None, None).threads, ProcessPool(None, None).capacity) == (1, 24)
    with ThreadPoolExecutor(5) as executor:
        assert ExecutorPool(executor, None, None).threads == 2
        assert ExecutorPool(executor, None, None).capacity == 10


# --- early ends ---


def test_closing_early_cancels_problems_that_have_not_begun():
    begun, closed = [], threading.Event()
    second_begun = threading.Event()

    def note(place, iteration, state):
        begun.append(place)
        if place == 1:
            second_begun.set()
            closed.wait(PATIENCE)

    problems = [{"Y": Y, "callback": partial(note, place)} for place in range(8)]
    with ThreadPoolExecutor(1) as executor:
        outcomes = fit_many(problems, executor=executor, workers=3, **QUICK)
        next(outcomes)
        assert second_begun.wait(PATIENCE)
        outcomes.close()
        closed.set()
    assert set(begun) == {0, 1}


def test_closing_early_ends_own_processes_in_the_middle_of_a_fit(pipe):
    problems = [Y, {"Y": Y, "callback": partial(wait_to_be_killed, pipe)}]
    outcomes = fit_many(problems, workers=1, **QUICK)
    next(outcomes)
    number = int(pipe.read_text())
    outcomes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_an_interrupt_ends_own_processes(pipe, tmp_path):
    code = f"""
import os, signal, threading
from functools import partial
from pathlib import Path
import numpy as np, airnp
from tests.fleet.problems import wait_to_be_killed

if __name__ == "__main__":
    pipe, numbers = Path({str(pipe)!r}), []
    def interrupt():
        numbers.append(int(pipe.read_text()))
        os.killpg(0, signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        callback = partial(wait_to_be_killed, pipe)
        for outcome in airnp.fit_many([np.eye(4) + 1] * 3, workers=1, callback=callback):
            print("an outcome")
    except KeyboardInterrupt:
        try:
            os.kill(numbers[0], 0)
        except ProcessLookupError:
            print("ended")
"""
    assert run(code, tmp_path, sys.executable) == "ended\n"


def run(code: str, folder: Path, *command: str) -> str:
    """Run a program, which can import airnp and these tests, by a command; return its output."""
    (folder / "script.py").write_text(code)
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*command, str(folder / "script.py")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- lost workers ---


def with_a_victim(data, pipe):
    """Problems of which the second waits to be killed."""
    return [data[0], {"Y": data[1], "callback": partial(wait_to_be_killed, pipe)}, *data[2:]]


def test_a_killed_worker_of_the_own_pool_is_replaced(pipe, killer):
    data = tables(6)
    found = outcomes_of(with_a_victim(data, pipe), workers=2, threads=1)
    killer.join(PATIENCE)
    assert [found[place].attempts for place in range(6)] == [1, 2, 1, 1, 1, 1]
    assert all(same(found[place], data[place]) for place in range(6))


def test_a_problem_that_kills_every_worker_does_not_affect_the_others():
    data = tables(4)
    found = outcomes_of([{"Y": data[0], "callback": kill_itself}, *data[1:]], workers=1, retries=1)
    assert found[0].attempts == 2
    with pytest.raises(BrokenExecutor, match="died at every attempt"):
        found[0].unwrap()
    assert [found[place].attempts for place in (1, 2, 3)] == [1, 1, 1]
    assert all(same(found[place], data[place]) for place in (1, 2, 3))


def test_a_broken_process_pool_of_the_caller_is_named_in_every_outcome():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        found = outcomes_of([{"Y": Y, "callback": kill_itself}, Y, Y, Y], executor=executor)
    assert sorted(found) == [0, 1, 2, 3]
    for outcome in found.values():
        with pytest.raises(BrokenExecutor, match="executor: a worker of the ProcessPoolExecutor died"):
            outcome.unwrap()


def test_an_executor_that_takes_no_work_is_the_callers_error():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        list(fit_many(tables(1), executor=executor))


def test_a_cancelled_problem_says_so():
    begun, cancelled = threading.Event(), threading.Event()
    submitted = threading.Semaphore(0)

    class CountingExecutor(ThreadPoolExecutor):
        def submit(self, *call, **settings):
            future = super().submit(*call, **settings)
            submitted.release()
            return future

    def hold(iteration, state):
        begun.set()
        cancelled.wait(PATIENCE)

    def shut_down():
        begun.wait(PATIENCE)
        for _ in range(2):
            submitted.acquire(timeout=PATIENCE)
        executor.shutdown(wait=False, cancel_futures=True)
        cancelled.set()

    executor = CountingExecutor(1)
    thread = threading.Thread(target=shut_down)
    thread.start()
    found = outcomes_of([Y, Y], executor=executor, callback=hold)
    thread.join()
    assert same(found[0], Y)
    assert "cancelled" in str(found[1].error)


# --- Dask ---


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, which a nanny replaces when they die."""
    settings = {
        "distributed.worker.memory.terminate": False,
        "distributed.comm.timeouts.connect": f"{PATIENCE}s",
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, timeout=PATIENCE) as client,
    ):
        yield client


def test_dask_gives_what_fit_gives_alone(cluster):
    data = tables(5)
    found = outcomes_of(data, executor=cluster.get_executor(), callback=lambda *_: None)
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert all(same(outcome, data[index]) for index, outcome in found.items())


def test_equal_problems_are_separate_tasks_on_dask(cluster):
    found = outcomes_of([Y, Y, {"Y": Y, "depth": 0}], executor=cluster.get_executor())
    assert same(found[0], Y)
    assert same(found[1], Y)
    assert isinstance(found[2].error, ValueError)


@pytest.mark.parametrize("forgiving", [True, False])
def test_a_killed_worker_of_a_dask_cluster_loses_nothing(cluster, pipe, killer, monkeypatch, forgiving):
    """Dask repeats the task by itself; if Dask gives it up, fit_many submits it again."""
    monkeypatch.setattr(cluster.cluster.scheduler, "allowed_failures", 3 if forgiving else 0)
    data = tables(6)
    found = outcomes_of(with_a_victim(data, pipe), executor=cluster.get_executor(), retries=5)
    killer.join(PATIENCE)
    assert set(found) == set(range(6))
    assert all(same(found[place], data[place]) for place in range(6))
    assert found[1].attempts == (1 if forgiving else 2)


# --- MPI ---


def test_mpi_gives_what_fit_gives_alone(tmp_path):
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    launcher = shutil.which("mpiexec", path=folders)
    if importlib.util.find_spec("mpi4py") is None or launcher is None:
        pytest.skip("mpi4py or mpiexec is not installed: pip install mpi4py mpich")
    code = """
from mpi4py.futures import MPIPoolExecutor
from airnp import fit_many
from tests.fleet.problems import QUICK, same, tables

if __name__ == "__main__":
    data = tables(5)
    with MPIPoolExecutor() as executor:
        outcomes = list(fit_many(data, executor=executor, **QUICK))
    print(sorted(outcome.index for outcome in outcomes))
    print(all(same(outcome, data[outcome.index]) for outcome in outcomes))
"""
    output = run(code, tmp_path, launcher, "-n", "3", sys.executable, "-m", "mpi4py.futures")
    assert output == "[0, 1, 2, 3, 4]\nTrue\n"
