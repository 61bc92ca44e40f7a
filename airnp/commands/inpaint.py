"""``airnp inpaint``: fill the holes of a picture."""

from __future__ import annotations

import argparse
import io
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airnp.commands.base import (
    Command,
    UsageError,
    add_message_arguments,
    add_output_arguments,
    check_outputs,
    finish,
    whole_number,
    write_file,
)
from airnp.commands.fits import add_fit_arguments, explain_errors, fit_options

if TYPE_CHECKING:
    from airnp.images.formats import Bools, Picture, Pixels

DESCRIPTION = """\
Fill the missing pixels of a picture: grey or in colour, with or without alpha, of 8 or 16 bits. Formats go by
the name: .png, .tif, .jpg, .webp, .bmp. Pixels that are there stay as they are (.jpg changes all of them a
little). Missing pixels are black in a second picture (--mask), or have a colour in the picture itself
(--missing "#ff0000"), or are fully transparent (--missing alpha); these become opaque. Otherwise alpha is
kept. Large pictures are done in tiles. Ctrl-C writes what is filled so far, if anything is.
"""

EXAMPLES = """\
  airnp inpaint photo.png --mask mask.png -o restored.png
  airnp inpaint photo.png --mask holes.png --mask-invert -o restored.png
  airnp inpaint scan.tif --missing "#ff0000" --tolerance 40 -o restored.tif
  airnp inpaint cutout.png --missing alpha -o restored.jpg
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("picture", type=Path, help="file to read")
    add_output_arguments(parser, ".png .tif .jpg .webp .bmp")
    holes = parser.add_mutually_exclusive_group(required=True)
    holes.add_argument(
        "--mask",
        type=Path,
        metavar="FILE",
        help="picture of the same size: white = observed, black = missing",
    )
    holes.add_argument(
        "--missing",
        metavar="COLOUR",
        help='colour of missing pixels, "#ff0000" or a name such as red; or alpha',
    )
    parser.add_argument(
        "--mask-invert", action="store_true", help="in the mask white = missing, black = observed"
    )
    parser.add_argument(
        "--tolerance",
        type=whole_number(0),
        metavar="N",
        help="how far a missing pixel may be from COLOUR in each channel, of 255 (0)",
    )
    add_fit_arguments(parser, time_limit=False)
    add_message_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    from airnp.images import formats as files

    kind = files.kind_of(options.output)
    check_outputs(options, {"--output": options.output})
    _check_mask_options(options)
    picture = files.read(options.picture)
    observed = _observed(options, picture)
    opaque = _with_opaque_holes(options, picture, observed)
    # A rehearsal: what the format cannot hold should be known before the work.
    files.write(io.BytesIO(), kind, opaque)
    settings = fit_options(options)

    started = time.perf_counter()
    pixels, interrupted = _fill(options, picture.pixels, observed, settings)
    unfilled = _unchanged_share(picture.pixels, pixels, observed) if interrupted else 0.0
    if unfilled == 1:
        raise KeyboardInterrupt
    write_file(options.output, lambda file: files.write(file, kind, replace(opaque, pixels=pixels)))

    facts = {
        "command": "inpaint",
        "input": str(options.picture),
        "output": str(options.output),
        "width": pixels.shape[1],
        "height": pixels.shape[0],
        "channels": 1 if pixels.ndim == 2 else pixels.shape[2],
        "bits": 8 * pixels.itemsize,
        "missing": int((~observed).sum()),
        "stop_reason": "interrupted" if interrupted else "done",
        "seconds": round(time.perf_counter() - started, 3),
        "seed": settings["seed"],
    }
    return finish(options, facts, _text(options, picture, facts, observed.size, unfilled))


# --- missing pixels ---


def _check_mask_options(options: argparse.Namespace) -> None:
    if options.mask_invert and options.mask is None:
        raise UsageError("--mask-invert goes with --mask")
    if options.tolerance is not None and options.missing in (None, "alpha"):
        raise UsageError("--tolerance goes with --missing COLOUR")


def _observed(options: argparse.Namespace, picture: Picture) -> Bools:
    """Return which pixels are observed, (H, W); raise a UsageError if all are or none is."""
    if options.mask is not None:
        observed, where = _by_mask(options, picture), f"black in {options.mask}"
        if options.mask_invert:
            where = where.replace("black", "white")
    elif options.missing == "alpha":
        if picture.alpha is None:
            raise UsageError(f"--missing alpha: {options.picture} has no alpha channel")
        observed, where = picture.alpha > 0, "fully transparent"
    else:
        observed, where = _by_colour(options, picture), f"of the colour {options.missing}"
    if observed.all():
        raise UsageError(f"{options.picture}: no pixel is missing; none is {where}")
    if not observed.any():
        raise UsageError(f"{options.picture}: all pixels are missing; all are {where}")
    return observed


def _by_mask(options: argparse.Namespace, picture: Picture) -> Bools:
    """Return where a mask is nearer to white than to black; the opposite with ``--mask-invert``."""
    from airnp.images import formats as files

    mask = files.read(options.mask)
    if mask.pixels.shape[:2] != picture.pixels.shape[:2]:
        raise UsageError(
            f"{options.mask}: expected {picture.size} as in {options.picture}, found {mask.size}"
        )
    if mask.has_holes:
        raise UsageError(f"{options.mask}: expected a mask without transparent pixels")
    grey = mask.pixels if mask.pixels.ndim == 2 else mask.pixels.mean(axis=-1)
    white: Bools = grey > mask.most / 2
    return ~white if options.mask_invert else white


def _by_colour(options: argparse.Namespace, picture: Picture) -> Bools:
    """Return where some channel is further from the colour than the tolerance."""
    scale = picture.most // 255
    colour = np.array(_colour(options.missing)) * scale
    pixels = picture.pixels.astype(np.int32)
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    distance = np.abs(pixels - colour).max(axis=-1)
    far: Bools = distance > scale * (options.tolerance or 0)
    return far


def _colour(text: str) -> tuple[int, ...]:
    try:
        from PIL import ImageColor
    except ImportError as error:
        from airnp.images.formats import NEEDS_PILLOW

        raise ImportError(NEEDS_PILLOW) from error
    try:
        return ImageColor.getrgb(text)[:3]
    except ValueError as error:
        raise UsageError(f'--missing: expected alpha or a colour such as "#ff0000", got {text!r}') from error


# --- filling ---


def _with_opaque_holes(options: argparse.Namespace, picture: Picture, observed: Bools) -> Picture:
    """Return the picture with the alpha of the output, where filled pixels are opaque."""
    if options.missing != "alpha" or picture.alpha is None:
        return picture
    full = np.array(picture.most, dtype=picture.alpha.dtype)
    return replace(picture, alpha=np.where(observed, picture.alpha, full))


def _fill(
    options: argparse.Namespace, pixels: Pixels, observed: Bools, settings: dict[str, Any]
) -> tuple[Pixels, bool]:
    """Return the pixels with their holes filled, and whether Ctrl-C left some as they were."""
    from airnp.images.inpainting import inpaint

    answer = pixels.copy()
    axis = None if pixels.ndim == 2 else -1
    picture = str(options.picture)
    names = {"image": picture, "Y": picture, "mask": str(options.mask or picture)}
    try:
        with explain_errors(names):
            inpaint(pixels, observed, channel_axis=axis, out=answer, **settings)
    except KeyboardInterrupt:
        return answer, True
    return answer, False


def _unchanged_share(before: Pixels, after: Pixels, observed: Bools) -> float:
    """Return the share of the missing values that are as they were."""
    return float((before[~observed] == after[~observed]).mean())


def _text(
    options: argparse.Namespace, picture: Picture, facts: dict[str, Any], count: int, unfilled: float
) -> str:
    kind = ("grey" if facts["channels"] == 1 else "colour") + ("" if picture.alpha is None else " and alpha")
    missing = f"{facts['missing'] / count:.1%} missing"
    lines = [
        f"{options.picture}: {picture.size}, {kind}, {facts['bits']} bits, {missing}",
        f"filled in {facts['seconds']:.1f} s",
        f"wrote {options.output}",
    ]
    if facts["stop_reason"] == "interrupted":
        lines[1] = f"interrupted: {unfilled:.0%} of what is missing is as it was"
        lines[2] = f"wrote the result so far to {options.output}"
    return "\n".join(lines)


COMMAND = Command("fill the holes of a picture", _arguments, _run, EXAMPLES, DESCRIPTION)
