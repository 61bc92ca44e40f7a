"""The problems: the paper's rows, and scikit-image's pictures under seven masks, at two sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

import numpy as np

import airnp
from bench import paper_rows
from bench.paper_rows import Problem, Row

Half = Literal["paper", "tuning", "report"]
Size = Literal["240", "own"]

TUNING = (
    *("astronaut", "camera", "chelsea", "coffee", "grass"),
    *("hubble_deep_field", "microaneurysms", "motorcycle_left", "retina", "text"),
)
"""Pictures of scikit-image that settings may be chosen on."""

REPORT = ("brick", "cell", "clock_motion", "coins", "gravel", "ihc", "moon", "page", "rocket")
"""Pictures of scikit-image that no setting may depend on."""

PICTURES = tuple(sorted(TUNING + REPORT))
SIDE = 240
MESSAGE = "The quick brown fox jumps over the lazy dog, and the dog does not mind."
HOLES = 5
MASKS = ("30%", "50%", "70%", "90%", "text", "scratches", "patches")

PAPER_PICTURES = ("Barbara", "Baboon", "Cameraman")
PAPER_MASKS = ("30%", "patch", "texture")
GOALS = {
    "Barbara 30%": 0.0185,
    "Barbara patch": 0.0730,
    "Barbara texture": 0.0335,
    "Baboon 30%": 0.0555,
    "Baboon patch": 0.0570,
    "Baboon texture": 0.0825,
    "Cameraman 30%": 0.0138,
    "Cameraman patch": 0.0320,
    "Cameraman texture": 0.0320,
}
"""The NMAE that :func:`airnp.inpaint` is to reach on the paper's rows."""


@dataclass(frozen=True)
class Case(Row):
    """A picture at one size with one kind of mask.

    A problem's truth has shape (h, w), or (h, w, 3) in colour, and is in [0, 1]. Its mask has shape (h, w):
    all channels of a pixel are missing together.
    """

    picture: str = ""
    mask: str = ""
    size: Size = "240"
    half: Half = "paper"


def kind(mask: str) -> str:
    """Return the kind of a mask: all random ones are one kind, and so are all large holes."""
    return "random" if mask.endswith("%") else {"patch": "patches", "texture": "text"}.get(mask, mask)


def draw_mask(name: str, shape: tuple[int, int], seed: list[int]) -> np.ndarray:
    """Return a mask of observed pixels, shape (h, w)."""
    if name.endswith("%"):
        return airnp.masks.random(
            shape, float(name.removesuffix("%")) / 100, seed=np.random.default_rng(seed)
        )
    if name == "text":
        return airnp.masks.text(shape, MESSAGE)
    if name == "scratches":
        return airnp.masks.scratches(shape, seed=np.random.default_rng(seed))
    return airnp.masks.patch(shape, _draw_boxes(shape, np.random.default_rng(seed)))


def _draw_boxes(shape: tuple[int, int], rng: np.random.Generator) -> list[tuple[int, int, int, int]]:
    """Draw squares, an eighth of the shorter side wide, that do not touch each other or the margin."""
    side = max(1, min(shape) // 8)
    corners: list[np.ndarray] = []
    while len(corners) < HOLES:
        corner = rng.integers(1, np.subtract(shape, side))
        if all(np.abs(corner - other).max() > side + 2 for other in corners):
            corners.append(corner)
    return [(int(top), int(top) + side, int(left), int(left) + side) for top, left in corners]


@cache
def picture(name: str, size: Size) -> np.ndarray:
    """Return a picture of scikit-image in [0, 1]: grey and 240×240, or in its own size and colours."""
    import skimage.data
    from PIL import Image
    from skimage.color import rgb2gray
    from skimage.transform import resize

    (path,) = Path(skimage.data.__file__).parent.glob(f"{name}.*")
    with Image.open(path) as opened:
        pixels = np.asarray(opened) / 255
    if size == "own":
        return pixels
    grey = rgb2gray(pixels) if pixels.ndim == 3 else pixels
    return np.clip(resize(grey, (SIDE, SIDE), anti_aliasing=True), 0, 1)


def load_picture(name: str, size: Size, mask: str, seed: int) -> Problem:
    """Return a picture under a mask; other pictures and seeds have other random masks."""
    truth = picture(name, size)
    shape = (truth.shape[0], truth.shape[1])
    return Problem(truth, draw_mask(mask, shape, [seed, PICTURES.index(name)]))


def load_paper(name: str, seed: int) -> Problem:
    """Return a row of the paper, or one of Cameraman, in float64."""
    problem = paper_rows.load(name, seed)
    return Problem(problem.truth.astype(np.float64), problem.mask)


def _case(name: str, load: Callable[[int], Problem], mask: str, **fields: str) -> Case:
    has_fixed_mask = mask in ("text", "patch", "texture")
    return Case(name, load, {}, has_fixed_mask=has_fixed_mask, is_image=True, mask=mask, **fields)


def _cases() -> list[Case]:
    paper = [
        _case(f"{name} {mask}", partial(load_paper, f"{name} {mask}"), mask, picture=name)
        for name in PAPER_PICTURES
        for mask in PAPER_MASKS
    ]
    others = [
        _case(
            f"{name} {size} {mask}",
            partial(load_picture, name, size, mask),
            mask,
            picture=name,
            size=size,
            half="tuning" if name in TUNING else "report",
        )
        for size in ("240", "own")
        for name in PICTURES
        for mask in MASKS
    ]
    return paper + others


CASES = {case.name: case for case in _cases()}
