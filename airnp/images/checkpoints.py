"""Save how far the filling of a picture has come, so that the same call continues it."""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.results.atomic import write_atomically

Values = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Saved:
    """A saved state: after how many stages, and the gaps of that level.

    Attributes
    ----------
    position : int
    values, variances : ndarray of float32
    start : ndarray of float32
        The smooth surface in the gaps of the picture; empty while smaller copies are filled.
    """

    position: int
    values: Values
    variances: Values
    start: Values


class StageFile:
    """A file with the last finished stage of a picture.

    Parameters
    ----------
    path : Path
        If it exists, it must be of a run with the same fingerprint.
    every : float
        Seconds between two writes, at least.
    fingerprint : str
        A hash of everything that the answer depends on.

    Attributes
    ----------
    saved : Saved or None
        What the file had when it was opened.
    """

    def __init__(self, path: Path, every: float, fingerprint: str) -> None:
        self._path, self._every, self._fingerprint = path, every, fingerprint
        self._last = time.monotonic()
        self.saved = self._read() if path.exists() else None

    def _read(self) -> Saved:
        try:
            with np.load(io.BytesIO(self._path.read_bytes()), allow_pickle=False) as file:
                record = json.loads(str(file["record"]))
                values, variances, start = (file[name] for name in ("values", "variances", "start"))
                position, fingerprint = int(record["position"]), record["fingerprint"]
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint: {str(self._path)!r} is not a checkpoint of inpaint ({error})"
            ) from error
        if fingerprint != self._fingerprint:
            raise ValueError(
                f"checkpoint: {str(self._path)!r} is of another picture, mask or settings; "
                "remove it, or name another file"
            )
        shapes = [values.shape, variances.shape, start.shape if start.size else values.shape]
        kinds = {values.dtype, variances.dtype, start.dtype}
        if kinds != {np.dtype(np.float32)} or len(set(shapes)) > 1:
            raise ValueError(f"checkpoint: {str(self._path)!r} holds arrays of wrong types or shapes")
        return Saved(position, values, variances, start)

    def save(
        self, position: int, values: Values, variances: Values, gaps: Bools, start: Values | None
    ) -> None:
        """Write the state after a stage, and the start if it is known; not soon after the last."""
        if time.monotonic() - self._last < self._every:
            return
        record = json.dumps({"position": position, "fingerprint": self._fingerprint})
        content = io.BytesIO()
        surface = np.empty(0, np.float32) if start is None else start[gaps]
        np.savez(
            content, record=np.array(record), values=values[gaps], variances=variances[gaps], start=surface
        )
        write_atomically(self._path, lambda file: file.write(content.getbuffer()))
        self._last = time.monotonic()

    def remove(self) -> None:
        """Delete the file: the work is done."""
        self._path.unlink(missing_ok=True)


def fingerprint(values: Any, observed: Any, settings: str) -> str:
    """Return a hash of a picture, its mask, and all settings that the answer depends on."""
    digest = hashlib.sha256(settings.encode())
    for frame, seen in zip(values, observed, strict=True):
        digest.update(np.where(seen, frame, 0).tobytes())
        digest.update(np.packbits(seen).tobytes())
    return digest.hexdigest()
