"""The methods, each a function of an image in [0, 1] and a mask, and what is measured of an answer.

:func:`airnp.inpaint` is called in this module only.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

import airnp
from airnp import baselines
from bench.cells import Experiment, Method, Task, code_hash
from bench.pictures import peers
from bench.pictures.problems import Case

LEVEL = 0.9
OURS = "inpaint"
FAST = "inpaint_fast"


@dataclass(frozen=True)
class Answer:
    """A filled picture and, where the method has them, its intervals by level and other facts to keep."""

    image: np.ndarray
    interval: Callable[[float], tuple[np.ndarray, np.ndarray]] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


Fill = Callable[..., Answer]
"""``fill(image, mask, seed, **settings)``, with an image (h, w) or (h, w, channels) and a mask (h, w)."""


@dataclass(frozen=True)
class Filler(Method):
    """A method for pictures; its ``run`` is a :data:`Fill`.

    Attributes
    ----------
    code : tuple of str
        Files and folders of airnp that can change its answer.
    is_ours : bool
        Whether it is a form of :func:`airnp.inpaint`.
    on_request : bool
        Whether it runs only if it is named.
    small_only : bool
        Whether it runs at 240×240 only.
    skips : tuple of str
        Problems that it would need too much memory for.
    """

    code: tuple[str, ...] = ()
    is_ours: bool = False
    on_request: bool = False
    small_only: bool = False
    skips: tuple[str, ...] = ()

    def suits(self, row: Any) -> bool:
        return row.name not in self.skips and not (self.small_only and row.size == "own")


def inpaint(image: np.ndarray, mask: np.ndarray, seed: int, *, full: bool = True, **settings: Any) -> Answer:
    """Fill by :func:`airnp.inpaint`; without ``full`` as a user who wants the picture only."""
    result = airnp.inpaint(image, mask, seed=seed, full=full, **settings)
    if not full:
        return Answer(result)
    facts = {
        "expected": float(result.expected),
        "expected_error": float(result.expected_error),
        "chosen": json.loads(json.dumps(result.chosen, default=_plain)),
    }
    return Answer(result.image, result.interval, facts)


def _plain(value: Any) -> Any:
    """Return a value that JSON does not know as one that it knows."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def biharmonic(image: np.ndarray, mask: np.ndarray, seed: int) -> Answer:
    """Fill by scikit-image, all channels in one call, because they share its matrix."""
    from skimage.restoration import inpaint_biharmonic

    axis = None if image.ndim == 2 else -1
    return Answer(inpaint_biharmonic(image, ~mask, channel_axis=axis))


def by_channel(name: str, image: np.ndarray, mask: np.ndarray, seed: int, **settings: Any) -> Answer:
    """Fill each channel by a method of :mod:`airnp.baselines`."""
    channels = image if image.ndim == 2 else np.moveaxis(image, -1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        filled = baselines.METHODS[name](channels, np.broadcast_to(mask, channels.shape), **settings)
    return Answer(filled if image.ndim == 2 else np.moveaxis(filled, 0, -1))


def _ours(title: str, settings: Mapping[str, Any], *, on_request: bool = False) -> Filler:
    return Filler(title, inpaint, settings, code=("images",), is_ours=True, on_request=on_request)


def _baseline(name: str, title: str, settings: Mapping[str, Any], **options: Any) -> Filler:
    code = ("baselines/inpainters.py",)
    return Filler(title, partial(by_channel, name), settings, is_seeded=False, code=code, **options)


def _peer(title: str, fill: Callable[..., np.ndarray], *, is_seeded: bool = False) -> Filler:
    return Filler(title, partial(_answer, fill), is_seeded=is_seeded, on_request=True, small_only=True)


def _answer(fill: Callable[..., np.ndarray], image: np.ndarray, mask: np.ndarray, seed: int) -> Answer:
    return Answer(fill(image, mask, seed))


METHODS = {
    OURS: _ours("airnp", {}),
    FAST: _ours("airnp, fast", {"quality": "fast"}),
    "air": _ours("AIR", {"method": "air"}, on_request=True),
    "biharmonic": Filler("biharmonic", biharmonic, is_seeded=False, skips=("retina own 90%",)),
    "linear": _baseline("linear", "linear", {}),
    "navier_stokes": _baseline("navier_stokes", "Navier-Stokes", {}),
    "navier_stokes_3": _baseline("navier_stokes", "Navier-Stokes, radius 3", {"radius": 3}),
    "telea": _baseline("telea", "Telea", {}),
    "fsr": _baseline("fsr", "FSR", {"quality": "fast"}),
    "fsr_best": _baseline("fsr", "FSR, best", {"quality": "best"}, small_only=True),
    "bm3d": _peer("iterated BM3D", peers.bm3d),
    "wavelets": _peer("iterated wavelets", peers.wavelets),
    "deep_prior": _peer("deep image prior", peers.deep_prior, is_seeded=True),
}


@dataclass(frozen=True)
class Pictures(Experiment):
    """Cases and fillers by name."""

    rows: Mapping[str, Case]
    methods: Mapping[str, Filler]

    def source(self, method: str) -> str:
        filler = self.methods[method]
        return code_hash(filler.code, imports=filler.is_ours)

    def solve(self, task: Task) -> dict[str, Any]:
        """Return the errors and the seconds of one cell, and the facts that its method keeps."""
        problem, filler = self.rows[task.row].load(task.seed), self.methods[task.method]
        image = hide(problem.truth, problem.mask)
        if filler.is_ours:
            _warm_up(filler.run, json.dumps(dict(task.settings)), image.ndim)
        start = time.perf_counter()
        answer = filler.run(image, problem.mask, task.seed, **task.settings)
        seconds = time.perf_counter() - start
        return {"seconds": round(seconds, 4), **measure(problem.truth, problem.mask, answer), **answer.facts}


@cache
def _warm_up(fill: Fill, settings: str, ndim: int) -> None:
    """Compile and import what a method needs, so that no cell's time includes it."""
    rng = np.random.default_rng(0)
    fill(rng.random((48, 48, 3)[:ndim]), rng.random((48, 48)) < 0.7, 0, **json.loads(settings))


def hide(truth: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return a picture that is zero where it is missing."""
    return np.where(mask if truth.ndim == 2 else mask[..., np.newaxis], truth, 0)


def measure(truth: np.ndarray, mask: np.ndarray, answer: Answer) -> dict[str, Any]:
    """Compare an answer with the truth.

    Returns
    -------
    dict
        ``nmae`` and ``mae`` on missing pixels, over all channels; ``psnr`` (of a range of 1) and ``ssim``
        over the whole picture, the latter a mean over channels; ``missing``, the number of missing pixels.
        With an interval also its ``coverage`` and mean ``width`` on missing pixels.
    """
    flat, filled = (picture.reshape(len(truth), -1) for picture in (truth, answer.image))
    observed = np.repeat(mask, flat.shape[1] // mask.shape[1], axis=1)
    nmae = float(airnp.metrics.nmae(filled, flat, observed))
    if not np.isfinite(nmae):
        raise ArithmeticError(f"the error on missing pixels is {nmae}")
    planes = [np.atleast_3d(picture).transpose(2, 0, 1) for picture in (answer.image, truth)]
    found = {
        "nmae": nmae,
        "mae": nmae * float(np.ptp(truth)),
        "psnr": float(airnp.metrics.psnr(filled, flat, data_range=1)),
        "ssim": float(np.mean(airnp.metrics.ssim(*planes, data_range=1))),
        "missing": int((~mask).sum()),
    }
    if answer.interval is None:
        return found
    low, high = (bound[~mask] for bound in answer.interval(LEVEL))
    inside = (low <= truth[~mask]) & (truth[~mask] <= high)
    return found | {"coverage": float(inside.mean()), "width": float((high - low).mean())}
