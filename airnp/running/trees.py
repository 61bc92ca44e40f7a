"""Arrays inside lists, tuples, dicts and dataclasses, such as an optimiser's memory: all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from array_api_compat import is_array_api_obj


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree with ``function`` applied to the arrays at each place of it and of others like it.

    What is no array comes from the last of the trees.

    Examples
    --------
    >>> import numpy as np
    >>> mapped(np.add, {"a": np.array([1]), "step": 1}, {"a": np.array([2]), "step": 2})
    {'a': array([3]), 'step': 2}
    """
    trees = (tree, *others)
    if is_array_api_obj(tree):
        return function(*trees)
    if isinstance(tree, dict):
        return {key: mapped(function, *(one[key] for one in trees)) for key in tree}
    if isinstance(tree, list):
        return [mapped(function, *parts) for parts in zip(*trees, strict=True)]
    if type(tree) is tuple:
        return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in fields(tree)]
        parts = {name: mapped(function, *(getattr(one, name) for one in trees)) for name in names}
        return replace(tree, **parts)
    return trees[-1]
