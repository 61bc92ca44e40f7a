"""``airnp demo``: restore a damaged photograph, and draw and measure the result."""

from __future__ import annotations

import argparse
import dataclasses
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import airnp
from airnp import masks, metrics
from airnp.commands.base import (
    Command,
    UsageError,
    add_message_arguments,
    finish,
    fraction,
    shows_progress,
    whole_number,
)
from airnp.images.inpainted import describe_choice

if TYPE_CHECKING:
    from PIL.Image import Image

Picture = NDArray[np.float64]
Mask = NDArray[np.bool_]

EXAMPLES = """\
  airnp demo
  airnp demo --mask random --missing 0.7 --output random-demo
  airnp demo --picture scene --mask patch
  airnp demo --picture scene --size 128 --air --iterations 2000
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", default="airnp-demo", metavar="DIR", help="where to write (%(default)s)")
    parser.add_argument(
        "--picture",
        choices=("photo", "scene"),
        default="photo",
        help="a photograph in colour from scikit-image, or a grey scene that is drawn (%(default)s)",
    )
    parser.add_argument(
        "--size", type=whole_number(16), default=384, help="height and width of the picture (%(default)s)"
    )
    parser.add_argument(
        "--mask",
        choices=("damage", "random", "patch", "text", "scratches"),
        default="damage",
        help="shape of the holes; damage is text and scratches (%(default)s)",
    )
    parser.add_argument(
        "--missing",
        type=fraction,
        metavar="SHARE",
        help="share of the entries to hide, between 0 and 1, for --mask random (0.3)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, help="for the mask, the trials and the fit (%(default)s)"
    )
    parser.add_argument("--air", action="store_true", help="show beside it what AIR alone (airnp.fit) gives")
    parser.add_argument(
        "--iterations", type=whole_number(1), metavar="N", help="of AIR at most, with --air (10000)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the files of an earlier run")
    add_message_arguments(parser)


@dataclass(frozen=True)
class Score:
    """The error of one method on the missing entries."""

    method: str
    nmae: float
    psnr: float


@dataclass(frozen=True)
class Outcome:
    """What the demonstration did and where it wrote its files."""

    picture: str
    size: int
    mask: str
    missing: float  # the share that is really missing, not the one asked for
    seed: int
    method: str
    chosen: dict[str, Any]
    expected_nmae: float
    expected_error: float
    stop_reason: str
    seconds: float
    scores: tuple[Score, ...]  # airnp.inpaint first
    figure: Path
    report: Path
    command: str  # does the same again


def _run(options: argparse.Namespace) -> int:
    # Everything that can go wrong for reasons outside of the computation goes wrong before it.
    if options.missing is not None and options.mask != "random":
        raise UsageError(f"--missing goes with --mask random; --mask {options.mask} has its own share")
    if options.iterations is not None and not options.air:
        raise UsageError("--iterations goes with --air")
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ImportError('the demo draws with Pillow: pip install "airnp[images]"') from error
    folder = Path(options.output)
    figure, report = folder / "before_after.png", folder / "report.md"
    for path in (figure, report):
        if path.exists() and not options.force:
            raise UsageError(f"{path} is there already; --force overwrites")
    truth = scene(options.size) if options.picture == "scene" else photograph(options.size)
    folder.mkdir(parents=True, exist_ok=True)

    missing = options.missing or 0.3
    observed = _holes(options.mask, truth.shape[:2], missing, options.seed)
    # The methods cannot see the hidden values; `truth` serves only to measure the error.
    Y = np.where(_like(observed, truth), truth, np.nan).astype(np.float32)
    progress = shows_progress(options)
    found = airnp.inpaint(Y, observed, full=True, seed=options.seed, progress=progress)
    if found.stop_reason == "interrupted":
        raise KeyboardInterrupt
    answers = {
        "airnp.inpaint": found.image,
        "biharmonic": airnp.inpaint(Y, observed, method="biharmonic"),
        "linear interpolation": airnp.inpaint(Y, observed, method="linear"),
    }
    iterations = options.iterations or 10_000
    if options.air:
        answers["AIR alone (airnp.fit)"] = airnp.inpaint(
            Y, observed, method="air", seed=options.seed, max_iter=iterations, progress=progress
        )
    holes = f"--mask {options.mask}" + (f" --missing {missing:g}" if options.mask == "random" else "")
    spread = float(np.nanmax(Y) - np.nanmin(Y))
    outcome = Outcome(
        picture=options.picture,
        size=options.size,
        mask=options.mask,
        missing=1 - float(observed.mean()),
        seed=options.seed,
        method=found.method,
        chosen=found.chosen,
        expected_nmae=found.expected / spread,
        expected_error=found.expected_error / spread,
        stop_reason=found.stop_reason,
        seconds=found.seconds,
        scores=tuple(_score(name, answer, truth, observed) for name, answer in answers.items()),
        figure=figure,
        report=report,
        command=f"airnp demo --picture {options.picture} --size {options.size} {holes} --seed {options.seed}"
        + (f" --air --iterations {iterations}" if options.air else ""),
    )
    _figure(truth, observed, found, outcome).save(figure, optimize=True)
    report.write_text(_report(outcome), encoding="utf-8")
    return finish(options, dataclasses.asdict(outcome), _text(outcome))


def _holes(kind: str, shape: tuple[int, ...], missing: float, seed: int) -> Mask:
    if kind == "random":
        return masks.random(shape, missing, seed=seed)
    if kind == "patch":
        return masks.patch(shape)
    text, scratches = masks.text(shape, "airnp completes matrices"), masks.scratches(shape, seed=seed)
    return {"text": text, "scratches": scratches, "damage": text & scratches}[kind]


def _like(observed: Mask, picture: Picture) -> Mask:
    """Return the mask (h, w) in the shape of a picture, which may have colours."""
    return np.broadcast_to(observed.reshape(observed.shape + (1,) * (picture.ndim - 2)), picture.shape)


def _score(method: str, answer: Any, truth: Picture, observed: Mask) -> Score:
    # All colours side by side are one matrix, with one range.
    wide = (len(truth), -1)
    X, T, mask = np.reshape(answer, wide).astype(np.float64), truth.reshape(wide), _like(observed, truth)
    return Score(
        method,
        nmae=float(metrics.nmae(X, T, mask.reshape(wide))),
        psnr=float(metrics.psnr(X, T, mask.reshape(wide), data_range=1.0)),
    )


# --- the pictures ---


def photograph(size: int = 512) -> Picture:
    """Return a photograph of an astronaut in colour, which scikit-image brings along.

    Parameters
    ----------
    size : int, default 512
        Height and width in pixels; the original has 512.

    Returns
    -------
    ndarray of float64, shape (size, size, 3)
        Values in [0, 1].
    """
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            'the photograph is one of scikit-image: pip install "airnp[images]", or use --picture scene'
        ) from error
    from PIL import Image

    load: Callable[[], NDArray[np.uint8]] = data.astronaut
    pixels = Image.fromarray(load()).resize((size, size), Image.Resampling.LANCZOS)
    return np.asarray(pixels, dtype=np.float64) / 255


_TAU = 2 * math.pi


def scene(size: int = 128) -> Picture:
    """Paint a grey still life: a papered wall with a framed landscape, and two balls on a woven cloth.

    Parameters
    ----------
    size : int, default 128
        Height and width in entries.

    Returns
    -------
    ndarray of float64, shape (size, size)
        Grey values in [0, 1].
    """
    fine = 4  # every entry is the mean of 4×4 points: smooth edges without drawing them
    t = (np.arange(size * fine) + 0.5) / (size * fine)
    y, x = t[:, np.newaxis], t[np.newaxis, :]
    table = 0.60  # where the wall ends

    picture = np.where(y < table, _wall(x, y), _cloth(x, y))
    picture = np.where(np.abs(y - table) < 0.008, 0.1, picture)
    for centre, radius, stripes in [((0.27, 0.53), 0.19, 0), ((0.60, 0.66), 0.11, 9)]:
        picture = _with_ball(picture, x, y, centre, radius, stripes, table)
    averaged: Picture = np.clip(picture, 0, 1).reshape(size, fine, size, fine).mean(axis=(1, 3))
    return averaged


def _wall(x: Picture, y: Picture) -> Picture:
    """Striped wallpaper under a lamp at the upper left, with a framed landscape on it."""
    paper = (0.66 + 0.12 * np.sign(np.sin(_TAU * 16 * x))) * (1.08 - 0.55 * np.hypot(x - 0.25, y - 0.05))
    landscape = 0.95 - 1.3 * (y - 0.11)
    landscape = np.where(np.hypot(x - 0.80, y - 0.20) < 0.045, 1.0, landscape)
    landscape = np.where(y > 0.285 + 0.035 * np.sin(_TAU * 3.3 * x), 0.42, landscape)
    landscape = np.where(y > 0.325 + 0.030 * np.sin(_TAU * 2.6 * x + 1.5), 0.22, landscape)
    framed = np.where((np.abs(x - 0.72) < 0.20) & (np.abs(y - 0.25) < 0.17), 0.12, paper)
    return np.where((np.abs(x - 0.72) < 0.17) & (np.abs(y - 0.25) < 0.14), landscape, framed)


def _cloth(x: Picture, y: Picture) -> Picture:
    """Threads that run one way or the other in alternating squares, on a cloth with slow folds."""
    one_way, other_way = np.sin(_TAU * 24 * (x + y)), np.sin(_TAU * 24 * (x - y))
    weave = np.where(np.sin(_TAU * 8 * x) * np.sin(_TAU * 8 * y) > 0, one_way, other_way)
    return (0.50 + 0.27 * weave) * (0.95 + 0.22 * np.sin(_TAU * (1.5 * x + 0.1)))


def _with_ball(
    picture: Picture,
    x: Picture,
    y: Picture,
    centre: tuple[float, float],
    radius: float,
    stripes: float,
    table: float,
) -> Picture:
    """Put a lit ball, with its shadow on the table, in front of `picture`."""
    dx, dy = (x - centre[0]) / radius, (y - centre[1]) / radius
    shadow = ((dx - 0.35) / 1.15) ** 2 + ((dy - 0.93) / 0.28) ** 2 < 1
    picture = np.where(shadow & (y > table), 0.45 * picture, picture)

    towards = np.sqrt(np.maximum(1 - dx**2 - dy**2, 0))
    lit = np.maximum(-0.5 * dx - 0.6 * dy + 0.62 * towards, 0)
    paint = np.where(np.sin(stripes * np.arcsin(np.clip(dy, -1, 1))) > 0, 0.52, 0.95)
    ball = paint * (0.18 + 0.82 * lit) + 0.25 * lit**18
    return np.where(dx**2 + dy**2 < 1, ball, picture)


# --- the figure and the report ---

_PAPER, _INK, _PALE = (250, 249, 246), (38, 38, 44), (120, 120, 128)
_HOLE = (24, 232, 128)
_FULL_ERROR = 0.1  # errors from here on have the brightest colour
# Dark to bright, and also different in lightness alone, for prints without colour.
_HEAT = np.array([(12, 10, 30), (84, 20, 108), (186, 55, 84), (246, 142, 32), (252, 250, 190)])


def _figure(truth: Picture, observed: Mask, found: airnp.Inpainting, outcome: Outcome) -> Image:
    """Draw the five panels side by side, with captions."""
    from PIL import Image, ImageDraw, ImageFont

    size = outcome.size
    zoom = max(1, round(384 / size))
    side, margin, caption = size * zoom, 28, 72
    width, height = 5 * side + 6 * margin, side + caption + 2 * margin
    canvas = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(canvas)
    title, small = ImageFont.load_default(30), ImageFont.load_default(21)

    with_holes = _colours(truth)
    with_holes[~observed] = _HOLE
    panels = [
        ("original", f"{size} by {size} pixels", _colours(truth)),
        ("damaged", f"{outcome.missing:.1%} missing", with_holes),
        ("completed", f"error {outcome.scores[0].nmae:.4f} of the range", _colours(found.image)),
        ("standard deviation", _expectation(outcome), _heat(found.std / _FULL_ERROR)),
        ("absolute error", "", _heat(np.abs(found.image - truth) / _FULL_ERROR)),
    ]
    top = margin + caption
    for place, (heading, detail, pixels) in enumerate(panels):
        left = margin + place * (side + margin)
        draw.text((left, margin - 8), heading, font=title, fill=_INK)
        draw.text((left, margin + 42), detail, font=small, fill=_PALE, anchor="lm")
        panel = Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
        canvas.paste(panel, (left, top))

    # `left` is still that of the error map: its second caption line is the scale of its colours.
    middle, bar = margin + 42, side // 2
    ramp = np.broadcast_to(np.linspace(0, 1, bar), (14, bar))
    zero, full = "0 ", f" {_FULL_ERROR:g} or more"
    start = left + int(draw.textlength(zero, font=small)) + 2
    draw.text((left, middle), zero, font=small, fill=_PALE, anchor="lm")
    canvas.paste(Image.fromarray(_heat(ramp)), (start, middle - 7))
    draw.text((start + bar, middle), full, font=small, fill=_PALE, anchor="lm")
    return canvas


def _expectation(outcome: Outcome) -> str:
    return f"expected: {outcome.expected_nmae:.4f} ± {outcome.expected_error:.4f}"


def _colours(picture: Picture) -> NDArray[np.uint8]:
    """Turn grey values (h, w) or colours (h, w, 3) in [0, 1] into RGB bytes."""
    levels = np.rint(np.clip(picture, 0, 1) * 255).astype(np.uint8)
    return levels if levels.ndim == 3 else np.repeat(levels[..., np.newaxis], 3, axis=-1)


def _heat(values: Picture) -> NDArray[np.uint8]:
    """Turn values in [0, 1] into the colours of `_HEAT`, interpolated; those of colours are averaged."""
    values = values.mean(axis=-1) if values.ndim == 3 else values
    stops = np.linspace(0, 1, len(_HEAT))
    channels = [np.interp(values, stops, _HEAT[:, channel]) for channel in range(3)]
    colours: NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return colours


def _report(outcome: Outcome) -> str:
    rows = "\n".join(
        f"| {score.method} | {score.nmae:.4f} | {score.psnr:.2f} dB |" for score in outcome.scores
    )
    return f"""# airnp demo

A {_PICTURES[outcome.picture]} of {outcome.size}×{outcome.size} pixels lost {outcome.missing:.2%} of them
(mask `{outcome.mask}`, seed {outcome.seed}). `airnp.inpaint` with its default settings filled them in
{outcome.seconds:.1f} seconds (method {describe_choice(outcome.method, outcome.chosen)}).

![original, damaged, completed, standard deviation, absolute error]({outcome.figure.name})

Measured on the missing pixels alone; NMAE is the mean absolute error over the range of the picture.
`airnp.inpaint`, which does not know the missing pixels, expects
{outcome.expected_nmae:.4f} ± {outcome.expected_error:.4f}.

| method | NMAE | PSNR |
|---|---|---|
{rows}

Python {platform.python_version()}, NumPy {np.__version__}, airnp {airnp.__version__}.
The same again: `{outcome.command}`
"""


def _text(outcome: Outcome) -> str:
    width = max(len("true, on missing pixels"), *(len(score.method) for score in outcome.scores))
    expected = f"{outcome.expected_nmae:.4f} ± {outcome.expected_error:.4f}"
    lines = [
        f"{_PICTURES[outcome.picture]}, {outcome.size}×{outcome.size}; "
        f"{outcome.missing:.1%} missing ({outcome.mask})",
        f"filled in {outcome.seconds:.1f} s, method {describe_choice(outcome.method, outcome.chosen)}\n",
        f"{'':<{width}}    NMAE      PSNR",
        f"{'expected by airnp':<{width}}  {expected}",
        f"{'true, on missing pixels':<{width}}",
        *(f"{score.method:<{width}}  {score.nmae:.4f}  {score.psnr:5.2f} dB" for score in outcome.scores),
        f"\nwrote {outcome.figure}\nwrote {outcome.report}",
    ]
    return "\n".join(lines)


_PICTURES = {"photo": "photograph in colour", "scene": "drawn grey picture"}

COMMAND = Command(_arguments, _run, EXAMPLES)
