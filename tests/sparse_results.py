"""Comparing results of the sparse form, bit for bit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

import airnp


def assert_same(a: airnp.SparseFitResult, b: airnp.SparseFitResult) -> None:
    """Raise unless two results are equal in everything."""
    for name in (each.name for each in fields(a)):
        mine, other = getattr(a, name), getattr(b, name)
        if name == "history":
            assert list(mine) == list(other)
            for column in mine:
                _assert_same_array(mine[column], other[column], column)
        elif name == "graphs":
            assert len(mine) == len(other)
            for one, two in zip(mine, other, strict=True):
                _assert_same_graph(one, two)
        elif name == "bounds" and mine is not None:
            for part, same in zip(vars(mine).values(), vars(other).values(), strict=True):
                _assert_same_array(part, same, name)
        elif name == "offsets" and mine is not None:
            for part, same in zip(mine, other, strict=True):
                _assert_same_array(part, same, name)
        elif isinstance(mine, np.ndarray):
            _assert_same_array(mine, other, name)
        else:
            assert mine == other, name


def _assert_same_graph(a: Any, b: Any) -> None:
    told = ("name", "description", "weight", "energy", "learned")
    assert [getattr(a, name) for name in told] == [getattr(b, name) for name in told]
    for part in ("data", "indices", "indptr"):
        _assert_same_array(getattr(a.adjacency, part), getattr(b.adjacency, part), a.name)


def _assert_same_array(a: Any, b: Any, name: str) -> None:
    assert np.asarray(a).dtype == np.asarray(b).dtype, name
    np.testing.assert_array_equal(a, b, err_msg=name)
