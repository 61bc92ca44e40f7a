"""``airnp ratings``: predict what users would give to items, from a table of what they gave to others."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airnp.commands.base import (
    INTERRUPTED,
    OK,
    Command,
    UsageError,
    add_talk_arguments,
    report,
    shows_progress,
    whole_number,
)
from airnp.commands.completed import save
from airnp.commands.fitting import timed
from airnp.commands.limits import add_bounds_argument, bounds_of, check_within
from airnp.commands.outputs import add_output_arguments, check_archive, check_output, write_whole
from airnp.commands.reading import add_delimiter_argument, add_header_argument

if TYPE_CHECKING:
    from airnp.sparse import SparseFitResult
    from airnp.triples import Triples

DESCRIPTION = """\
Predict ratings from a table with a line for each rating: user, item, rating. Further columns are ignored, a
header is told by itself, and users and items are called anything. Formats go by the name: .csv and .tsv (also
.gz), .parquet.

What is written has a header and a line for each prediction: the pairs of a file, or for every user the items
that are predicted best among those without a rating, best first. A user or an item that has no rating at all
is predicted from what is known about the other side alone.
"""

EXAMPLES = """\
  airnp ratings ratings.csv -o best.csv
  airnp ratings ratings.csv -o best.csv --top 3 --users ann bob
  airnp ratings ratings.csv -o predictions.csv --pairs pairs.csv --bounds 1 5
  airnp ratings log.parquet -o best.parquet --columns user_id film stars --repeated last
  airnp ratings ratings.tsv.gz -o best.csv --rank 32 --result model.npz --json
"""

_TOP = 10
_NAMES = ["user", "item"]


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
    add_header_argument(group)
    add_delimiter_argument(group)
    group = parser.add_argument_group("the fit")
    group.add_argument("--rank", type=whole_number(1), metavar="N", help="length of a factor (128)")
    group.add_argument("--max-iter", type=whole_number(1), metavar="N", help="iterations at most (500)")
    group.add_argument("--seed", type=whole_number(0), default=0, metavar="N", help="another start (0)")
    group.add_argument("--threads", type=whole_number(1), metavar="N", help="CPU threads (all processors)")
    add_talk_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    import airnp
    from airnp import triples
    from airnp.commands import predicting

    kind = triples.kind_of_triples(options.output)
    _check_options(options)
    given = triples.read(options.table, _layout(options))
    check_within(options, options.table, given.values, given.place)
    ratings = predicting.matrix_of(given, options.repeated, options.table)
    pairs = None if options.pairs is None else triples.read(options.pairs, _layout_of_pairs(options, given))
    users = predicting.places_of(options.users, given.users, "--users")
    names = [*((given.names or _NAMES)[:2]), "prediction"]
    if len(set(names)) < 3:
        raise UsageError(f"{options.table}: expected other names of columns than {', '.join(names)}")
    triples.write(io.BytesIO(), kind, names, [], [], ratings.data[:0])  # a rehearsal

    chosen = {name: getattr(options, name) for name in ("rank", "max_iter", "threads")}
    settings = {name: value for name, value in chosen.items() if value is not None}
    settings |= {"bounds": bounds_of(options), "seed": options.seed, "progress": shows_progress(options)}
    arguments = {"R": str(options.table), "Y": str(options.table)}
    result, facts = timed(None, lambda clock: airnp.fit_ratings(ratings, **settings), arguments)

    if pairs is not None:
        found = predicting.of_pairs(result, given, pairs)
    else:
        found = predicting.best(result, given, ratings, options.top or _TOP, users)
    write_whole(options.output, lambda file: triples.write(file, kind, names, *found[:3]))
    if options.result is not None:
        save(result, options.result)
    facts = {**_facts(options, given, result), "predictions": len(found.values), **found.unknown, **facts}
    report(options, facts, _text(options, facts))
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


def _check_options(options: argparse.Namespace) -> None:
    if options.pairs is not None:
        for name in ("top", "users"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name}: not with --pairs, which says what to predict")
    check_output(options.output, options.force)
    check_archive("result", options.result)
    if options.result is not None:
        check_output(options.result, options.force)


def _layout(options: argparse.Namespace) -> Any:
    from airnp.triples import Layout

    columns = ("1", "2", "3") if options.columns is None else tuple(options.columns)
    return Layout(columns, options.header, options.delimiter)


def _layout_of_pairs(options: argparse.Namespace, given: Triples) -> Any:
    """Return how to read pairs: without an option, a first line that names nobody known is a header."""
    from airnp.triples import Layout

    users, items = ({str(label) for label in labels} for labels in (given.users, given.items))
    columns = ("1", "2") if options.columns is None else tuple(options.columns[:2])

    def is_header(cells: list[str]) -> bool:
        return cells[0] not in users and cells[1] not in items

    return Layout(columns, options.header, options.delimiter, is_header)


def _facts(options: argparse.Namespace, given: Triples, result: SparseFitResult) -> dict[str, Any]:
    low, high = float(given.values.min()), float(given.values.max())
    return {
        "command": "ratings",
        "input": str(options.table),
        "output": str(options.output),
        "result": None if options.result is None else str(options.result),
        "users": len(given.users),
        "items": len(given.items),
        "ratings": len(given),
        "header": given.names is not None,
        "bounds": list(options.bounds or (low, high)),
        "rank": int(result.row_factors.shape[1]),
    }


def _text(options: argparse.Namespace, facts: dict[str, Any]) -> str:
    header = "header" if facts["header"] else "no header"
    lines = [
        f"{options.table}: {facts['ratings']} ratings of {facts['items']} items by {facts['users']} users "
        f"({header})",
        f"{facts['iterations']} iterations in {facts['seconds']:.1f} s: {facts['stop_reason']}",
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


COMMAND = Command("predict ratings of users for items", _arguments, _run, EXAMPLES, DESCRIPTION)
