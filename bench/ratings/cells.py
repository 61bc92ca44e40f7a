"""Finished fits: one .npz file each, with predictions of all test entries, whole or not there at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.ratings.data import TABLES
from bench.ratings.models import Model, Settings


@dataclass(frozen=True)
class Cell:
    """A fit of one model to one table from one seed."""

    predictions: np.ndarray
    seconds: float


class Cells:
    """The finished fits of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "cells"
        self._warm: set[str] = set()

    def path(self, table: str, name: str, settings: Settings, seed: int) -> Path:
        """Return where a fit is kept; other settings are another file."""
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
        return self._folder / f"{table}.{name}.seed{seed}.{digest}.npz"

    def find(self, table: str, name: str, settings: Settings, seed: int) -> Cell | None:
        """Return a fit, or None if it is not there."""
        path = self.path(table, name, settings, seed)
        if not path.exists():
            return None
        with np.load(path) as found:
            return Cell(found["predictions"], float(found["seconds"]))

    def compute(self, table: str, name: str, model: Model, settings: Settings, seed: int) -> Cell:
        """Return a fit, made now if it is not there."""
        known = self.find(table, name, settings, seed)
        if known is not None:
            return known
        entries = TABLES[table].draw(seed)
        if model.iterates and name not in self._warm:  # what is compiled or loaded at first is not timed
            model.answer(entries, settings | {"max_iter": 2}, seed)
            self._warm.add(name)
        answer = model.answer(entries, settings, seed)
        buffer = io.BytesIO()
        np.savez(buffer, predictions=answer.predictions.astype(np.float32), seconds=answer.seconds)
        path = self.path(table, name, settings, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(buffer.getvalue())
        os.replace(part, path)
        return Cell(answer.predictions, answer.seconds)
