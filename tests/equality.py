"""Compare results of fits bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, issparse


def assert_same(a: Any, b: Any, name: str = "result") -> None:
    """Raise unless two results, dense or sparse, or two of their parts are equal, to the bit and the type."""
    if is_dataclass(a):
        assert type(a) is type(b), name
        for field in fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name), f"{name}.{field.name}")
    elif isinstance(a, Mapping):
        assert list(a) == list(b), name
        for key in a:
            assert_same(a[key], b[key], f"{name}[{key!r}]")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), name
        for position, (mine, other) in enumerate(zip(a, b, strict=True)):
            assert_same(mine, other, f"{name}[{position}]")
    elif issparse(a):
        assert issparse(b), name
        mine, other = csr_array(a), csr_array(b)
        assert_same(
            (mine.data, mine.indices, mine.indptr), (other.data, other.indices, other.indptr), f"{name} (CSR)"
        )
    elif isinstance(a, np.ndarray | np.generic):
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)
    elif isinstance(a, pd.Index):
        assert a.equals(b), name
    else:
        assert type(a) is type(b), name
        assert a == b, name
