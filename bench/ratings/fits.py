"""The fits of the benchmark: settings chosen on held-out training entries, and finished fits in files."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.cells import write_file
from bench.ratings import data
from bench.ratings.data import Table
from bench.ratings.models import ABLATION, Model, Settings
from bench.ratings.peers import PEERS

MODELS = ABLATION | PEERS

CHOSEN = Path(__file__).with_name("chosen.json")
"""{table: {model: {"settings", "validation_rmse", "tried": [[settings, validation_rmse], …]}}}"""

SETTINGS_OF = {"resplit": "movielens"}
"""Tables that take the settings of another table."""

_PATIENCE = 0.25
"""Share of the iterations without a better validation error after which a trial ends."""


def rmse(errors: np.ndarray) -> np.ndarray:
    """Return the root mean square over the last axis."""
    return np.sqrt(np.mean(np.square(errors), axis=-1))


# --- finished fits ---


@dataclass(frozen=True)
class Cell:
    """A fit of one model to one table from one seed."""

    predictions: np.ndarray
    seconds: float


class Cells:
    """The finished fits of a folder, one .npz file each, with the predictions of all test entries."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"
        self._warm: set[str] = set()

    def path(self, table: str, name: str, settings: Settings, seed: int) -> Path:
        """Return the file of a fit; other settings have another file."""
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        return self._folder / f"{table}.{name}.seed{seed}.{digest}.npz"

    def find(self, table: str, name: str, settings: Settings, seed: int) -> Cell | None:
        """Return a fit, or None if it is missing."""
        path = self.path(table, name, settings, seed)
        if not path.exists():
            return None
        with np.load(path) as file:
            return Cell(file["predictions"], float(file["seconds"]))

    def compute(self, table: str, name: str, model: Model, settings: Settings, seed: int) -> Cell:
        """Return a fit; compute and keep it if it is missing."""
        known = self.find(table, name, settings, seed)
        if known is not None:
            return known
        entries = data.TABLES[table].draw(seed)
        if model.iterates and name not in self._warm:  # compilation is not timed
            model.answer(entries, settings | {"max_iter": 2}, seed)
            self._warm.add(name)
        answer = model.answer(entries, settings, seed)
        buffer = io.BytesIO()
        np.savez(buffer, predictions=answer.predictions.astype(np.float32), seconds=answer.seconds)
        write_file(self.path(table, name, settings, seed), buffer.getvalue())
        return Cell(answer.predictions, answer.seconds)


# --- choosing settings ---


def tune(model: Model, table_name: str) -> dict[str, Any]:
    """Try the whole grid of a model from one seed; return the best settings and all trials."""
    source = data.TABLES[table_name]
    table = source.draw(0).for_validation()
    trials = [_try(model, table, settings) for settings in model.trials(source.grids)]
    settings, error = min(trials, key=lambda trial: trial[1])
    return {
        "settings": settings,
        "validation_rmse": round(error, 5),
        "tried": [[trial, round(value, 5)] for trial, value in trials],
    }


def chosen() -> dict[str, dict[str, Any]]:
    """Return the chosen settings of each table and model."""
    return json.loads(CHOSEN.read_text(encoding="utf-8")) if CHOSEN.exists() else {}


def chosen_for(table: str) -> dict[str, Any]:
    """Return the chosen settings of each model for a table."""
    return chosen().get(SETTINGS_OF.get(table, table), {})


def keep(table: str, name: str, found: dict[str, Any]) -> None:
    """Write the chosen settings of a model to the file."""
    everything = chosen()
    everything.setdefault(table, {})[name] = found
    write_file(CHOSEN, _as_json(everything))


def _as_json(everything: dict[str, dict[str, Any]]) -> str:
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


def _try(model: Model, table: Table, settings: Settings) -> tuple[Settings, float]:
    """Return settings with the best number of iterations, and their validation error."""
    if not model.iterates:
        answer = model.answer(table, settings, 0)
        return settings, float(rmse(answer.predictions - table.test.values))
    watch = Watch(table, settings["max_iter"])
    model.answer(table, settings, 0, watch)
    return settings | {"max_iter": watch.iteration}, watch.best


class Watch:
    """The validation error while a model iterates; called, it returns whether to stop."""

    def __init__(self, table: Table, max_iter: int) -> None:
        self._table, self._patience = table, _PATIENCE * max_iter
        self.best, self.iteration = np.inf, 0

    def __call__(self, iteration: int, predictions: np.ndarray) -> bool:
        clipped = np.clip(predictions, *self._table.bounds)
        error = float(rmse(clipped - self._table.test.values))
        if error < self.best:
            self.best, self.iteration = error, iteration
        return iteration > self.iteration + self._patience
