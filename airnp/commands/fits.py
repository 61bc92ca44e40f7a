"""Fits for the commands: their options as arguments, their errors in the user's words, facts about the run.

All commands but ``airnp demo`` and ``airnp inpaint`` call the fits of airnp here and nowhere else.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import airnp
from airnp.commands.base import (
    UsageError,
    WorkError,
    finite_number,
    positive_number,
    shows_progress,
    whole_number,
)
from airnp.engines import Auto

if TYPE_CHECKING:
    from airnp.results.ratings_model import ImplicitModel, RatingsModel
    from airnp.results.result import FitResult
    from airnp.results.sparse_result import SparseFitResult
    from airnp.training.recorder import FitState

Names = Mapping[str, str]
Facts = dict[str, Any]


# --- arguments ---


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fit that people want to choose; the defaults are those of `airnp.fit`."""
    group = parser.add_argument_group("the fit")
    add_model_arguments(group)
    add_time_limit_argument(group)
    add_machine_arguments(group)


def add_model_arguments(group: argparse._ArgumentGroup) -> None:
    """Add what only :func:`airnp.fit` has: :data:`MODEL_OPTIONS`."""
    group.add_argument("--max-iter", type=whole_number(1), metavar="N", help="iterations at most (40000)")
    group.add_argument(
        "--regularizers",
        choices=("air", "dmf", "tv"),
        help="air: learned graphs; tv: total variation; dmf: none of them (air; pictures: both)",
    )
    group.add_argument(
        "--rank", type=whole_number(1), metavar="N", help="inner dimension of the factors (min(m, n))"
    )
    group.add_argument("--depth", type=whole_number(1), metavar="N", help="number of factors (3)")
    group.add_argument("--dtype", choices=("float32", "float64"), help="float32 is faster (that of the data)")


MODEL_OPTIONS = ("max_iter", "regularizers", "rank", "depth", "dtype")


def add_time_limit_argument(group: argparse._ArgumentGroup) -> None:
    """Add ``--time-limit``."""
    group.add_argument(
        "--time-limit",
        type=positive_number,
        metavar="SECONDS",
        help="stop after this time and write the result",
    )


def add_machine_arguments(group: argparse._ArgumentGroup) -> None:
    """Add ``--seed``, ``--threads`` and ``--device``."""
    group.add_argument("--seed", type=whole_number(0), metavar="N", help="another start, another answer (0)")
    group.add_argument("--threads", type=whole_number(1), metavar="N", help="CPU threads (all processors)")
    group.add_argument("--device", type=_device, help="cpu, cuda, or cuda:1 for the second GPU (cpu)")


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"must be cpu, cuda or cuda:NUMBER, got {text!r}")
    return text


def add_checkpoint_arguments(group: argparse._ArgumentGroup, purpose: str) -> None:
    """Add ``--checkpoint`` and ``--checkpoint-every``."""
    group.add_argument(
        "--checkpoint", type=Path, metavar="FILE.npz", help=f"save the run now and then, {purpose}"
    )
    group.add_argument(
        "--checkpoint-every", type=positive_number, metavar="SECONDS", help="how often to save it (30)"
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--checkpoint``, ``--checkpoint-every`` and ``--resume``."""
    group = parser.add_argument_group("long runs")
    add_checkpoint_arguments(group, "for --resume")
    group.add_argument(
        "--resume",
        type=Path,
        metavar="FILE.npz",
        help="go on with a run from its checkpoint, which is kept up to date; --max-iter may give it more "
        "iterations",
    )


def check_run_arguments(options: argparse.Namespace) -> None:
    """Raise a UsageError for an option that makes sense only for a run with a checkpoint."""
    if options.checkpoint_every is not None and options.checkpoint is None and options.resume is None:
        raise UsageError("--checkpoint-every goes with --checkpoint or --resume")


def add_bounds_argument(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--bounds``."""
    parser.add_argument("--bounds", nargs=2, type=finite_number, metavar=("LOW", "HIGH"), help=help)


# --- arguments as options of airnp.fit ---


def fit_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the parsed arguments as options of :func:`airnp.fit`.

    Raises
    ------
    UsageError
        If there is no such device.
    ImportError
        If CuPy is needed and not installed; the message names the extra.
    """
    regularizers = {"air": None, "dmf": [], "tv": [airnp.TotalVariation()]}
    return {
        **chosen(options, "max_iter", "rank", "depth", "dtype"),
        **_engine(options),
        "seed": options.seed or 0,
        **({} if options.regularizers is None else {"regularizers": regularizers[options.regularizers]}),
        "progress": shows_progress(options),
        **device_options(options),
    }


def device_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the namespace and the device of a fit, after a check that the device can be used."""
    device = options.device or "cpu"
    if device == "cpu":
        return {}
    from airnp._devices import INSTALL_CUPY, check_device

    number = int(device.partition(":")[2] or 0)
    try:
        import cupy

        check_device(number)
    except ModuleNotFoundError:
        raise ImportError(f"--device {device} needs CuPy: {INSTALL_CUPY}") from None
    except (ImportError, RuntimeError, ValueError) as error:
        raise UsageError(f"--device {device}: {re.sub('^(xp|device): ', '', str(error))}") from error
    return {"xp": cupy, "device": number}


def bounds_of(options: argparse.Namespace, whole: Any = None) -> Any:
    """Return the bounds as :func:`airnp.fit` takes them; ``whole`` says which columns are rounded."""
    low, high = (None, None) if options.bounds is None else options.bounds
    if whole is not None:
        return airnp.Integers(low, high, whole)
    return None if options.bounds is None else (low, high)


def checkpoint_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the checkpoint as :func:`airnp.fit` takes it."""
    return {} if options.checkpoint is None else {"checkpoint": _checkpoint(options, options.checkpoint)}


def _checkpoint(options: argparse.Namespace, path: Path | str) -> airnp.Checkpoint:
    every = options.checkpoint_every
    return airnp.Checkpoint(path) if every is None else airnp.Checkpoint(path, every)


def _engine(options: argparse.Namespace) -> dict[str, Any]:
    """Return the engine with the threads that the user wants, if any."""
    return {} if options.threads is None else {"engine": Auto(options.threads)}


def chosen(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return those of the options that have a value."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


# --- fits ---


def fit_dense(
    options: argparse.Namespace, names: Names, Y: Any, mask: Any, **settings: Any
) -> tuple[FitResult, Facts]:
    """Fit a table with gaps; return the result in NumPy's arrays, and the facts about the run.

    Ctrl-C ends the fit with the result so far; ``facts["stop_reason"]`` is then ``"interrupted"``.

    Parameters
    ----------
    options : Namespace
        Parsed arguments of :func:`add_fit_arguments`.
    names : mapping of str to str
        See :func:`explain_errors`.
    Y, mask : arrays (m, n)
    **settings
        Further options of :func:`airnp.fit`.
    """
    settings = {**fit_options(options), **settings}
    clock = None if options.time_limit is None else TimeLimit(options.time_limit)
    return _run(names, clock, lambda: airnp.fit(Y, mask, callback=clock, **settings).to_numpy())


def fit_sparse(
    options: argparse.Namespace, names: Names, matrix: Any, **settings: Any
) -> tuple[SparseFitResult, Facts]:
    """Fit the stored entries of a sparse matrix (m, n); otherwise as :func:`fit_dense`."""
    settings = {**fit_options(options), **settings}
    clock = None if options.time_limit is None else TimeLimit(options.time_limit)
    return _run(names, clock, lambda: airnp.fit_sparse(matrix, callback=clock, **settings))


def fit_ratings(
    options: argparse.Namespace, names: Names, ratings: Any, **settings: Any
) -> tuple[RatingsModel, Facts]:
    """Fit ratings as :func:`airnp.fit_ratings` takes them."""
    settings |= chosen(options, "rank", "max_iter") | _engine(options) | checkpoint_options(options)
    settings |= {"seed": options.seed or 0, "progress": shows_progress(options)}
    return _run(names, None, lambda: airnp.fit_ratings(ratings, **settings))


def fit_implicit(options: argparse.Namespace, names: Names, pairs: Any) -> tuple[ImplicitModel, Facts]:
    """Fit pairs as :func:`airnp.fit_implicit` takes them."""
    settings = chosen(options, "rank", "max_iter") | _engine(options) | {"seed": options.seed or 0}
    return _run(names, None, lambda: airnp.fit_implicit(pairs, **settings))


def fit_best(
    options: argparse.Namespace, names: Names, Y: Any, mask: Any, **settings: Any
) -> tuple[FitResult, Facts]:
    """Complete a table by the model that predicts held-out numbers best; otherwise as :func:`fit_dense`."""
    settings |= chosen(options, "time_limit", "threads")
    started = time.perf_counter()
    with explain_errors(names):
        found = airnp.complete(Y, mask, seed=options.seed or 0, progress=shows_progress(options), **settings)
    result = found.as_fit()
    return result, {
        **_facts(result, started),
        "kind": found.kind,
        "expected_error": found.expected,
        "standard_error": found.standard_error,
        "metric": found.metric,
        "choice": found.model,
    }


def resume_run(
    options: argparse.Namespace, clock: TimeLimit | None = None, **device: Any
) -> tuple[Any, Facts]:
    """Go on with the run in ``--resume``; return its result in NumPy's arrays, and the facts about it."""
    path = str(options.resume)
    settings: dict[str, Any] = {
        "max_iter": options.max_iter,
        **_engine(options),
        "checkpoint": True,
        "progress": shows_progress(options),
        **device,
    }

    if options.checkpoint is not None or options.checkpoint_every is not None:
        settings["checkpoint"] = _checkpoint(options, options.checkpoint or path)

    def fit() -> Any:
        result: Any = airnp.resume(path, callback=clock, **settings)
        return result.to_numpy() if isinstance(result, airnp.FitResult) else result

    names = {"operator": path, "regularizers": path, "stop": path, "optimizer": path, "xp": "--device"}
    try:
        return _run(names, clock, fit)
    except ValueError as error:
        if not str(error).startswith(f"{path}: "):
            raise
        raise UsageError(str(error)) from error


def load_result(path: Path) -> Any:
    """Return a saved result; raise a UsageError if the file holds none."""
    try:
        return airnp.load(path)
    except ValueError as error:
        raise UsageError(str(error)) from error


class TimeLimit:
    """A callback that ends a fit after some seconds, counted from now; infinitely many never end it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.reached = False
        self._end = time.monotonic() + seconds

    def __call__(self, iteration: int, state: FitState) -> bool:
        """Return whether the time is over."""
        self.reached = self.reached or time.monotonic() >= self._end
        return self.reached


def _run(names: Names, clock: TimeLimit | None, fit: Callable[[], Any]) -> tuple[Any, Facts]:
    started = time.perf_counter()
    with explain_errors(names):
        result = fit()
    facts = _facts(result, started)
    if clock is not None and clock.reached and result.stop_reason != "interrupted":
        facts["stop_reason"] = f"time limit of {clock.seconds:g} s reached"
    return result, facts


def _facts(result: Any, started: float) -> Facts:
    return {
        "iterations": result.n_iter,
        "stop_reason": result.stop_reason,
        "seconds": round(time.perf_counter() - started, 3),
        "seed": result.seed,
    }


@contextmanager
def explain_errors(names: Names) -> Iterator[None]:
    """Turn an error about an argument of airnp into a message about the user's file or option.

    Parameters
    ----------
    names : mapping of str to str
        What the user calls an argument of airnp, with which its messages begin, as in
        ``"Y: no entry is observed"``. Arguments that are not in it are options, ``--name``.
    """
    try:
        yield
    except RuntimeError as error:
        # airnp's own errors, such as divergence, have a message for users; any other is a bug.
        if type(error).__module__.split(".")[0] != "airnp":
            raise
        raise WorkError(str(error)) from error
    except MemoryError as error:
        hint = "" if "fit_sparse" not in str(error) else "; here: --form sparse --rank N"
        raise WorkError(f"not enough memory: {error}{hint}") from error
    except (ValueError, TypeError) as error:
        argument, colon, message = str(error).partition(": ")
        if not colon or not argument.isidentifier():
            raise  # no message about an argument: a bug
        name = names.get(argument, f"--{argument.replace('_', '-')}")
        raise UsageError(f"{name}: {message}") from error


def describe_run(options: argparse.Namespace, facts: Facts) -> str:
    """Return in words how many iterations a run took, how long, and why it ended."""
    seconds = f"{facts['seconds']:.1f} s"
    if not facts["iterations"]:
        return f"{seconds}: {facts['stop_reason']}"
    spent = f"in {seconds}" if options.resume is None else f"in all, after {seconds} more"
    return f"{facts['iterations']} iterations {spent}: {facts['stop_reason']}"
