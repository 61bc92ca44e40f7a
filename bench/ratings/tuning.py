"""Settings are chosen on held-out training entries, from one seed, and kept with their errors there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.ratings.data import TABLES, Table
from bench.ratings.models import Model, Settings
from bench.ratings.statistics import rmse

CHOSEN = Path(__file__).with_name("chosen.json")
"""{table: {model: {"settings", "validation_rmse", "tried": [[settings, validation_rmse], …]}}}"""

TAKEN_OVER = {"resplit": "movielens"}
"""Tables by which nothing is chosen, and whose settings they have."""

_PATIENCE = 0.25
"""Share of the iterations that may pass without a better validation error before a trial is given up."""


class _Watch:
    """Validation error while a model iterates."""

    def __init__(self, table: Table, max_iter: int) -> None:
        self._table, self._patience = table, _PATIENCE * max_iter
        self.best, self.iteration = np.inf, 0

    def __call__(self, iteration: int, predictions: np.ndarray) -> bool:
        clipped = np.clip(predictions, *self._table.bounds)
        error = float(rmse(clipped - self._table.test.values))
        if error < self.best:
            self.best, self.iteration = error, iteration
        return iteration > self.iteration + self._patience


def tried(model: Model, table: Table, settings: Settings) -> tuple[Settings, float]:
    """Return settings with the best number of iterations, and their validation error."""
    if not model.iterates:
        answer = model.answer(table, settings, 0)
        return settings, float(rmse(answer.predictions - table.test.values))
    watch = _Watch(table, settings["max_iter"])
    model.answer(table, settings, 0, watch)
    return settings | {"max_iter": watch.iteration}, watch.best


def tune(name: str, model: Model, table_name: str) -> dict[str, Any]:
    """Try the whole grid of a model; return what was chosen and all that was tried."""
    source = TABLES[table_name]
    table = source.draw(0).for_validation()
    found = [tried(model, table, settings) for settings in model.trials(source.grids)]
    settings, error = min(found, key=lambda trial: trial[1])
    return {
        "settings": settings,
        "validation_rmse": round(error, 5),
        "tried": [[trial, round(value, 5)] for trial, value in found],
    }


def chosen() -> dict[str, dict[str, Any]]:
    """Return what was chosen for each table and model."""
    return json.loads(CHOSEN.read_text(encoding="utf-8")) if CHOSEN.exists() else {}


def chosen_for(table: str) -> dict[str, Any]:
    """Return what was chosen for each model of a table, or of the one whose settings it takes over."""
    return chosen().get(TAKEN_OVER.get(table, table), {})


def keep(table: str, name: str, found: dict[str, Any], path: Path = CHOSEN) -> None:
    """Write down what was chosen."""
    everything = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    everything.setdefault(table, {})[name] = found
    path.write_text(_written(everything), encoding="utf-8")


def _written(everything: dict[str, dict[str, Any]]) -> str:
    """Return JSON with a line for each trial."""
    tables = []
    for table, models in everything.items():
        lines = []
        for name, found in models.items():
            head = {key: value for key, value in found.items() if key != "tried"}
            trials = ",\n   ".join(json.dumps(trial, ensure_ascii=False) for trial in found["tried"])
            lines.append(f'  "{name}": {json.dumps(head)[:-1]}, "tried": [\n   {trials}]}}')
        tables.append(f' "{table}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(tables) + "\n}\n"
