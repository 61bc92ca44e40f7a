"""``airnp demo``: complete a picture and show how it went."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from airnp.commands.base import (
    INTERRUPTED,
    OK,
    Command,
    UsageError,
    add_talk_arguments,
    report,
    share,
    shows_progress,
    whole_number,
)

if TYPE_CHECKING:
    from airnp.demo import Outcome

EXAMPLES = """\
  airnp demo
  airnp demo --mask text --output text-demo
  airnp demo --missing 0.7 --size 240
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", default="airnp-demo", metavar="DIR", help="where to write (%(default)s)")
    parser.add_argument(
        "--size", type=whole_number(16), default=128, help="height and width of the picture (%(default)s)"
    )
    parser.add_argument(
        "--mask",
        choices=["random", "patch", "text", "scratches"],
        default="random",
        help="shape of the holes (%(default)s)",
    )
    parser.add_argument(
        "--missing",
        type=share,
        metavar="SHARE",
        help="share of the entries to hide, between 0 and 1, for --mask random (0.3)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, help="for the mask and the start of the fit (%(default)s)"
    )
    parser.add_argument(
        "--iterations", type=whole_number(1), default=10_000, help="iterations at most (%(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the files of an earlier run")
    add_talk_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    if options.missing is not None and options.mask != "random":
        raise UsageError(f"--missing goes with --mask random; --mask {options.mask} has its own share")

    from airnp import demo

    outcome = demo.run(
        options.output,
        size=options.size,
        mask=options.mask,
        missing=0.3 if options.missing is None else options.missing,
        seed=options.seed,
        iterations=options.iterations,
        force=options.force,
        progress=shows_progress(options),
    )
    report(options, dataclasses.asdict(outcome), _text(outcome))
    return INTERRUPTED if outcome.stop_reason == "interrupted" else OK


def _text(outcome: Outcome) -> str:
    width = max(len(score.method) for score in outcome.scores)
    lines = [
        f"{outcome.size}×{outcome.size} picture, {outcome.missing:.1%} missing ({outcome.mask} mask)",
        f"{outcome.n_iter} iterations in {outcome.seconds:.1f} s\n",
        f"{'on the missing entries':<{width}}    NMAE      PSNR",
        *(f"{score.method:<{width}}  {score.nmae:.4f}  {score.psnr:5.2f} dB" for score in outcome.scores),
        f"\nwrote {outcome.figure}\nwrote {outcome.report}",
    ]
    return "\n".join(lines)


COMMAND = Command("complete a picture with holes and write before_after.png", _arguments, _run, EXAMPLES)
