"""The page of table 1: statistics of the cells, sections of text and tables, Markdown and HTML."""

from __future__ import annotations

import html
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.cells import BINARY, Experiment, Method, Record
from bench.paper_rows import Row
from bench.timing import markdown

AIR, NEVER_STOPPED = "air", "air_full"
RECORD_EVERY = 100
"""Iterations between two points of a trajectory."""

REGRET_GOAL = {"median": 0.01, "worst": 0.08}
NOTHING = "–"


# --- statistics ---


def summarize(
    experiment: Experiment, records: Iterable[Record], rows: Sequence[str], methods: Sequence[str], seeds: int
) -> dict[str, Any]:
    """Return all numbers of the page; this is the content of the JSON file."""
    cells = [record for record in records if record["row"] in rows and record["method"] in methods]
    cells.sort(key=lambda cell: (rows.index(cell["row"]), methods.index(cell["method"]), cell["seed"]))
    finished = _select(cells, status="done")
    runs_of_air = _select(finished, method=AIR)
    regrets = [
        regret(run, _select(finished, row=run["row"], seed=run["seed"], method=NEVER_STOPPED))
        for run in runs_of_air
    ]
    return {
        "seeds": seeds,
        "methods": {name: experiment.methods[name].title for name in methods},
        "rows": [
            _row_summary(experiment.rows[row], cells, experiment.methods, methods, seeds) for row in rows
        ],
        "verdicts": [_verdict(experiment.rows[row], cells, seeds) for row in rows] if AIR in methods else [],
        "regret": _regret_summary(regrets),
        "time_to_paper": [time_to(experiment.rows[run["row"]].goal, run) for run in runs_of_air],
        "failed": [
            {key: cell[key] for key in ("row", "method", "seed", "error")}
            for cell in _select(cells, status="failed")
        ],
        "stale": dict(Counter(cell["method"] for cell in cells if experiment.is_stale(cell))),
        "cells": cells,
    }


def _select(cells: Iterable[Record], **wanted: Any) -> list[Record]:
    return [cell for cell in cells if all(cell[key] == value for key, value in wanted.items())]


def _row_summary(
    row: Row, cells: list[Record], methods: Mapping[str, Method], names: Sequence[str], seeds: int
) -> dict[str, Any]:
    entries = {
        name: _entry(row, methods[name], _select(cells, row=row.name, method=name), seeds)
        for name in names
        if name != NEVER_STOPPED and methods[name].suits(row)
    }
    means = {name: entry["mean"] for name, entry in entries.items() if entry["n"]}
    return {
        "row": row.name,
        "goal": row.goal,
        "goal_of": row.best_printed,
        "best": min(means, key=means.__getitem__, default=None),
        "entries": entries,
        "binary": {
            measure: {
                name: statistics.fmean(values)
                for name in entries
                if (values := _binary(cells, measure, row=row.name, method=name))
            }
            for measure in BINARY
            if row.is_binary
        },
    }


def _binary(cells: list[Record], measure: str, **wanted: Any) -> list[float]:
    """Return what was measured of a binary row. Cells from before it was measured have none."""
    return [cell[measure] for cell in _select(cells, **wanted, status="done") if measure in cell]


def _entry(row: Row, method: Method, cells: list[Record], seeds: int) -> dict[str, Any]:
    finished = _select(cells, status="done")
    values = [cell["nmae"] for cell in finished]
    printed = row.printed.get(method.column) if method.column else None
    mean = statistics.fmean(values) if values else None
    return {
        "mean": mean,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "n": len(values),
        "wanted": len(method.seeds(row, seeds)),
        "failed": len(cells) - len(values),
        "printed": printed,
        "ratio": mean / printed if mean is not None and printed else None,
        "seconds": statistics.median(cell["seconds"] for cell in finished) if values else None,
    }


def _verdict(row: Row, cells: list[Record], seeds: int) -> dict[str, Any]:
    """Return whether the mean of AIR is at least as good as the paper's best, and by how much."""
    values = [cell["nmae"] for cell in _select(cells, row=row.name, method=AIR, status="done")]
    mean = statistics.fmean(values) if values else None
    return {
        "row": row.name,
        "goal": row.goal,
        "goal_of": row.best_printed,
        "mean": mean,
        "met": None if mean is None else mean <= row.goal,
        "below_percent": None if mean is None else 100 * (1 - mean / row.goal),
        "seeds_met": sum(value <= row.goal for value in values),
        "n": len(values),
        "wanted": seeds,
    }


def regret(cell: Record, never_stopped: Sequence[Record]) -> dict[str, Any]:
    """Return by which share the returned NMAE is above the lowest that could have been returned.

    Parameters
    ----------
    cell : Record
        A run of AIR that chose its own stop.
    never_stopped : sequence of Record
        Runs of the same row and seed without a stop, if there are any. Both trajectories count.
    """
    lowest = min(nmae for run in (cell, *never_stopped) for _, nmae in run["trajectory"])
    return {
        "row": cell["row"],
        "seed": cell["seed"],
        "returned": cell["nmae"],
        "lowest": lowest,
        "regret": (cell["nmae"] - lowest) / lowest,
        "against": "own and never stopped" if never_stopped else "own",
    }


def _regret_summary(regrets: list[dict[str, Any]]) -> dict[str, Any]:
    values = [item["regret"] for item in regrets]
    return {
        "goal": REGRET_GOAL,
        "median": statistics.median(values) if values else None,
        "worst": max(values, default=None),
        "own_only": sum(item["against"] == "own" for item in regrets),
        "cells": regrets,
    }


def time_to(goal: float, cell: Record) -> dict[str, Any]:
    """Return the iteration at which a run first reached a number, and seconds in proportion to it.

    If only the result reached it, and no record did, this is the last iteration.
    """
    reached = [iteration for iteration, nmae in cell["trajectory"] if nmae <= goal]
    if not reached and cell["nmae"] <= goal:
        reached = [cell["n_iter"]]
    iteration = min(reached, default=None)
    return {
        "row": cell["row"],
        "seed": cell["seed"],
        "goal": goal,
        "iteration": iteration,
        "seconds": None if iteration is None else cell["seconds"] * iteration / cell["n_iter"],
        "n_iter": cell["n_iter"],
        "best_iter": cell["best_iter"],
        "stop_reason": cell["stop_reason"],
        "total_seconds": cell["seconds"],
    }


# --- sections ---


@dataclass(frozen=True)
class Text:
    """The content of one field of a table."""

    main: str
    note: str = ""
    is_best: bool = False
    is_met: bool | None = None
    """Whether a goal is met; None where there is none."""

    def as_markdown(self) -> str:
        main = f"**{self.main}**" if self.is_best else self.main
        sign = {True: "✓", False: "✗", None: ""}[self.is_met]
        return " ".join(part for part in (main, self.note, sign) if part).replace("|", "\\|")

    def as_html(self) -> str:
        main, note = html.escape(self.main), html.escape(self.note)
        style = {True: ' class="met"', False: ' class="missed"', None: ""}[self.is_met]
        main = f"<b>{main}</b>" if self.is_best else main
        return f"<td{style}>{main}" + (f" <small>{note}</small>" if note else "") + "</td>"


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and perhaps a table."""

    title: str
    sentences: Sequence[str]
    header: Sequence[str] = ()
    body: Sequence[Sequence[Text]] = field(default_factory=list)


def number(value: float) -> str:
    """Return an NMAE with at least three significant digits."""
    return f"{value:.4f}" if value >= 0.01 else f"{value:.5f}"


def sections(report: dict[str, Any]) -> list[Section]:
    """Return the sections of the page that have content."""
    every = (_errors, _binary_rows, _failures, _verdicts, _regret, _time, _ratios, _seconds, _stale)
    return [section for make in every if (section := make(report)) is not None]


def _titles(report: dict[str, Any]) -> dict[str, str]:
    """Return the titles of the methods that have a column."""
    return {name: title for name, title in report["methods"].items() if name != NEVER_STOPPED}


def _errors(report: dict[str, Any]) -> Section:
    titles = _titles(report)
    body = []
    for line in report["rows"]:
        goal = Text(number(line["goal"]), titles.get(line["goal_of"], line["goal_of"]))
        fields = [_error(line, name, report["seeds"]) for name in titles]
        body.append([Text(line["row"]), *fields, goal])
    sentences = [
        f"Mean ± standard deviation over seeds ({report['seeds']} unless n says otherwise), and beside it "
        "the number that the paper prints. Lower is better; the lowest mean of a row is bold. A seed draws "
        "the mask, where that is random, and moves the method; n = 1 where neither depends on it.",
        "AIR is airnp.fit(Y, mask, seed=seed), the same for all rows. Its column is marked by whether it is "
        "at least as good as the paper's best.",
    ]
    return Section("NMAE on missing entries", sentences, ["", *titles.values(), "paper's best"], body)


def _binary_rows(report: dict[str, Any]) -> Section | None:
    titles = _titles(report)
    lines = [
        (line["row"], measure, values)
        for line in report["rows"]
        for measure, values in line["binary"].items()
        if values
    ]
    if not lines:
        return None
    body = []
    for row, measure, values in lines:
        best = (max if measure == "aupr" else min)(values, key=values.__getitem__)
        fields = [
            Text(number(values[name]), is_best=name == best) if name in values else Text(NOTHING)
            for name in titles
        ]
        body.append([Text(row), Text(measure.upper()), *fields])
    sentences = [
        "Entries are 0 or 1, most of them 0, and NMAE flatters an answer of 0 everywhere. RMSE (lower is "
        "better) asks whether values are right on average, AUPR (average precision, higher is better) "
        "whether ones come before zeros when entries are sorted by what was predicted. Means over seeds."
    ]
    return Section("RMSE and AUPR of binary tables", sentences, ["", "", *titles.values()], body)


def _error(line: dict[str, Any], name: str, seeds: int) -> Text:
    entry = line["entries"].get(name)
    if entry is None:
        return Text(NOTHING)
    notes = [] if entry["printed"] is None else [f"(paper {number(entry['printed'])})"]
    if entry["failed"]:
        notes.append(f"{entry['failed']} failed")
    if not entry["n"]:
        return Text("failed" if entry["failed"] else "not run", ", ".join(notes))
    if entry["n"] != seeds:
        wanted = "" if entry["n"] == entry["wanted"] else f" of {entry['wanted']}"
        notes.append(f"n = {entry['n']}{wanted}")
    digits = number(entry["mean"])
    main = digits if entry["spread"] is None else f"{digits} ± {_like(digits, entry['spread'])}"
    is_met = entry["mean"] <= line["goal"] if name == AIR else None
    return Text(main, ", ".join(notes), is_best=name == line["best"], is_met=is_met)


def _like(digits: str, value: float) -> str:
    """Return a number with as many decimals as ``digits`` has."""
    return f"{value:.{len(digits.partition('.')[2])}f}"


def _failures(report: dict[str, Any]) -> Section | None:
    if not report["failed"]:
        return None
    body = [
        [Text(cell["row"]), Text(cell["method"]), Text(str(cell["seed"])), Text(_one_line(cell["error"]))]
        for cell in report["failed"]
    ]
    return Section(
        "Failed", ["The next start tries these cells again."], ["row", "method", "seed", "error"], body
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def _verdicts(report: dict[str, Any]) -> Section | None:
    known = [verdict for verdict in report["verdicts"] if verdict["mean"] is not None]
    if not known:
        return None
    titles = report["methods"]
    met = sum(verdict["met"] for verdict in known)
    sentence = (
        f"AIR with its defaults is at least as good as the paper's best number on {met} of {len(known)} rows"
    )
    left = len(report["verdicts"]) - len(known)
    sentence += f"; {left} more have not been run." if left else "."
    body = []
    for verdict in known:
        difference = verdict["below_percent"]
        body.append(
            [
                Text(verdict["row"]),
                Text(number(verdict["mean"]), is_met=verdict["met"]),
                Text(number(verdict["goal"]), titles.get(verdict["goal_of"], verdict["goal_of"])),
                Text(f"{abs(difference):.1f} % {'below' if difference >= 0 else 'above'}"),
                Text(
                    f"{verdict['seeds_met']} of {verdict['n']}",
                    "" if verdict["n"] == verdict["wanted"] else f"({verdict['wanted']} wanted)",
                ),
            ]
        )
    header = ["", "AIR, mean", "paper's best", "difference", "seeds that meet it"]
    return Section("Which rows AIR meets", [sentence], header, body)


def _regret(report: dict[str, Any]) -> Section | None:
    summary = report["regret"]
    if not summary["cells"]:
        return None
    goal = summary["goal"]
    shares = {name: f"{_percent(summary[name])} (goal: at most {_percent(goal[name])})" for name in goal}
    sentences = [
        'How far the NMAE that stop="auto" returns is above the lowest on the whole trajectory, looked at '
        f"every {RECORD_EVERY} iterations: its own, and that of a run of the same seed without a stop. Below "
        "zero, the answer is better than every iterate that was looked at.",
        f"Over {len(summary['cells'])} runs: median {shares['median']}, worst {shares['worst']}.",
    ]
    if summary["own_only"]:
        sentences.append(
            f"For {summary['own_only']} of them there is no run without a stop: own trajectory only."
        )
    body = []
    for row, cells in _by_row(summary["cells"]).items():
        values = [cell["regret"] for cell in cells]
        own = sum(cell["against"] == "own" for cell in cells)
        body.append(
            [
                Text(row),
                Text(_percent(statistics.median(values)), is_met=statistics.median(values) <= goal["median"]),
                Text(_percent(max(values)), is_met=max(values) <= goal["worst"]),
                Text(str(len(cells)), f"({own} by their own trajectory only)" if own else ""),
            ]
        )
    return Section("Regret of the stopping rule", sentences, ["", "median", "worst", "runs"], body)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %".replace("-", "−")


def _by_row(items: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        groups.setdefault(item["row"], []).append(item)
    return groups


def _time(report: dict[str, Any]) -> Section | None:
    if not report["time_to_paper"]:
        return None
    sentences = [
        "When a run of AIR first has the paper's best NMAE: medians over the seeds that get there. Seconds "
        "are those of one thread beside other cells, taken in proportion to the iterations."
    ]
    body = []
    for row, runs in _by_row(report["time_to_paper"]).items():
        there = [run for run in runs if run["iteration"] is not None]
        body.append(
            [
                Text(row),
                Text(number(runs[0]["goal"])),
                Text(f"{len(there)} of {len(runs)}"),
                Text(_median(there, "iteration")),
                Text(_median(there, "seconds")),
                Text(_median(runs, "best_iter")),
                Text(_median(runs, "n_iter")),
                Text(_median(runs, "total_seconds")),
            ]
        )
    header = ["", "NMAE", "seeds", "iterations", "seconds", "iterate returned", "iterations in all"]
    return Section("Time to the paper's number", sentences, [*header, "seconds in all"], body)


def _median(items: Sequence[dict[str, Any]], key: str) -> str:
    return f"{statistics.median(item[key] for item in items):.0f}" if items else NOTHING


def _ratios(report: dict[str, Any]) -> Section | None:
    titles = {
        name: title
        for name, title in _titles(report).items()
        if any(_known(line, name, "ratio") for line in report["rows"])
    }
    if not titles:
        return None
    body = [
        [Text(line["row"]), *(Text(_ratio(_known(line, name, "ratio"))) for name in titles)]
        for line in report["rows"]
    ]
    sentence = (
        "Our mean over the paper's number; 1 is the same. The settings behind the paper's other methods are "
        "not known to us. PNMC was written from the abstract of its paper."
    )
    return Section("Beside the printed numbers", [sentence], ["", *titles.values()], body)


def _ratio(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _known(line: dict[str, Any], name: str, key: str) -> Any:
    entry = line["entries"].get(name)
    return None if entry is None else entry[key]


def _seconds(report: dict[str, Any]) -> Section | None:
    titles = _titles(report)
    body = []
    for line in report["rows"]:
        seconds = [_known(line, name, "seconds") for name in titles]
        body.append([Text(line["row"]), *(Text(NOTHING if s is None else f"{s:.1f}") for s in seconds)])
    sentence = "Median over seeds, one thread, with other cells beside it."
    return Section("Seconds", [sentence], ["", *titles.values()], body)


def _stale(report: dict[str, Any]) -> Section | None:
    if not report["stale"]:
        return None
    counts = ", ".join(f"{method} {count}" for method, count in report["stale"].items())
    sentence = (
        f"airnp has changed since these cells were computed: {counts}. --redo stale computes them again."
    )
    return Section("Cells of other code", [sentence])


# --- Markdown and HTML ---


def as_markdown(title: str, sections: Sequence[Section]) -> str:
    parts = [f"# {title}"]
    for section in sections:
        parts += [f"## {section.title}", *section.sentences]
        if section.body:
            body = [[text.as_markdown() for text in line] for line in section.body]
            parts.append(markdown(list(section.header), body))
    return "\n\n".join(parts) + "\n"


def as_html(title: str, sections: Sequence[Section]) -> str:
    parts = []
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [f"<p>{html.escape(sentence)}</p>" for sentence in section.sentences]
        if section.body:
            head = "".join(f"<th>{html.escape(name)}</th>" for name in section.header)
            lines = "\n".join(
                "<tr>" + "".join(text.as_html() for text in line) + "</tr>" for line in section.body
            )
            parts.append(f"<div><table>\n<tr>{head}</tr>\n{lines}\n</table></div>")
    return _PAGE.format(title=html.escape(title), body="\n".join(parts))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }}
p {{ max-width: 60rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .35rem .7rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }}
th {{ background: #f4f4f4; }}
th:first-child, td:first-child {{ position: sticky; left: 0; background: #f4f4f4; }}
td small {{ display: block; color: #666; }}
td.met {{ background: #d9f2dd; }}
td.missed {{ background: #f9d9d6; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
