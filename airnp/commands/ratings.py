"""``airnp ratings``: predict what users would give to items, from a table of what they gave to others."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from airnp.commands.base import (
    Command,
    UsageError,
    add_message_arguments,
    add_output_arguments,
    check_outputs,
    finish,
    first_given,
    save_result,
    whole_number,
    write_file,
)
from airnp.commands.fits import (
    add_bounds_argument,
    add_run_arguments,
    bounds_of,
    check_run_arguments,
    describe_run,
    fit_ratings,
    resume_run,
)
from airnp.commands.tables import add_text_arguments, check_within_bounds
from airnp.tables import triples
from airnp.tables.triples import Layout, Triples

if TYPE_CHECKING:
    from airnp.results.sparse_result import SparseFitResult

DESCRIPTION = """\
Predict ratings from a table with a line for each rating: user, item, rating. Further columns are ignored, a
header is told by itself, and users and items are called anything. Formats go by the name: .csv and .tsv (also
.gz), .parquet.

What is written has a header and a line for each prediction: the pairs of a file, or for every user the items
that are predicted best among those without a rating, best first. A user or an item that has no rating at all
is predicted from what is known about the other side alone.

With --checkpoint a run that was interrupted or killed can go on: --resume FILE with the same ratings takes
the settings of the fit from the file, and ends with the predictions of an uninterrupted run.
"""

EXAMPLES = """\
  airnp ratings ratings.csv -o best.csv
  airnp ratings ratings.csv -o best.csv --top 3 --users ann bob
  airnp ratings ratings.csv -o predictions.csv --pairs pairs.csv --bounds 1 5
  airnp ratings log.parquet -o best.parquet --columns user_id film stars --repeated last
  airnp ratings ratings.tsv.gz -o best.csv --rank 32 --result model.npz --json
  airnp ratings large.parquet -o best.csv --checkpoint run.npz
  airnp ratings large.parquet -o best.csv --resume run.npz
"""

_TOP = 10
"""Items to predict for every user, unless the user says how many."""

_CHUNK = 2**24
"""Predictions to make at a time."""

Places = npt.NDArray[np.int64]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", type=Path, help="file of ratings to read")
    add_output_arguments(parser, ".csv .tsv .parquet, also .csv.gz .tsv.gz")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="pairs to predict: user, item")
    parser.add_argument(
        "--top",
        type=whole_number(1),
        metavar="N",
        help=f"without --pairs: how many items to predict for every user ({_TOP})",
    )
    parser.add_argument("--users", nargs="+", metavar="USER", help="only for these users (all)")
    add_bounds_argument(parser, "clip predictions (to the lowest and the highest rating)")
    parser.add_argument(
        "--result", type=Path, metavar="FILE.npz", help="save the factors as well, for airnp.load"
    )
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--columns",
        nargs=3,
        metavar=("USER", "ITEM", "RATING"),
        help="names of the columns, or their numbers from 1 (1 2 3)",
    )
    group.add_argument(
        "--repeated",
        choices=("error", "last", "mean"),
        default="error",
        help="what counts if a user rated an item more than once (%(default)s)",
    )
    add_text_arguments(group)
    group = parser.add_argument_group("the fit")
    group.add_argument("--rank", type=whole_number(1), metavar="N", help="length of a factor (128)")
    group.add_argument("--max-iter", type=whole_number(1), metavar="N", help="iterations at most (1000)")
    group.add_argument("--seed", type=whole_number(0), metavar="N", help="another start (0)")
    group.add_argument("--threads", type=whole_number(1), metavar="N", help="CPU threads (all processors)")
    add_run_arguments(parser)
    add_message_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    kind = triples.kind_of_triples(options.output)
    _check_options(options)
    columns = ("1", "2", "3") if options.columns is None else tuple(options.columns)
    table = triples.read(options.table, Layout(columns, options.header, options.delimiter))
    check_within_bounds(options, options.table, table.values, table.place)
    ratings = matrix_of(table, options.repeated, options.table)
    pairs = None if options.pairs is None else _read_pairs(options, columns[:2], table)
    users = places_of(options.users, table.users, "--users")
    names = [*(table.names or ["user", "item"])[:2], "prediction"]
    if len(set(names)) < 3:
        raise UsageError(f"{options.table}: expected other names of columns than {', '.join(names)}")
    triples.write(io.BytesIO(), kind, names, [], [], ratings.data[:0])  # a rehearsal

    if options.resume is None:
        arguments = {"R": str(options.table), "S": str(options.table)}
        result, facts = fit_ratings(options, arguments, ratings, bounds=bounds_of(options))
    else:
        _check_run(options, ratings)
        result, facts = resume_run(options)

    if pairs is not None:
        found = predict_pairs(result, table, pairs)
    else:
        found = best_items(result, table, ratings, options.top or _TOP, users)
    write_file(options.output, lambda file: triples.write(file, kind, names, *found[:3]))
    save_result(result, options.result)
    facts = {**_facts(options, table, result), "predictions": len(found.values), **found.unknown, **facts}
    return finish(options, facts, _text(options, facts))


def _check_options(options: argparse.Namespace) -> None:
    check_run_arguments(options)
    if options.resume is not None and (name := first_given(options, ("bounds", "rank", "seed"))):
        raise UsageError(f"{name} cannot be given with --resume: {options.resume} says how the run fits")
    if options.pairs is not None and (name := first_given(options, ("top", "users"))):
        raise UsageError(f"{name}: not with --pairs, which says what to predict")
    paths = {f"--{name}": getattr(options, name) for name in ("output", "result", "checkpoint")}
    check_outputs(options, paths)


def _read_pairs(options: argparse.Namespace, columns: tuple[str, ...], table: Triples) -> Triples:
    """Read pairs; unless the user says so, a first line that names nobody known is a header."""
    users, items = ({str(label) for label in labels} for labels in (table.users, table.items))

    def is_header(cells: list[str]) -> bool:
        return cells[0] not in users and cells[1] not in items

    return triples.read(options.pairs, Layout(columns, options.header, options.delimiter, is_header))


def _check_run(options: argparse.Namespace, ratings: Any) -> None:
    """Raise a UsageError unless ``--resume`` names a run that fits these ratings."""
    from airnp.ratings.ratings import RATING_DTYPE
    from airnp.results.files import is_sparse_form, read_header
    from airnp.training.sparse import check_same_data

    path = options.resume
    try:
        header = read_header(path)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not is_sparse_form(header):
        raise UsageError(f"{path}: holds no run of airnp ratings; airnp complete --resume may go on with it")
    if header.get("run") is None:
        raise UsageError(f"{path}: holds a result, but no run to go on with; see --checkpoint")
    try:
        check_same_data(header, ratings, RATING_DTYPE)
    except ValueError as error:
        raise UsageError(f"{options.table}: expected the ratings that the run in {path} fits") from error


# --- the report ---


def _facts(options: argparse.Namespace, table: Triples, result: SparseFitResult) -> dict[str, Any]:
    assert result.bounds is not None
    file = options.checkpoint or options.resume
    return {
        "command": "ratings",
        "input": str(options.table),
        "output": str(options.output),
        "result": None if options.result is None else str(options.result),
        "checkpoint": None if file is None else str(file),
        "users": len(table.users),
        "items": len(table.items),
        "ratings": len(table),
        "header": table.names is not None,
        "bounds": [float(result.bounds.low), float(result.bounds.high)],
        "rank": int(result.row_factors.shape[1]),
    }


def _text(options: argparse.Namespace, facts: dict[str, Any]) -> str:
    header = "header" if facts["header"] else "no header"
    lines = [
        f"{options.table}: {facts['ratings']} ratings of {facts['items']} items by {facts['users']} users "
        f"({header})",
        describe_run(options, facts),
    ]
    if facts["unknown_users"] or facts["unknown_items"]:
        lines.append(
            f"{facts['unknown_users']} users and {facts['unknown_items']} items of {options.pairs} have no "
            "rating: what is known about the other side alone predicts them"
        )
    so_far = " the result so far to" if facts["stop_reason"] == "interrupted" else ""
    lines.append(f"wrote{so_far} {options.output}, {facts['predictions']} predictions")
    if options.result is not None:
        lines.append(f"wrote{so_far} {options.result}")
    return "\n".join(lines)


# --- ratings and predictions ---


class Predictions(NamedTuple):
    """Lines to write, (k,) each, and how many users and items have no rating."""

    users: list[Any]
    items: list[Any]
    values: npt.NDArray[Any]
    unknown: dict[str, int]


def matrix_of(table: Triples, repeated: Literal["error", "last", "mean"], source: Path) -> Any:
    """Return ratings as a sparse matrix (users, items), with one entry for each pair.

    Raises
    ------
    UsageError
        If a pair is there twice and ``repeated`` is ``"error"``.
    """
    from scipy.sparse import csr_array

    shape = len(table.users), len(table.items)
    keys = table.rows * shape[1] + table.columns
    known, first, pair = np.unique(keys, return_index=True, return_inverse=True)
    values = table.values[first]
    if len(known) < len(keys):
        again = np.setdiff1d(np.arange(len(keys)), first)
        if repeated == "error":
            raise UsageError(
                f"{source}: {len(again)} ratings are of pairs that have one already, such as "
                f"{table.place(int(again[0]))}; --repeated last or mean says what counts"
            )
        if repeated == "mean":
            values = np.bincount(pair, weights=table.values) / np.bincount(pair)
        else:
            values[pair] = table.values  # of several, the last is written last
    return csr_array((values, (table.rows[first], table.columns[first])), shape=shape)


def places_of(labels: Sequence[str] | None, known: list[Any], argument: str) -> Places:
    """Return the places of the labels that an argument names; of all known ones if it is None.

    Raises
    ------
    UsageError
        If there is no such label.
    """
    if labels is None:
        return np.arange(len(known), dtype=np.int64)
    labels = list(dict.fromkeys(labels))
    places = _look_up(labels, known)
    if (places < 0).any():
        unknown = [repr(label) for label, place in zip(labels, places, strict=True) if place < 0]
        raise UsageError(f"{argument}: there are no ratings by {', '.join(unknown[:5])}")
    return places


def _look_up(labels: Sequence[Any], known: list[Any]) -> Places:
    """Return the place of each label among the known ones, by its text; −1 for others."""
    places = {str(label): place for place, label in enumerate(known)}
    return np.array([places.get(str(label), -1) for label in labels], dtype=np.int64)


def predict_pairs(result: SparseFitResult, table: Triples, pairs: Triples) -> Predictions:
    """Return predictions for pairs. The offset b_i of a user, or c_j of an item, without any rating is 0."""
    users, items = _look_up(pairs.users, table.users), _look_up(pairs.items, table.items)
    rows, columns = users[pairs.rows], items[pairs.columns]
    both = (rows >= 0) & (columns >= 0)
    offsets = result.offsets
    assert offsets is not None
    values = np.full(len(rows), offsets.mean, dtype=result.row_factors.dtype)
    values += np.where(rows >= 0, offsets.rows[rows], 0) + np.where(columns >= 0, offsets.columns[columns], 0)
    if result.bounds is not None:
        values = result.bounds.put_on(values)
    values[both] = result.predict(rows[both], columns[both])
    labels = [pairs.users[place] for place in pairs.rows], [pairs.items[place] for place in pairs.columns]
    unknown = {"unknown_users": int((users < 0).sum()), "unknown_items": int((items < 0).sum())}
    return Predictions(*labels, values, unknown)


def best_items(
    result: SparseFitResult, table: Triples, ratings: Any, count: int, users: Places
) -> Predictions:
    """Return for each user the items that are predicted best among those that the user has not rated."""
    found_users: list[Any] = []
    found_items: list[Any] = []
    values = []
    items = ratings.shape[1]
    step = max(1, _CHUNK // items)
    for start in range(0, len(users), step):
        some = users[start : start + step]
        # Many predictions may be clipped to the upper bound, so they are ordered before that.
        scores = _rows_without_bounds(result, some)
        for user, line in zip(some, scores, strict=True):
            seen = ratings.indices[ratings.indptr[user] : ratings.indptr[user + 1]]
            line[seen] = -np.inf
            chosen = _largest(line, min(count, items - len(seen)))
            found_users += [table.users[user]] * len(chosen)
            found_items += [table.items[item] for item in chosen]
            values.append(line[chosen])
    together = np.concatenate(values)
    if result.bounds is not None:
        together = result.bounds.put_on(together)
    return Predictions(found_users, found_items, together, {"unknown_users": 0, "unknown_items": 0})


def _rows_without_bounds(result: SparseFitResult, rows: Places) -> npt.NDArray[Any]:
    """Return rows of the completed matrix before they are clipped, (k, n)."""
    offsets = result.offsets
    some = None if offsets is None else offsets._replace(rows=offsets.rows[rows])
    return replace(result, row_factors=result.row_factors[rows], offsets=some, bounds=None).X


def _largest(scores: npt.NDArray[Any], count: int) -> Places:
    """Return the places of the largest scores, in their order; of equal ones the first."""
    if count < len(scores):
        least = np.partition(scores, -count)[-count] if count else np.inf
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:count]


COMMAND = Command("predict ratings of users for items", _arguments, _run, EXAMPLES, DESCRIPTION)
