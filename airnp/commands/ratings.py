"""``airnp ratings``: predict what users would give to items, from a table of what they gave to others."""

from __future__ import annotations

import argparse
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

import airnp
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
    fit_implicit,
    fit_ratings,
    load_result,
    resume_run,
)
from airnp.commands.tables import add_text_arguments, check_within_bounds
from airnp.data.interactions import Ids, column_roles, has_order
from airnp.ratings import rated_model
from airnp.tables import triples
from airnp.tables.triples import Layout, Triples

if TYPE_CHECKING:
    from airnp.results.ratings_model import ImplicitModel, RatingsModel

DESCRIPTION = """\
Predict ratings from a table with a line for each rating: user, item, rating, in this order or under usual
names, such as userId. Further columns are ignored, a header is told by itself, and users and items are called
anything. Formats go by the name: .csv and .tsv (also .gz), .parquet; .data (tabs) and .dat (::) of MovieLens.

With --implicit the file has no ratings, only a line for each use: user, item. What is written are then the
items that each user will probably use next.

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
  airnp ratings --model model.npz -o best.csv --top 10 --users ann
  airnp ratings --model model.npz -o predictions.csv --pairs pairs.csv
  airnp ratings large.parquet -o best.csv --checkpoint run.npz
  airnp ratings large.parquet -o best.csv --resume run.npz
  airnp ratings plays.csv --implicit -o next.csv --top 20 --result model.npz
"""

_TOP = 10
"""Items to predict for every user, unless the user says how many."""

_OF_A_FIT = ("implicit", "bounds", "result", "rank", "max_iter", "seed", "threads", "checkpoint", "resume")
"""Options that a saved model leaves nothing to do for."""

_ERRORS = ("rmse", "mae")
"""Measures of predictions; the others are of as many items as are recommended."""

_OF_RATINGS = ("bounds", "repeated", "checkpoint", "resume")
"""Options that mean nothing without ratings."""

Places = npt.NDArray[np.int64]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", type=Path, nargs="?", help="file of ratings to read")
    parser.add_argument(
        "--model", type=Path, metavar="FILE.npz", help="predict by this model, which --result saved; no fit"
    )
    parser.add_argument(
        "--implicit", action="store_true", help="the file says who used what, without ratings: user, item"
    )
    add_output_arguments(parser, ".csv .tsv .parquet, also .csv.gz .tsv.gz")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="pairs to predict: user, item")
    parser.add_argument(
        "--top",
        type=whole_number(1),
        metavar="N",
        help=f"without --pairs: how many items to predict for every user ({_TOP})",
    )
    parser.add_argument("--users", nargs="+", metavar="USER", help="only for these users (all)")
    parser.add_argument(
        "--test", type=Path, metavar="FILE", help="report the errors on this file of other ratings as well"
    )
    add_bounds_argument(parser, "clip predictions (to the lowest and the highest rating)")
    parser.add_argument(
        "--result", type=Path, metavar="FILE.npz", help="save the model as well, for --model and airnp.load"
    )
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="names of the columns with user, item and rating (user and item with --implicit), or their "
        "numbers from 1 (usual names, such as userId; else 1 2 3)",
    )
    group.add_argument(
        "--repeated",
        choices=("error", "last", "mean"),
        help="what counts if a user rated an item more than once (error)",
    )
    add_text_arguments(group)
    group = parser.add_argument_group("the fit")
    group.add_argument(
        "--rank", type=whole_number(1), metavar="N", help="length of a factor (128, or 96 with --implicit)"
    )
    group.add_argument(
        "--max-iter",
        type=whole_number(1),
        metavar="N",
        help="iterations at most (400, or 10 rounds with --implicit)",
    )
    group.add_argument("--seed", type=whole_number(0), metavar="N", help="another start (0)")
    group.add_argument("--threads", type=whole_number(1), metavar="N", help="CPU threads (all processors)")
    add_run_arguments(parser)
    add_message_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    kind = triples.kind_of_triples(options.output)
    _check_options(options)
    if options.model is not None:
        return _serve(options, kind)
    if options.implicit:
        return _recommend(options, kind)
    table = triples.read(options.table, _layout(options))
    check_within_bounds(options, options.table, table.values, table.place)
    ratings, times = matrix_of(table, options.repeated or "error", options.table)
    pairs = None if options.pairs is None else _read_pairs(options, table.users, table.items)
    test = _read_test(options)
    users = places_of(options.users, table.users, "--users")
    names = _header(table.names or ["user", "item"], options.table)
    triples.write(io.BytesIO(), kind, names, [], [], ratings.data[:0])  # a rehearsal

    if options.resume is None:
        arguments = {"R": str(options.table), "S": str(options.table)}
        given = _labelled(table, ratings, times)
        model, facts = fit_ratings(options, arguments, given, bounds=bounds_of(options))
    else:
        _check_run(options, ratings)
        result, facts = resume_run(options)
        model = rated_model(result, ratings, Ids(table.users), Ids(table.items))

    found = best_items(model, options.top or _TOP, users) if pairs is None else predict_pairs(model, pairs)
    write_file(options.output, lambda file: triples.write(file, kind, names, *found[:3]))
    save_result(model, options.result)
    facts = {**_facts(options, table, model), "predictions": len(found.values), **found.unknown, **facts}
    facts |= _measured(options, model, test)
    return finish(options, facts, _text(options, facts))


def _recommend(options: argparse.Namespace, kind: str) -> int:
    """Fit who used what, and write what each user will probably use next."""
    table = triples.read(options.table, _layout(options))
    pairs = None if options.pairs is None else _read_pairs(options, table.users, table.items)
    test = _read_test(options)
    users = places_of(options.users, table.users, "--users")
    names = _header(table.names or ["user", "item"], options.table)
    triples.write(io.BytesIO(), kind, names, [], [], table.values[:0])  # a rehearsal
    labels = [table.users[row] for row in table.rows], [table.items[column] for column in table.columns]
    arguments = {"R": str(options.table)}
    model, facts = fit_implicit(
        options, arguments, (*labels, *([] if table.times is None else [table.times]))
    )
    found = best_items(model, options.top or _TOP, users) if pairs is None else predict_pairs(model, pairs)
    write_file(options.output, lambda file: triples.write(file, kind, names, *found[:3]))
    save_result(model, options.result)
    facts = {
        "command": "ratings",
        "input": str(options.table),
        "output": str(options.output),
        "result": None if options.result is None else str(options.result),
        "users": len(table.users),
        "items": len(table.items),
        "pairs": len(model.seen.indices),
        "header": table.names is not None,
        "held_out": _held_out(table),
        "rank": int(model.row_factors.shape[1]),
        "weight": model.weight,
        "decay": model.decay,
        "predictions": len(found.values),
        **found.unknown,
        **facts,
        **_measured(options, model, test),
    }
    lines = [
        f"{options.table}: {facts['pairs']} pairs of {facts['items']} items and {facts['users']} users",
        f"{describe_run(options, facts)}; settings chosen by {facts['held_out']} pairs",
        *_unknown(options, facts),
        *_measures(facts),
        f"wrote {options.output}, {facts['predictions']} predictions",
    ]
    if options.result is not None:
        lines.append(f"wrote {options.result}")
    return finish(options, facts, "\n".join(lines))


def _layout(options: argparse.Namespace) -> Layout:
    """Return how to read ratings, or pairs with ``--implicit``, and others to test on."""
    count = 2 if options.implicit else 3
    columns = tuple("123"[:count]) if options.columns is None else tuple(options.columns)
    if len(columns) != count:
        wanted = "user and item" if options.implicit else "user, item and rating"
        raise UsageError(f"--columns: expected those with {wanted}, got {', '.join(columns)}")
    by_name = options.columns is None
    if not options.implicit:
        return Layout(columns, options.header, options.delimiter, by_name=by_name)
    return Layout(columns, options.header, options.delimiter, _are_usual_names, by_name)


def _are_usual_names(cells: list[str]) -> bool:
    """Whether all cells are usual names of columns; "user 1" may be a user."""
    return len(column_roles(cells)) == len(cells) and not any(char.isdigit() for char in "".join(cells))


def _labelled(table: Triples, ratings: Any, times: npt.NDArray[Any] | None) -> Any:
    """Return ratings with their labels, as :func:`airnp.fit_ratings` takes them."""
    entries = ratings.tocoo()
    users = [table.users[row] for row in entries.row]
    items = [table.items[column] for column in entries.col]
    return (users, items, entries.data, *([] if times is None else [times]))


def _held_out(table: Triples) -> str:
    return "the latest" if has_order(table.times) else "random"


def _serve(options: argparse.Namespace, kind: str) -> int:
    """Predict by a saved model, without a fit."""
    model = load_result(options.model)
    if not isinstance(model, airnp.RatingsModel | airnp.ImplicitModel):
        raise UsageError(f"{options.model}: holds no model of ratings; airnp ratings --result saves one")
    options.implicit = isinstance(model, airnp.ImplicitModel)
    users = places_of(options.users, model.users.labels, "--users")
    if options.pairs is None:
        names, found = ["user", "item", "prediction"], best_items(model, options.top or _TOP, users)
    else:
        pairs = _read_pairs(options, model.users.labels, model.items.labels)
        names, found = _header(pairs.names or ["user", "item"], options.pairs), predict_pairs(model, pairs)
    write_file(options.output, lambda file: triples.write(file, kind, names, *found[:3]))
    facts = {
        "command": "ratings",
        "model": str(options.model),
        "output": str(options.output),
        "users": len(model.users),
        "items": len(model.items),
        "predictions": len(found.values),
        **found.unknown,
        "stop_reason": "served",
        **_measured(options, model, _read_test(options)),
    }
    lines = [f"{options.model}: {facts['items']} items and {facts['users']} users", *_unknown(options, facts)]
    lines += _measures(facts)
    lines.append(f"wrote {options.output}, {facts['predictions']} predictions")
    return finish(options, facts, "\n".join(lines))


def _read_test(options: argparse.Namespace) -> Triples | None:
    """Read the ratings to test on, as the others are read."""
    if options.test is None:
        return None
    return triples.read(options.test, _layout(options))


def _measured(
    options: argparse.Namespace, model: RatingsModel | ImplicitModel, test: Triples | None
) -> dict[str, Any]:
    """Return the errors of a model on other ratings, if there are any."""
    if test is None:
        return {}
    k = options.top or _TOP
    # Ids of a model may be numbers where the file has text.
    sides = [(test.users, model.users, test.rows), (test.items, model.items, test.columns)]
    ids = []
    for labels, known, lines in sides:
        places = _look_up(labels, known.labels)
        named = [label if place < 0 else known[place] for label, place in zip(labels, places, strict=True)]
        ids.append([named[line] for line in lines])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.UnknownIdWarning)
        if isinstance(model, airnp.ImplicitModel):
            found = model.evaluate(ids[0], ids[1], k=k)
            return {"test": {"pairs": len(test), "k": k, **found}}
        found = model.evaluate(ids[0], ids[1], test.values, k=k)
        return {"test": {"ratings": len(test), "k": k, **found}}


def _measures(facts: dict[str, Any]) -> list[str]:
    """Return a line about the errors on other ratings, if they were measured."""
    if "test" not in facts:
        return []
    (kind, count), (_, k), *found = facts["test"].items()
    shown = [f"{name if name in _ERRORS else f'{name}@{k}'} {value:.4f}" for name, value in found]
    return [f"on {count} other {kind}: {', '.join(shown)}"]


def _header(names: list[str], path: Path) -> list[str]:
    """Return the names of the columns to write; raise a UsageError if two are the same."""
    names = [*names[:2], "prediction"]
    if len(set(names)) < 3:
        raise UsageError(f"{path}: expected other names of columns than {', '.join(names)}")
    return names


def _unknown(options: argparse.Namespace, facts: dict[str, Any]) -> list[str]:
    """Return a line about users and items without ratings, if there are any."""
    if not (facts["unknown_users"] or facts["unknown_items"]):
        return []
    return [
        f"{facts['unknown_users']} users and {facts['unknown_items']} items of {options.pairs} have no "
        "rating: what is known about the other side alone predicts them"
    ]


def _check_options(options: argparse.Namespace) -> None:
    check_run_arguments(options)
    if (options.table is None) == (options.model is None):
        raise UsageError("expected a file of ratings to fit, or --model with a saved model to predict by")
    if options.model is not None and (name := first_given(options, _OF_A_FIT)):
        raise UsageError(f"{name}: not with --model, which is fitted already")
    if options.implicit and (name := first_given(options, _OF_RATINGS)):
        raise UsageError(f"{name}: not with --implicit, which has no ratings")
    if options.resume is not None and (name := first_given(options, ("bounds", "rank", "seed"))):
        raise UsageError(f"{name} cannot be given with --resume: {options.resume} says how the run fits")
    if options.pairs is not None and (name := first_given(options, ("top", "users"))):
        raise UsageError(f"{name}: not with --pairs, which says what to predict")
    paths = {f"--{name}": getattr(options, name) for name in ("output", "result", "checkpoint")}
    check_outputs(options, paths)


def _read_pairs(options: argparse.Namespace, known_users: list[Any], known_items: list[Any]) -> Triples:
    """Read pairs; unless the user says so, a first line that names nobody known is a header."""
    users, items = ({str(label) for label in labels} for labels in (known_users, known_items))
    columns = ("1", "2") if options.columns is None else tuple(options.columns[:2])

    def is_header(cells: list[str]) -> bool:
        return cells[0] not in users and cells[1] not in items

    how = Layout(columns, options.header, options.delimiter, is_header, by_name=options.columns is None)
    return triples.read(options.pairs, how)


def _check_run(options: argparse.Namespace, ratings: Any) -> None:
    """Raise a UsageError unless ``--resume`` names a run that fits these ratings."""
    from airnp.ratings import rating_dtype
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
        check_same_data(header, ratings, rating_dtype(ratings.data))
    except ValueError as error:
        raise UsageError(f"{options.table}: expected the ratings that the run in {path} fits") from error


# --- the report ---


def _facts(options: argparse.Namespace, table: Triples, result: RatingsModel) -> dict[str, Any]:
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
        "held_out": _held_out(table),
        "bounds": [float(result.bounds.low), float(result.bounds.high)],
        "rank": int(result.row_factors.shape[1]),
    }


def _text(options: argparse.Namespace, facts: dict[str, Any]) -> str:
    header = "header" if facts["header"] else "no header"
    lines = [
        f"{options.table}: {facts['ratings']} ratings of {facts['items']} items by {facts['users']} users "
        f"({header})",
        f"{describe_run(options, facts)}; settings chosen by {facts['held_out']} ratings",
    ]
    lines += _unknown(options, facts) + _measures(facts)
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


def matrix_of(
    table: Triples, repeated: Literal["error", "last", "mean"], source: Path
) -> tuple[Any, npt.NDArray[Any] | None]:
    """Return ratings as a sparse matrix (users, items), with one entry for each pair, and their times.

    Raises
    ------
    UsageError
        If a pair is there twice and ``repeated`` is ``"error"``.
    """
    from scipy.sparse import csr_array

    shape = len(table.users), len(table.items)
    keys = table.rows * shape[1] + table.columns
    known, first, pair = np.unique(keys, return_index=True, return_inverse=True)
    values, times = table.values[first], None if table.times is None else table.times[first]
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
        if times is not None and table.times is not None:
            np.maximum.at(times, pair, table.times)
    return csr_array((values, (table.rows[first], table.columns[first])), shape=shape), times


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


def predict_pairs(model: RatingsModel | ImplicitModel, pairs: Triples) -> Predictions:
    """Return predictions for pairs. The offset b_i of a user, or c_j of an item, without any rating is 0."""
    users, items = _look_up(pairs.users, model.users.labels), _look_up(pairs.items, model.items.labels)
    known = [None if place < 0 else model.users[place] for place in users]
    films = [None if place < 0 else model.items[place] for place in items]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.UnknownIdWarning)  # the report says so
        values = model.predict([known[row] for row in pairs.rows], [films[place] for place in pairs.columns])
    labels = [pairs.users[place] for place in pairs.rows], [pairs.items[place] for place in pairs.columns]
    unknown = {"unknown_users": int((users < 0).sum()), "unknown_items": int((items < 0).sum())}
    return Predictions(*labels, values, unknown)


def best_items(model: RatingsModel | ImplicitModel, count: int, users: Places) -> Predictions:
    """Return for each user the items that are predicted best among those that the user has not rated."""
    top = model.recommend_all(count, users=[model.users[place] for place in users])
    return Predictions(*top, {"unknown_users": 0, "unknown_items": 0})


COMMAND = Command(_arguments, _run, EXAMPLES, DESCRIPTION)
