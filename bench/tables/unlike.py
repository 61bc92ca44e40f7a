"""Synthetic tables that are unlike those of :mod:`bench.tables.data`, to see what the defaults do with them.

Those in ``STRANGE`` were looked at while the models were mended; those in ``SEALED`` were only measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

STRANGE = ("friedman", "prices", "counts", "survey", "rules")
SEALED = ("few", "sensors", "clusters")


def _friedman() -> dict[str, np.ndarray]:
    """Smooth interactions of uniform columns, three of which do not matter."""
    rng = np.random.default_rng(201)
    x = rng.random((500, 8))
    noise = rng.standard_normal((500, 3))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    z = np.arctan((x[:, 1] * x[:, 2] - 0.2) / (x[:, 0] + 0.1))
    return _named(
        [*x.T, y + noise[:, 0], z + 0.05 * noise[:, 1], np.abs(x[:, 3] - x[:, 0]) + 0.02 * noise[:, 2]]
    )


def _prices() -> dict[str, np.ndarray]:
    """Log-normal quantities over many decades, their products and shares."""
    rng = np.random.default_rng(202)
    size, quality = 1.2 * rng.standard_normal((2, 600))
    noise = rng.standard_normal((6, 600))
    units = np.exp(4 + size + 0.4 * noise[0])
    price = np.exp(2 + 0.8 * quality + 0.3 * noise[1])
    costs = 0.7 * units * price * np.exp(0.1 * noise[2])
    share = 1 / (1 + np.exp(-size + 0.5 * noise[3]))
    staff = np.exp(1 + 0.7 * size - 0.2 * quality + 0.3 * noise[4])
    return _named(
        [units, price, units * price, costs, units * price - costs, share, staff, quality + noise[5]]
    )


def _counts() -> dict[str, np.ndarray]:
    """Counts, most of them small, many of them zero for a reason of its own."""
    rng = np.random.default_rng(203)
    rates = rng.standard_normal((500, 3)) @ rng.standard_normal((3, 10)) * 0.6 + rng.normal(0.5, 1, 10)
    idle = rng.random((500, 1)) < 0.3
    return _named(list((rng.poisson(np.exp(np.minimum(rates, 6))) * ~(idle & (np.arange(10) < 6))).T))


def _survey() -> dict[str, np.ndarray]:
    """Answers in categories that depend on an unseen class, and two numbers."""
    rng = np.random.default_rng(204)
    which = rng.integers(5, size=600)
    columns = [
        np.array([rng.choice(k, p=p) for p in rng.dirichlet(np.full(k, 0.5), 5)[which]])
        for k in (2, 3, 3, 4, 5, 7, 3, 2)
    ]
    words = [pd.Categorical(np.array([f"c{code}" for code in column])) for column in columns]
    income = np.exp(rng.standard_normal(5)[which] + 0.4 * rng.standard_normal(600))
    return _named([*words, income, columns[3] + 0.3 * columns[4] + rng.standard_normal(600)])


def _few() -> dict[str, np.ndarray]:
    """Two hundred rows of six columns, some of them curved."""
    rng = np.random.default_rng(205)
    a, b = rng.standard_normal((2, 200))
    noise = 0.3 * rng.standard_normal((6, 200))
    return _named(
        [a + noise[0], b + noise[1], a - b + noise[2], a**2 + noise[3], np.exp(b) + noise[4], noise[5]]
    )


def _sensors() -> dict[str, np.ndarray]:
    """Five thousand readings: hours and days, loads that saturate, sensors of several devices."""
    rng = np.random.default_rng(206)
    n = 5000
    hour, weekend = rng.integers(24, size=n), rng.random(n) < 0.3
    load = np.sin(2 * np.pi * (hour - 7) / 24) * np.where(weekend, 0.4, 1) + 0.3 * rng.standard_normal(n)
    weather = rng.standard_normal((n, 3))
    device = rng.integers(3, size=n)
    slopes = rng.standard_normal((27, 4))
    inputs = np.column_stack([load, weather])
    readings = inputs @ slopes.T
    readings[:, :9] = np.tanh(readings[:, :9])
    readings[:, 9:15] *= 0.5 + device[:, None]
    readings[:, 15:18] = np.maximum(readings[:, 15:18], 0)
    readings += 0.25 * rng.standard_normal(readings.shape)
    return _named([hour.astype(float), weekend.astype(float), device.astype(float), *readings.T])


def _clusters() -> dict[str, np.ndarray]:
    """Twelve tight clusters of unequal sizes, with errors of heavy tails."""
    rng = np.random.default_rng(207)
    which = rng.choice(12, 600, p=rng.dirichlet(np.full(12, 2.0)))
    errors = 0.3 * rng.standard_t(3, (600, 7))
    return _named(list((rng.uniform(-4, 4, (12, 7))[which] + errors).T))


def _rules() -> dict[str, np.ndarray]:
    """Booleans, numbers and categories that follow from each other by rules, exclusive or included."""
    rng = np.random.default_rng(208)
    a, b, c = rng.random((3, 700)) < 0.5
    x, y = rng.uniform(0, 10, (2, 700))
    wrong = rng.random((3, 700)) < 0.05
    level = np.array(["low", "middle", "high"])[np.digitize(x, [3, 7])]
    either = (a ^ b) ^ wrong[0]
    price = np.where(c, x, 12 - x) + 0.5 * rng.standard_normal(700)
    kind = pd.Categorical(np.where((y > 5) ^ wrong[1], "old", "new"))
    fee = 2.0 * (y > 5) * (level == "high") + 3.0 * either + 0.3 * rng.standard_normal(700)
    return _named([a, b, c, x, y, either, pd.Categorical(level), price, kind, fee])


def _named(columns: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"x{k}": column for k, column in enumerate(columns)}


_TABLES: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    "friedman": _friedman,
    "prices": _prices,
    "counts": _counts,
    "survey": _survey,
    "few": _few,
    "sensors": _sensors,
    "clusters": _clusters,
    "rules": _rules,
}


def load(name: str) -> pd.DataFrame:
    """Return a table by its name."""
    return pd.DataFrame(_TABLES[name]())
