"""``airnp inpaint``: fill the holes of a picture."""

from __future__ import annotations

import argparse
import io
import math
import time
import warnings
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
    first_given,
    shows_progress,
    whole_number,
    write_file,
)
from airnp.commands.fits import (
    MODEL_OPTIONS,
    add_checkpoint_arguments,
    add_machine_arguments,
    add_model_arguments,
    add_time_limit_argument,
    checkpoint_options,
    chosen,
    device_options,
    explain_errors,
    fit_options,
)
from airnp.images.inpainted import describe_choice
from airnp.images.inpainting import METHODS

if TYPE_CHECKING:
    from airnp.images.formats import Bools, Picture, Pixels
    from airnp.images.inpainted import Inpainting

DESCRIPTION = """\
Fill the missing pixels of a picture: grey or in colour, with or without alpha, of 8 or 16 bits. Formats go by
the name: .png, .tif, .jpg, .webp, .bmp. Pixels that are there stay as they are (.jpg changes all of them a
little). Missing pixels are black in a second picture (--mask), or have a colour in the picture itself
(--missing "#ff0000"), or are fully transparent (--missing alpha); these become opaque. Otherwise alpha is
kept. Gaps are filled from patches that resemble their surroundings. Settings are chosen on pixels that are
hidden for that purpose; these also tell the error to expect. Ctrl-C and --time-limit write the picture so
far.
"""

EXAMPLES = """\
  airnp inpaint photo.png --mask mask.png -o restored.png
  airnp inpaint photo.png --mask holes.png --mask-invert -o restored.png
  airnp inpaint scan.tif --missing "#ff0000" --tolerance 40 -o restored.tif
  airnp inpaint cutout.png --missing alpha -o restored.jpg
  airnp inpaint photo.png --mask mask.png -o restored.png --quality fast --std std.npy
  airnp inpaint large.tif --mask mask.png -o restored.tif --time-limit 600 --checkpoint large.npz
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
    parser.add_argument(
        "--std",
        type=Path,
        metavar="FILE",
        help="write the standard deviation of every filled pixel in grey levels: .png (rounded) or .npy",
    )
    _add_filling_arguments(parser)
    add_message_arguments(parser)


def _add_filling_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the filling")
    group.add_argument(
        "--method",
        choices=METHODS,
        default="auto",
        help="auto: resembling patches, settings by trials; patches: without trials; air: the model of "
        "airnp.fit; biharmonic, linear: simple ones to compare with (%(default)s)",
    )
    group.add_argument("--quality", choices=("best", "fast"), help="fast compares fewer patches (best)")
    group.add_argument("--patch", type=whole_number(2), metavar="N", help="side of a patch (by trials)")
    group.add_argument(
        "--search", type=whole_number(1), metavar="N", help="how many pixels away to look for patches (10)"
    )
    group.add_argument(
        "--neighbours", type=whole_number(4), metavar="N", help="patches that form a group (64)"
    )
    add_time_limit_argument(group)
    add_checkpoint_arguments(group, "and continue it with the same command")
    add_machine_arguments(group)
    add_model_arguments(parser.add_argument_group("the fit, with --method air"))


def _run(options: argparse.Namespace) -> int:
    from airnp.images import formats as files

    kind = files.kind_of(options.output)
    _check_options(options)
    # A checkpoint that is there is continued, not overwritten.
    saved = options.checkpoint if options.checkpoint and not options.checkpoint.exists() else None
    check_outputs(options, {"--output": options.output, "--std": options.std, "--checkpoint": saved})
    picture = files.read(options.picture)
    observed = _observed(options, picture)
    if options.mask is not None and looks_inverted(observed):
        meant = "without --mask-invert white" if options.mask_invert else "with --mask-invert black"
        warnings.warn(f"{options.mask} looks inverted: {_ISLANDS}; {meant} means observed", stacklevel=1)
    opaque = _with_opaque_holes(options, picture, observed)
    # A rehearsal: what the format cannot hold should be known before the work.
    files.write(io.BytesIO(), kind, opaque)
    settings = _settings(options)

    started = time.perf_counter()
    found = _fill(options, picture.pixels, observed, settings)
    pixels = found.image
    write_file(options.output, lambda file: files.write(file, kind, replace(opaque, pixels=pixels)))
    if options.std is not None:
        _write_std(options.std, found.std, pixels.dtype)

    # The trials judge complete runs.
    known = math.isfinite(found.expected) and found.stop_reason == "done"
    facts = {
        "command": "inpaint",
        "input": str(options.picture),
        "output": str(options.output),
        "width": pixels.shape[1],
        "height": pixels.shape[0],
        "channels": 1 if pixels.ndim == 2 else pixels.shape[2],
        "bits": 8 * pixels.itemsize,
        "missing": int((~observed).sum()),
        "method": found.method,
        "chosen": found.chosen,
        "expected": found.expected if known else None,
        "expected_error": found.expected_error if known else None,
        "stop_reason": found.stop_reason,
        "seconds": round(time.perf_counter() - started, 3),
        "seed": settings["seed"],
    }
    return finish(options, facts, _text(options, picture, facts, observed.size))


# --- options ---


def _check_options(options: argparse.Namespace) -> None:
    """Raise a UsageError for options that do not go together."""
    if options.mask_invert and options.mask is None:
        raise UsageError("--mask-invert goes with --mask")
    if options.tolerance is not None and options.missing in (None, "alpha"):
        raise UsageError("--tolerance goes with --missing COLOUR")
    model = first_given(options, MODEL_OPTIONS)
    if model is not None and options.method != "air":
        raise UsageError(f"{model} goes with --method air")
    rounds = ("quality", "patch", "search", "neighbours", "time_limit", "checkpoint", "std")
    other = first_given(options, rounds)
    if other is not None and options.method not in ("auto", "patches"):
        raise UsageError(f"{other} goes with --method auto or patches")
    if options.checkpoint_every is not None and options.checkpoint is None:
        raise UsageError("--checkpoint-every goes with --checkpoint")
    if options.std is not None and options.std.suffix.lower() not in (".png", ".npy"):
        raise UsageError(f"--std: expected a name that ends in .png or .npy, got {options.std}")


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parsed arguments as options of :func:`airnp.inpaint`."""
    if options.method == "air":
        return {"method": "air", **fit_options(options)}
    return {
        "method": options.method,
        "seed": options.seed or 0,
        "progress": shows_progress(options),
        **chosen(options, "quality", "patch", "search", "neighbours", "threads", "time_limit"),
        **checkpoint_options(options),
        **device_options(options),
    }


# --- missing pixels ---


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


_ISLANDS = "most pixels are missing, and those that are there are small islands"


def looks_inverted(observed: Bools) -> bool:
    """Return whether a mask (H, W) seems to mark what is there instead of what is missing.

    Most pixels are missing and hang together, and the observed ones are small islands. Single pixels that are
    observed at random are no islands: their neighbours are observed no more often than others.

    Examples
    --------
    >>> observed = np.ones((40, 40), dtype=bool)
    >>> observed[10:14, 5:30] = False
    >>> looks_inverted(observed), looks_inverted(~observed)
    (False, True)
    """
    from scipy import ndimage

    share = observed.mean()
    if share >= 0.5:
        return False
    beside = np.ones((3, 3)) / 8
    beside[1, 1] = 0
    around = ndimage.convolve(observed.astype(float), beside, mode="nearest")[observed].mean()
    return bool(
        around > share + 0.2
        and _largest_part(observed) < 0.1 * observed.size
        and _largest_part(~observed) > 0.8 * (~observed).sum()
    )


def _largest_part(mask: Bools) -> int:
    """Return how many pixels the largest connected part of a mask has."""
    from scipy import ndimage

    parts, _ = ndimage.label(mask, np.ones((3, 3)))
    return int(np.bincount(parts.ravel())[1:].max(initial=0))


# --- filling ---


def _with_opaque_holes(options: argparse.Namespace, picture: Picture, observed: Bools) -> Picture:
    """Return the picture with the alpha of the output, where filled pixels are opaque."""
    if options.missing != "alpha" or picture.alpha is None:
        return picture
    full = np.array(picture.most, dtype=picture.alpha.dtype)
    return replace(picture, alpha=np.where(observed, picture.alpha, full))


def _fill(
    options: argparse.Namespace, pixels: Pixels, observed: Bools, settings: dict[str, Any]
) -> Inpainting:
    """Return the picture with its holes filled; as far as it came after Ctrl-C."""
    from airnp.images.inpainting import inpaint

    axis = None if pixels.ndim == 2 else -1
    picture = str(options.picture)
    names = {"image": picture, "Y": picture, "mask": str(options.mask or picture)}
    with explain_errors(names):
        found: Inpainting = inpaint(pixels, observed, channel_axis=axis, full=True, **settings)
    return found


def _write_std(path: Path, std: Any, dtype: Any) -> None:
    """Write standard deviations as they are, or rounded to pixels of a picture."""
    from airnp.images import formats as files

    if path.suffix.lower() == ".npy":
        write_file(path, lambda file: np.save(file, std))
        return
    levels = np.rint(np.clip(std, 0, np.iinfo(dtype).max)).astype(dtype)
    write_file(path, lambda file: files.write(file, ".png", files.Picture(levels)))


def _text(options: argparse.Namespace, picture: Picture, facts: dict[str, Any], count: int) -> str:
    kind = ("grey" if facts["channels"] == 1 else "colour") + ("" if picture.alpha is None else " and alpha")
    missing = f"{facts['missing'] / count:.1%} missing"
    lines = [
        f"{options.picture}: {picture.size}, {kind}, {facts['bits']} bits, {missing}",
        f"method {describe_choice(facts['method'], facts['chosen'])}",
    ]
    if facts["expected"] is not None:
        expected = f"{facts['expected']:.2f} ± {facts['expected_error']:.2f}"
        lines.append(f"expected error {expected} grey levels of {picture.most}")
    if facts["stop_reason"] == "done":
        lines += [f"filled in {facts['seconds']:.1f} s", f"wrote {options.output}"]
    else:
        lines += [
            f"{facts['stop_reason']} after {facts['seconds']:.1f} s",
            f"wrote the picture so far to {options.output}",
        ]
    if options.std is not None:
        lines.append(f"wrote {options.std}")
    return "\n".join(lines)


COMMAND = Command(_arguments, _run, EXAMPLES, DESCRIPTION)
