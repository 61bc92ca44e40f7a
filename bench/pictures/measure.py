"""One measurement of time or memory: ``python -m bench.pictures.measure KIND '{…}'`` prints JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import airnp
from bench.measurements import Case, main, peak_megabytes
from bench.pictures.methods import FAST, METHODS, OURS, hide
from bench.pictures.problems import CASES, picture
from bench.timing import once_each

BASE = "biharmonic"
RATIOS = {"camera 240 30%": "240×240, 30 % missing", "astronaut own text": "512×512×3 under text"}
"""Problems on which methods are timed in turn."""

TIMED = (OURS, FAST, BASE, "linear", "navier_stokes", "telea", "fsr")
GROWING = (OURS, FAST, BASE, "navier_stokes")
SHAPES = ((375, 500), (750, 1000), (1500, 2000), (3000, 4000))
"""Up to 12 megapixels, each with four times the pixels of the one before."""

MISSING = 0.02


def cases(threads: int, *, quick: bool) -> list[tuple[str, str, Case]]:
    """Return kind, label and case of every measurement."""
    found = [
        (
            "ratios",
            row.replace(" ", "-").replace("%", ""),
            {"row": row, "methods": list(TIMED), "rounds": 3 if quick else 9, "threads": threads},
        )
        for row in RATIOS
    ]
    found += [
        (
            "growth",
            f"{method}-{mask}-{height}x{width}",
            {"method": method, "mask": mask, "shape": [height, width], "threads": threads},
        )
        for mask in ("scratches", "random")
        for height, width in (SHAPES[:2] if quick else SHAPES)
        for method in GROWING
    ]
    return [*found, ("compile", "first", {"threads": threads})]


def _runner(name: str, image: np.ndarray, mask: np.ndarray) -> Callable[[], Any]:
    """Return a call as a user makes it who wants the picture only."""
    filler = METHODS[name]
    plain = {"full": False} if filler.is_ours else {}
    return partial(filler.run, image, mask, 0, **filler.settings, **plain)


def ratios(case: Case) -> Case:
    """Time methods in turn on the same picture, after one call of each; ratios are to biharmonic's time."""
    _limit_opencv(case["threads"])
    problem = CASES[case["row"]].load(0)
    image = hide(problem.truth, problem.mask)
    runners = {name: _runner(name, image, problem.mask) for name in case["methods"]}
    for run in runners.values():
        run()
    timings = once_each(runners, rounds=case["rounds"])
    return {
        "seconds": {name: timings.milliseconds(name) / 1e3 for name in runners},
        "ratios": {name: timings.ratio(name, BASE) for name in runners},
    }


def growth(case: Case) -> Case:
    """Time one call on a large colour photograph, and return the peak memory of the process.

    The photograph is made of mirrored copies, and has 8 bits, as photographs have; 2 % of it are missing.
    """
    _limit_opencv(case["threads"])
    warm, seen = np.zeros((48, 48, 3), np.uint8), np.random.default_rng(0).random((48, 48)) < 0.7
    warm[:, ::2] = 200
    _runner(case["method"], warm, seen)()
    image, mask = photograph(case["shape"]), thin_mask(case["mask"], case["shape"])
    run = _runner(case["method"], np.where(mask[..., np.newaxis], image, np.uint8(0)), mask)
    before, start = peak_megabytes(), time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    found = {"seconds": seconds, "before": before, "megabytes": peak_megabytes()}
    return found | {"pixels": mask.size, "missing": int((~mask).sum())}


def photograph(shape: Sequence[int]) -> np.ndarray:
    """Return a picture of any size, (h, w, 3) of uint8: the upper left of mirrored copies of a photograph."""
    tile = np.rint(255 * picture("coffee", "own")).astype(np.uint8)
    margins = [(0, max(0, length - side)) for length, side in zip(shape, tile.shape, strict=False)]
    return np.pad(tile, [*margins, (0, 0)], mode="symmetric")[: shape[0], : shape[1]]


def thin_mask(name: str, shape: Sequence[int]) -> np.ndarray:
    """Return a mask in which about 2 % of the pixels are missing: under scratches, or at random."""
    if name == "random":
        return airnp.masks.random(shape, MISSING, seed=0)
    # A scratch is three pixels wide and on average about half a side long.
    count = round(MISSING * np.sqrt(shape[0] * shape[1]) / (3 * 0.52))
    return airnp.masks.scratches(shape, max(1, count), seed=0)


def compilation(case: Case) -> Case:
    """Return the seconds of the first call of a process, without compiled code on the disk and with it."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-W", "ignore", "-m", "bench.pictures.measure", "first", json.dumps(case)]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        first, cached = (
            json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, env=environment).stdout)
            for _ in range(2)
        )
    return {"compiled": first["seconds"], "cached": cached["seconds"]}


def first_call(case: Case) -> Case:
    """Return the seconds that the first call of a process takes longer than the second."""
    rng = np.random.default_rng(0)
    run = _runner(OURS, rng.random((64, 64)), rng.random((64, 64)) < 0.7)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return {"seconds": times[0] - times[1]}


def _limit_opencv(threads: int) -> None:
    import cv2

    cv2.setNumThreads(threads)


KINDS: dict[str, Callable[[Case], Case]] = {
    "ratios": ratios,
    "growth": growth,
    "compile": compilation,
    "first": first_call,
}


if __name__ == "__main__":
    main(KINDS, sys.argv[1:])
