"""The choice between one thread and several follows the clock, and changes no result."""

import numba
import numpy as np
import pytest
from numba import set_num_threads

import airnp
from airnp.engines import cpu
from airnp.engines import threads as pacing
from airnp.engines.threads import Pace
from tests.engines.fits import steps


class Machine:
    """A fake clock: each iteration advances it by the time of one thread or of several."""

    def __init__(self, one, several):
        self.now, self.one, self.several = 0.0, one, several
        self.used = []
        self.pace = Pace(2, lambda threads: None, clock=lambda: self.now)

    def iterate(self, seconds):
        stop = self.now + seconds
        while self.now < stop:
            self.pace.run(self._iteration)

    def _iteration(self):
        self.used.append(self.pace.threads)
        self.now += self.one if self.pace.threads == 1 else self.several

    def share_of_several(self, last):
        return np.mean(np.array(self.used[-last:]) == 2)


def test_several_threads_stay_while_they_are_faster():
    machine = Machine(one=0.003, several=0.002)
    machine.iterate(20)
    assert machine.pace.threads == 2
    assert machine.share_of_several(5000) > 0.97


def test_one_thread_takes_over_if_several_are_slower():
    machine = Machine(one=0.0001, several=0.0002)
    machine.iterate(5)
    assert machine.share_of_several(20_000) < 0.03


def test_the_choice_follows_a_changing_load():
    machine = Machine(one=0.003, several=0.002)
    machine.iterate(5)
    machine.several = 0.010  # another process takes one of the processors
    machine.iterate(0.2)
    assert machine.pace.threads == 1
    machine.iterate(5)
    assert machine.share_of_several(500) < 0.05
    machine.several = 0.002
    machine.iterate(3)
    assert machine.pace.threads == 2


def test_a_rising_load_starts_a_trial_at_once():
    machine = Machine(one=0.003, several=0.002)
    machine.iterate(10)
    before = len(machine.used)
    machine.several = 0.010
    machine.iterate(1)
    assert machine.used[before:].index(1) < 10, "waited for the next regular trial"


def test_trials_take_a_small_share_of_long_iterations():
    machine = Machine(one=1.8, several=1.0)
    machine.iterate(2000)
    assert np.mean(np.array(machine.used) == 1) < 0.03


def test_the_result_of_an_iteration_is_returned():
    assert Pace(2, lambda threads: None).run(lambda: "done") == "done"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_do_not_depend_on_the_choice(monkeypatch, dtype):
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba's pool has a single thread on this machine")
    monkeypatch.setattr(cpu, "_SMALL", 1)
    monkeypatch.setattr(cpu, "_SMALL_PRODUCT", 1)
    y = np.random.default_rng(0).random((90, 110)).astype(dtype)
    used = []
    monkeypatch.setattr(
        cpu.pool, "let_work", lambda threads: (used.append(threads), set_num_threads(threads))
    )

    def params(choose):
        monkeypatch.setattr(pacing.Pace, "run", choose)
        objective = airnp.Objective(y, engine="cpu")
        training = steps(objective, threads=2)
        training.advance(25)
        return training.params

    def always_several(self, iteration):
        return iteration()

    def in_turns(self, iteration):
        self._use(3 - self.threads)
        return iteration()

    for several, turns in zip(params(always_several), params(in_turns), strict=True):
        np.testing.assert_array_equal(several, turns)
    assert used.count(1) >= 10
