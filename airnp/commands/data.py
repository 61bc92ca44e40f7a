"""``airnp data``: list the data sets of the paper, fetch them, print where they are kept."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from airnp.commands.base import FAILED, OK, Command
from airnp.datasets import download
from airnp.datasets.catalogue import ENTRIES, FILES, Entry

EXAMPLES = """\
  airnp data list
  airnp data fetch barbara baboon
  AIRNP_DATA=~/pictures airnp data list
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    actions.add_parser("list", help="show name, shape, content and place of every data set")
    fetch = actions.add_parser("fetch", help="download what is not here yet and check it")
    fetch.add_argument("names", nargs="*", type=_name, metavar="name", help="data sets (all of them)")
    actions.add_parser("path", help="print the folder in which downloads are kept")


def _run(options: argparse.Namespace) -> int:
    return _ACTIONS[options.action](options)


def _list(options: argparse.Namespace) -> int:
    rows = [("name", "shape", "content", "where")]
    rows += [
        (entry.name, "×".join(map(str, entry.shape)), entry.what, _where(entry)) for entry in ENTRIES.values()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    return OK


def _where(entry: Entry) -> str:
    places = {download.where(FILES[name]) for name in entry.files}
    if len(places) == 1:
        return places.pop()
    return next((place for place in ("wrong file", "not here") if place in places), "AIRNP_DATA and cache")


def _fetch(options: argparse.Namespace) -> int:
    wanted = [ENTRIES[name] for name in dict.fromkeys(options.names or ENTRIES)]
    total = sum(len(entry.files) for entry in wanted)
    done, failed = 0, 0
    advice: dict[str, None] = {}  # an ordered set
    for entry in wanted:
        for name in entry.files:
            done += 1
            try:
                path = download.locate(FILES[name], progress=sys.stderr.isatty())
            except download.DataFileError as error:
                failed += 1
                advice[error.advice] = None
                print(f"airnp data fetch: {error.problem}", file=sys.stderr)
            else:
                print(f"[{done}/{total}] {entry.name}: {path}")
    if failed:
        summary = f"airnp data fetch: {failed} of {total} files could not be had"
        print(summary, *advice, sep="\n", file=sys.stderr)
    return FAILED if failed else OK


def _path(options: argparse.Namespace) -> int:
    print(download.cache_folder())
    given = download.given_folder()
    if given is not None:
        print(f"AIRNP_DATA names {given}, where airnp looks first", file=sys.stderr)
    return OK


def _name(text: str) -> str:
    if text not in ENTRIES:
        raise argparse.ArgumentTypeError(f"there is no {text!r}; there are {', '.join(ENTRIES)}")
    return text


_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"list": _list, "fetch": _fetch, "path": _path}

COMMAND = Command(_arguments, _run, EXAMPLES)
