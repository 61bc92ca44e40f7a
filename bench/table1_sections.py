"""What the pages of table 1 say about a summary, section by section."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench.table1_methods import RECORD_EVERY
from bench.table1_pages import Section, Text
from bench.table1_summary import AIR, NEVER_STOPPED

NOTHING = "–"


def number(value: float) -> str:
    """Return an NMAE with as many digits as its size asks for."""
    return f"{value:.4f}" if value >= 0.01 else f"{value:.5f}"


def sections(report: dict[str, Any]) -> list[Section]:
    """Return what there is to say about a summary."""
    found = [_errors(report)]
    for section in (_failures, _verdicts, _regret, _time, _ratios, _seconds, _stale):
        made = section(report)
        if made is not None:
            found.append(made)
    return found


def _titles(report: dict[str, Any]) -> dict[str, str]:
    """Return the methods that have a column."""
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
    """Return a number with as many decimals as another."""
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
    found = report["regret"]
    if not found["cells"]:
        return None
    goal = found["goal"]
    shares = {name: f"{_percent(found[name])} (goal: at most {_percent(goal[name])})" for name in goal}
    sentences = [
        'How far the NMAE that stop="auto" returns is above the lowest on the whole trajectory, looked at '
        f"every {RECORD_EVERY} iterations: its own, and that of a run of the same seed without a stop. Below "
        "zero, the answer is better than every iterate that was looked at.",
        f"Over {len(found['cells'])} runs: median {shares['median']}, worst {shares['worst']}.",
    ]
    if found["own_only"]:
        sentences.append(
            f"For {found['own_only']} of them there is no run without a stop: own trajectory only."
        )
    body = []
    for row, cells in _by_row(found["cells"]).items():
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
        [
            Text(line["row"]),
            *(Text(_ratio(_known(line, name, "ratio"))) for name in titles),
        ]
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
