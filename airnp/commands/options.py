"""The options of a fit as arguments, and a fit that ends well, in a message, or with its result so far."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airnp.commands.base import UsageError, WorkError, positive_number, whole_number

if TYPE_CHECKING:
    from airnp.results.result import FitResult
    from airnp.results.sparse_result import SparseFitResult
    from airnp.training.recorder import FitState


Outcome = TypeVar("Outcome")
Fitted = TypeVar("Fitted", "FitResult", "SparseFitResult")

METHODS = ("auto", "air", "dmf", "tv")


def add_fit_arguments(parser: argparse.ArgumentParser, *, time_limit: bool = True) -> None:
    """Add what people want to decide about a fit. What is left out is as `airnp.fit` has it.

    A picture is many fits, which cannot share a time limit: the last ones would get nothing.
    """
    group = parser.add_argument_group("the fit")
    group.add_argument("--max-iter", type=whole_number(1), metavar="N", help="iterations at most (40000)")
    if time_limit:
        group.add_argument(
            "--time-limit",
            type=positive_number,
            metavar="SECONDS",
            help="stop after this time and write the result",
        )
    group.add_argument(
        "--seed",
        type=whole_number(0),
        metavar="N",
        help="another start, another answer (0)",
    )
    group.add_argument(
        "--regularizers",
        choices=METHODS,
        help="air: learned graphs; tv: total variation; dmf: none of them; auto: air, for pictures with tv, "
        "and first a look for a matrix of low rank (auto)",
    )
    group.add_argument(
        "--rank", type=whole_number(1), metavar="N", help="inner dimension of the factors (min(m, n))"
    )
    group.add_argument("--depth", type=whole_number(1), metavar="N", help="number of factors (3)")
    group.add_argument("--dtype", choices=("float32", "float64"), help="float32 is faster (that of the data)")
    group.add_argument("--threads", type=whole_number(1), metavar="N", help="CPU threads (all processors)")
    group.add_argument(
        "--device",
        type=_device,
        help="cpu, cuda, or cuda:1 for the second GPU (cpu)",
    )


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:NUMBER, got {text!r}")
    return text


def fit_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parsed arguments as options of :func:`airnp.fit`; a device is looked for already.

    Raises
    ------
    UsageError
        If there is no such device.
    ImportError
        If CuPy is needed and not installed; the message names the extra.
    """
    chosen = {name: getattr(options, name) for name in ("max_iter", "rank", "depth", "dtype", "threads")}
    found = {name: value for name, value in chosen.items() if value is not None}
    return {
        **found,
        "seed": options.seed or 0,
        "regularizers": _regularizers(options.regularizers or "auto"),
        **place_of(options),
    }


def _regularizers(name: str) -> Any:
    import airnp

    return {"auto": "auto", "air": None, "dmf": [], "tv": [airnp.TotalVariation()]}[name]


def place_of(options: argparse.Namespace) -> dict[str, Any]:
    """Return the namespace and device of a fit, which are there and can be used."""
    device = options.device or "cpu"
    if device == "cpu":
        return {}
    from airnp._devices import check_device
    from airnp.engines import INSTALL_CUPY

    number = int(device.partition(":")[2] or 0)
    try:
        import cupy

        check_device(number)
    except ModuleNotFoundError:
        raise ImportError(f"--device {device} needs CuPy: {INSTALL_CUPY}") from None
    except (ImportError, RuntimeError, ValueError) as error:
        raise UsageError(f"--device {device}: {re.sub('^(xp|device): ', '', str(error))}") from error
    return {"xp": cupy, "device": number}


class TimeLimit:
    """A callback that ends a fit after some seconds, counted from when it was made; inf never does."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.reached = False
        self._end = time.monotonic() + seconds

    def __call__(self, iteration: int, state: FitState) -> bool:
        """Whether the time is over."""
        self.reached = self.reached or time.monotonic() >= self._end
        return self.reached


def explained(work: Callable[[], Outcome], names: Mapping[str, str]) -> Outcome:
    """Do the work; what it says about an argument becomes a message about the user's file or option.

    Parameters
    ----------
    work : callable
        Calls airnp, whose messages begin with the name of an argument: ``"Y: no entry is observed"``.
    names : mapping of str to str
        What the user calls these arguments; others are options, ``--name``.
    """
    try:
        return work()
    except RuntimeError as error:
        # Divergence, or a library of the GPU that is not there: airnp foresaw it and has a message.
        if type(error).__module__.split(".")[0] != "airnp":
            raise
        raise WorkError(str(error)) from error
    except MemoryError as error:
        raise WorkError(f"not enough memory: {error}") from error
    except (ValueError, TypeError) as error:
        # Only what airnp says about its arguments is a mistake of the user; anything else is one of ours.
        argument, colon, message = str(error).partition(": ")
        if not colon or not argument.isidentifier():
            raise
        name = names.get(argument, f"--{argument.replace('_', '-')}")
        raise UsageError(f"{name}: {message}") from error


def fit_within(
    limit: float | None, Y: Any, mask: Any, names: Mapping[str, str], **options: Any
) -> tuple[FitResult, dict[str, Any]]:
    """Fit, and return the result in NumPy's arrays with the facts about how it went.

    Ctrl-C ends the fit with the result so far: ``facts["stop_reason"]`` is then ``"interrupted"``.
    """
    import airnp

    return timed(limit, lambda clock: airnp.fit(Y, mask, callback=clock, **options).to_numpy(), names)


def timed(
    limit: float | None, work: Callable[[TimeLimit | None], Fitted], names: Mapping[str, str]
) -> tuple[Fitted, dict[str, Any]]:
    """Do a fit, which gets the time limit as its callback; return its result and how it went."""
    clock = None if limit is None else TimeLimit(limit)
    started = time.perf_counter()
    result = explained(lambda: work(clock), names)
    reason = result.stop_reason
    if clock is not None and clock.reached and reason != "interrupted":
        reason = f"time limit of {clock.seconds:g} s reached"
    return result, {
        "iterations": result.n_iter,
        "stop_reason": reason,
        "seconds": round(time.perf_counter() - started, 3),
        "seed": result.seed,
    }
