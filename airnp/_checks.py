"""Check numbers that callers pass, with errors that name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np


def checked_whole(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least``, else raise.

    Examples
    --------
    >>> checked_whole("depth", 3)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)


_DEEPEST = 100
"""Factors at most. A product of more has no gradient to speak of, and 140 overflow Python's floats."""


def checked_depth(depth: Any) -> int:
    """Return a number of factors: a whole number from 1 to 100."""
    if checked_whole("depth", depth) > _DEEPEST:
        raise ValueError(f"depth: expected at most {_DEEPEST} factors, got {depth}")
    return int(depth)


def checked_number(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a finite real number, else raise.

    Examples
    --------
    >>> checked_number("delta", 2)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not np.isfinite(number):
        raise ValueError(f"{name}: expected a finite number, got {value!r}")
    return number


def checked_seed(seed: Any) -> int:
    """Return a seed, which must be a whole number of at least 0; draw one for None."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    return checked_whole("seed", seed, least=0)


def checked_choice(name: str, value: Any, choices: tuple[str, ...]) -> Any:
    """Return ``value`` if it is one of ``choices``, else raise an error that lists them."""
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
