"""Many problems side by side: on airnp's own processes, on executors of others, and when workers die."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
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
from airnp.fleet.crews import GivenCrew, OwnCrew

QUICK = {"max_iter": 30, "stop": None, "seed": 3, "regularizers": None}
PATIENCE = 120.0
"""Seconds that a busy machine may take to start a process; nothing waits that long when all is well."""


def tables(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = [rng.random((9, 2)) @ rng.random((2, 7)) for _ in range(count)]
    for table in found:
        table[rng.random(table.shape) < 0.2] = np.nan
    return found


def same(outcome: airnp.Outcome, Y: np.ndarray, mask: np.ndarray | None = None, **settings: object) -> bool:
    alone = airnp.fit(Y, mask, threads=1, **{**QUICK, **settings})
    return outcome.unwrap().X.tobytes() == alone.X.tobytes()


# What runs in workers; at the top level, so that it can be sent there.


def fall(marker: Path, iteration: int, state: object) -> None:
    """Let somebody kill this process, unless that has happened already."""
    if not marker.exists():
        marker.with_suffix(".new").write_text(str(os.getpid()))
        marker.with_suffix(".new").rename(marker)
        time.sleep(PATIENCE)


def fall_always(iteration: int, state: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class OddError(Exception):
    """One that comes back from no process."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_oddly(iteration: int, state: object) -> None:
    raise OddError(1, 2)


class Spy(os.PathLike):
    """A checkpoint that notes, when a fit asks for its path, how many threads its process may use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        import numba
        from threadpoolctl import threadpool_info

        counts = [pool["num_threads"] for pool in threadpool_info()]
        self.path.with_suffix(".threads").write_text(f"{max(counts)} {numba.config.NUMBA_NUM_THREADS}")
        return str(self.path)


def killed_when_it_appears(marker: Path) -> threading.Thread:
    """Kill the process that leaves its number there, from another thread."""

    def kill() -> None:
        end = time.monotonic() + PATIENCE
        while not marker.exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(int(marker.read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


# --- problems ---


def test_own_processes_give_what_fit_gives_alone():
    data = tables(5)
    outcomes = list(fit_many(data, workers=2, threads=1, **QUICK))
    assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3, 4]
    for outcome in outcomes:
        assert same(outcome, data[outcome.index])
        assert (outcome.attempts, outcome.error) == (1, None)
        assert outcome.seconds > 0


def test_every_kind_of_problem_in_threads():
    Y = tables(1)[0]
    mask = ~np.isnan(Y)
    filled = np.where(mask, Y, 0)
    problems = {
        "data": Y,
        "pair": (filled, mask),
        "mapping": {"Y": filled, "mask": mask, "depth": 2, "seed": 8},
        "lists": Y.tolist(),
    }
    with ThreadPoolExecutor(2) as executor:
        found = {outcome.index: outcome for outcome in fit_many(problems, executor=executor, **QUICK)}
    assert set(found) == set(problems)
    assert same(found["data"], Y)
    assert same(found["lists"], Y)
    assert same(found["pair"], filled, mask)
    assert same(found["mapping"], filled, mask, depth=2, seed=8)


def test_a_stack_is_read_matrix_by_matrix():
    stack = np.stack(tables(3))
    with ThreadPoolExecutor(1) as executor:
        outcomes = list(fit_many(stack, executor=executor, **QUICK))
    assert all(same(outcome, stack[outcome.index]) for outcome in outcomes)
    assert len(outcomes) == 3


def test_a_failed_problem_keeps_its_error_to_itself():
    Y = tables(1)[0]
    problems = [Y, {"Y": Y, "depth": 0}, {"mask": Y}, (Y, Y, Y), {"Y": Y, "colour": 1}, Y]
    with ThreadPoolExecutor(2) as executor:
        found = {outcome.index: outcome for outcome in fit_many(problems, executor=executor, **QUICK)}
    assert [found[place].error is None for place in range(6)] == [True, False, False, False, False, True]
    for place, name in ((1, "depth"), (2, "Y"), (3, "problem"), (4, "colour")):
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            found[place].unwrap()


def test_errors_come_back_from_processes_with_their_story():
    Y = tables(1)[0]
    problems = [
        {"Y": Y, "depth": 0},
        {"Y": Y, "callback": fail_oddly},
        {"Y": Y, "callback": lambda *_: None},
        Y,
    ]
    found = {outcome.index: outcome for outcome in fit_many(problems, workers=1, **QUICK)}
    assert isinstance(found[0].error, ValueError)
    assert "checked_whole" in found[0].error.__notes__[0]
    assert isinstance(found[1].error, RuntimeError)
    assert "OddError: 1 and 2" in str(found[1].error)
    assert isinstance(found[2].error, TypeError)
    assert str(found[2].error).startswith("callback: ")
    assert found[2].attempts == 0
    assert same(found[3], Y)


def test_generators_are_read_a_little_ahead_and_may_fail():
    data = tables(12)
    read = []

    def source():
        for place, Y in enumerate(data):
            if place == 9:
                raise OSError("no more")
            read.append(place)
            yield Y

    with ThreadPoolExecutor(1) as executor:
        outcomes = fit_many(source(), executor=executor, **QUICK)
        assert read == []
        next(outcomes)
        assert len(read) <= 3
        rest: deque[airnp.Outcome] = deque()
        with pytest.raises(OSError, match="no more"):
            rest.extend(outcomes)
    assert read == list(range(9))
    assert [outcome.index for outcome in rest] == list(range(1, 9)), "what is in flight comes first"


def test_without_a_seed_every_problem_draws_one():
    Y = tables(1)[0]
    free = {name: value for name, value in QUICK.items() if name != "seed"}
    with ThreadPoolExecutor(1) as executor:
        results = [outcome.unwrap() for outcome in fit_many([Y, Y], executor=executor, **free)]
    assert results[0].seed != results[1].seed
    assert results[0].X.tobytes() == airnp.fit(Y, threads=1, **{**QUICK, "seed": results[0].seed}).X.tobytes()


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
def test_what_cannot_be_meant_is_refused_at_once(problems, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fit_many(problems, **settings)


def test_nothing_gives_nothing():
    assert list(fit_many([])) == []


def test_modules_are_sent_by_name():
    packed = OwnCrew(1, 1).pack({"xp": np})
    assert pickle.loads(packed) == {"xp": np}


def test_the_bar_counts_problems(capsys):
    Y = tables(1)[0]
    with ThreadPoolExecutor(1) as executor:
        list(fit_many([Y, {"Y": Y, "depth": 0}], executor=executor, progress=True, **QUICK))
    shown = capsys.readouterr().err
    assert "2/2" in shown
    assert "failed=1" in shown


# --- threads ---


def test_threads_do_not_multiply(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    Y = tables(1)[0]
    problems = [{"Y": Y, "checkpoint": Spy(tmp_path / f"{place}.npz")} for place in range(3)]
    for outcome in fit_many(problems, workers=2, threads=1, **QUICK):
        outcome.unwrap()
    notes = [path.read_text() for path in tmp_path.glob("*.threads")]
    assert notes == ["1 1"] * 3


def test_threads_are_shared_out_between_workers(monkeypatch):
    monkeypatch.setattr("airnp.fleet.crews.processors", lambda: 12)
    monkeypatch.setattr("airnp.fleet.crews.available_threads", lambda: 12)
    monkeypatch.setattr("airnp.fleet.crews.processors", lambda: 12)
    assert OwnCrew(4, None).threads == 3
    assert OwnCrew(24, None).threads == 1
    assert (OwnCrew(None, None).threads, OwnCrew(None, None).capacity) == (1, 24)
    with ThreadPoolExecutor(5) as executor:
        assert GivenCrew(executor, None, None).threads == 2
        assert GivenCrew(executor, None, None).capacity == 10


# --- ends ---


def test_closing_early_cancels_what_has_not_begun():
    data = tables(8)
    begun = []

    def note(iteration, state):
        begun.append(iteration)

    with ThreadPoolExecutor(1) as executor:
        outcomes = fit_many(data, executor=executor, workers=3, callback=note, record_every=30, **QUICK)
        next(outcomes)
        outcomes.close()
    assert len(begun) <= 2 * 3, "the first, and one that was on its way"


def test_closing_early_ends_own_processes_in_the_middle_of_a_fit(tmp_path):
    Y = tables(1)[0]
    marker = tmp_path / "number"
    problems = [Y, {"Y": Y, "callback": partial(fall, marker)}]
    outcomes = fit_many(problems, workers=1, **QUICK)
    next(outcomes)
    end = time.monotonic() + PATIENCE
    while not marker.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    outcomes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_an_interrupt_ends_own_processes(tmp_path):
    code = f"""
import os, signal, threading, time
from functools import partial
from pathlib import Path
import numpy as np, airnp
from tests.fleet.test_fleet import fall

if __name__ == "__main__":
    marker = Path({str(tmp_path / "number")!r})
    def interrupt():
        while not marker.exists():
            time.sleep(0.01)
        os.killpg(0, signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        for outcome in airnp.fit_many([np.eye(4) + 1] * 3, workers=1, callback=partial(fall, marker)):
            print("an outcome")
    except KeyboardInterrupt:
        try:
            os.kill(int(marker.read_text()), 0)
        except ProcessLookupError:
            print("ended")
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    assert run(sys.executable, script) == "ended\n"


def run(*command: str | Path) -> str:
    """Run a program that finds airnp and these tests; return what it says."""
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- lost workers ---


def test_a_killed_worker_of_the_own_pool_is_replaced(tmp_path):
    data = tables(6)
    marker = tmp_path / "number"
    problems = [{"Y": Y} for Y in data]
    problems[1]["callback"] = partial(fall, marker)
    killer = killed_when_it_appears(marker)
    found = {outcome.index: outcome for outcome in fit_many(problems, workers=2, threads=1, **QUICK)}
    killer.join()
    assert [found[place].attempts for place in range(6)] == [1, 2, 1, 1, 1, 1]
    assert all(same(found[place], data[place]) for place in range(6))


def test_a_problem_that_kills_every_worker_harms_nobody_else():
    data = tables(4)
    problems = [{"Y": data[0], "callback": fall_always}, *data[1:]]
    found = {outcome.index: outcome for outcome in fit_many(problems, workers=1, retries=1, **QUICK)}
    assert found[0].attempts == 2
    with pytest.raises(BrokenExecutor, match="died at every attempt"):
        found[0].unwrap()
    assert [found[place].attempts for place in (1, 2, 3)] == [1, 1, 1]
    assert all(same(found[place], data[place]) for place in (1, 2, 3))


def test_a_given_process_pool_that_broke_says_so_in_every_outcome():
    Y = tables(1)[0]
    problems = [{"Y": Y, "callback": fall_always}, Y, Y, Y]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        outcomes = list(fit_many(problems, executor=executor, **QUICK))
    assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3]
    for outcome in outcomes:
        with pytest.raises(BrokenExecutor, match="executor: a worker of the ProcessPoolExecutor died"):
            outcome.unwrap()


def test_an_executor_that_takes_no_work_is_the_callers_error():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        list(fit_many(tables(1), executor=executor))


def test_a_problem_that_somebody_cancels_says_so(tmp_path):
    begun, may_go_on = threading.Event(), threading.Event()
    submitted = threading.Semaphore(0)

    class Counting(ThreadPoolExecutor):
        def submit(self, *call, **settings):
            future = super().submit(*call, **settings)
            submitted.release()
            return future

    def hold(iteration, state):
        begun.set()
        may_go_on.wait(PATIENCE)

    def shut_down():
        begun.wait(PATIENCE)
        for _ in range(2):
            submitted.acquire(timeout=PATIENCE)
        executor.shutdown(wait=False, cancel_futures=True)
        may_go_on.set()

    Y = tables(1)[0]
    executor = Counting(1)
    thread = threading.Thread(target=shut_down)
    thread.start()
    found = {
        outcome.index: outcome for outcome in fit_many([Y, Y], executor=executor, callback=hold, **QUICK)
    }
    thread.join()
    assert same(found[0], Y)
    assert "cancelled" in str(found[1].error)


# --- Dask ---


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, which a nanny replaces when they die."""
    quiet = {
        "distributed.worker.memory.terminate": False,
        "distributed.comm.timeouts.connect": f"{PATIENCE}s",
    }
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, timeout=PATIENCE) as client,
    ):
        yield client


def test_dask_gives_what_fit_gives_alone(cluster):
    data = tables(5)
    outcomes = list(fit_many(data, executor=cluster.get_executor(), callback=lambda *_: None, **QUICK))
    assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3, 4]
    assert all(same(outcome, data[outcome.index]) for outcome in outcomes)


def test_equal_problems_are_tasks_of_their_own_on_dask(cluster):
    Y = tables(1)[0]
    problems = [Y, Y, {"Y": Y, "depth": 0}]
    found = {
        outcome.index: outcome for outcome in fit_many(problems, executor=cluster.get_executor(), **QUICK)
    }
    assert same(found[0], Y)
    assert same(found[1], Y)
    assert isinstance(found[2].error, ValueError)


@pytest.mark.parametrize("forgiving", [True, False])
def test_a_killed_worker_of_a_dask_cluster_loses_nothing(cluster, tmp_path, monkeypatch, forgiving):
    """Dask begins its task again by itself; when Dask gives it up, fit_many gives it to Dask again."""
    monkeypatch.setattr(cluster.cluster.scheduler, "allowed_failures", 3 if forgiving else 0)
    data = tables(6)
    marker = tmp_path / "number"
    problems = [{"Y": Y} for Y in data]
    problems[1]["callback"] = partial(fall, marker)
    killer = killed_when_it_appears(marker)
    outcomes = fit_many(problems, executor=cluster.get_executor(), retries=5, **QUICK)
    found = {outcome.index: outcome for outcome in outcomes}
    killer.join()
    assert set(found) == set(range(6))
    assert all(same(found[place], data[place]) for place in range(6))
    assert found[1].attempts == (1 if forgiving else 2)


# --- MPI ---


def test_mpi_gives_what_fit_gives_alone(tmp_path):
    launcher = shutil.which(
        "mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if importlib.util.find_spec("mpi4py") is None or launcher is None:
        pytest.skip("mpi4py or mpiexec is not installed: pip install mpi4py mpich")
    script = tmp_path / "script.py"
    script.write_text("""
from mpi4py.futures import MPIPoolExecutor
from airnp import fit_many
from tests.fleet.test_fleet import QUICK, same, tables

if __name__ == "__main__":
    data = tables(5)
    with MPIPoolExecutor() as executor:
        outcomes = list(fit_many(data, executor=executor, **QUICK))
    print(sorted(outcome.index for outcome in outcomes))
    print(all(same(outcome, data[outcome.index]) for outcome in outcomes))
""")
    said = run(launcher, "-n", "3", sys.executable, "-m", "mpi4py.futures", script)
    assert said == "[0, 1, 2, 3, 4]\nTrue\n"
