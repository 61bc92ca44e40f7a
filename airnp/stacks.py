"""One problem out of a stack, chosen by a caller."""

from __future__ import annotations

from operator import index
from typing import Any


def chosen_problem(batch: tuple[int, ...], problem: Any) -> tuple[int, ...]:
    """Return the index of one problem of a stack of shape ``batch``, checked; () where there is no stack.

    Parameters
    ----------
    batch : tuple of int
        Shape of the stack; empty for one matrix.
    problem : int, tuple of int, or None
        As a caller gave it. None means the only problem there is.

    Examples
    --------
    >>> chosen_problem((4,), 1), chosen_problem((2, 3), (1, -1)), chosen_problem((), None)
    ((1,), (1, -1), ())
    """
    given = () if problem is None else problem if isinstance(problem, tuple) else (problem,)
    try:
        chosen = tuple(index(place) for place in given)
    except TypeError:
        raise TypeError(f"problem: expected a whole number or a tuple of them, got {problem!r}") from None
    if len(chosen) != len(batch):
        if not batch:
            raise ValueError(f"problem: there is one matrix and no stack to choose from, got {problem!r}")
        example = "0" if len(batch) == 1 else repr((0,) * len(batch))
        raise ValueError(f"problem: choose one of a stack of shape {batch}, as problem={example}")
    for place, size in zip(chosen, batch, strict=True):
        if not -size <= place < size:
            raise IndexError(f"problem: {problem!r} is outside a stack of shape {batch}")
    return chosen
