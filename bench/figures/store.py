"""Keeps what came out of runs, one file each, so that nothing is computed twice."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import numpy as np

from bench.figures.compute import Outcome
from bench.figures.runs import DEEP, Run
from bench.cells import source_hash


def fingerprint(run: Run) -> str:
    """Return what stands for the code of airnp that a run of this method goes through."""
    return source_hash(run.method in DEEP)


class Store:
    """A folder of ``.npz`` files, each with the settings that it was made with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, run: Run) -> Path:
        """Where the outcome of a run is, or would be."""
        return self.folder / f"{run.name}.npz"

    def has(self, run: Run) -> bool:
        """Whether the outcome is there and was made with just these settings."""
        try:
            # Opened here, as np.load leaves a file open that turns out to be broken.
            with self.path(run).open("rb") as stream, np.load(stream) as file:
                return json.loads(str(file["settings"])) == run.settings()
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return False

    def is_of_this_code(self, run: Run) -> bool:
        """Whether the code of airnp that can move the outcome is still the same."""
        with np.load(self.path(run)) as file:
            return "source" in file.files and str(file["source"]) == fingerprint(run)

    def save(self, run: Run, outcome: Outcome) -> None:
        """Keep an outcome; a run that is interrupted here leaves no half of a file behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.path(run).with_suffix(f".{os.getpid()}.part")
        with unfinished.open("wb") as file:
            np.savez_compressed(file, settings=json.dumps(run.settings()), source=fingerprint(run), **outcome)
        unfinished.replace(self.path(run))

    def load(self, run: Run) -> Outcome:
        """Return what was kept."""
        with np.load(self.path(run)) as file:
            return {name: file[name] for name in file.files if name not in ("settings", "source")}
