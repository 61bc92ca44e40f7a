"""The rhythm of a fit: how many iterations run in one go before something is due."""

from __future__ import annotations

from collections.abc import Iterator

_WHOLE_EVERY = 50
"""Iterations at most that run in one go; what an interrupt or a divergence may cost."""


def is_due(iteration: int, every: int | None) -> bool:
    """Whether something that comes at every multiple of ``every`` comes at this iteration."""
    return every is not None and iteration % every == 0


def portions(start: int, limit: int, record_every: int, look_every: int | None) -> Iterator[int]:
    """Yield numbers of iterations that end wherever something is due, and at the first and the last.

    Ends are counted from the first iteration of all: who starts again at one of them has the same others.

    Examples
    --------
    >>> list(portions(0, 35, 10, None)), list(portions(20, 35, 10, None))
    ([1, 9, 10, 10, 5], [10, 5])
    """
    rhythms = [every for every in (record_every, look_every, _WHOLE_EVERY) if every is not None]
    done = start
    while done < limit:
        goal = 1 if done == 0 else min(limit, *((done // every + 1) * every for every in rhythms))
        yield goal - done
        done = goal
