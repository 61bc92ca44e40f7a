"""The page of results: what the goals ask for, and all errors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bench.measurements import Case
from bench.pictures.measure import RATIOS
from bench.pictures.methods import FAST, METHODS, OURS, Pictures
from bench.pictures.problems import GOALS
from bench.pictures.summary import Line, geometric_mean
from bench.scale.page import slope
from bench.timing import markdown

RATIO_GOALS = {"random": 0.75, "text": 0.75, "scratches": 0.75, "patches": 0.92}
"""The largest geometric mean of our error over that of the best other method, by kind of mask."""

LEAST_SHARE, WORST_RATIO, WORST_FAST = 0.9, 1.03, 1.1
RATIO_LIMITS = {("camera 240 30%", OURS): 30, ("astronaut own text", OURS): 10} | {
    (row, FAST): 6 for row in RATIOS
}
"""The longest time, as a multiple of biharmonic's on the same input."""

MOST_MEGABYTES, LONGEST_COMPILE = 2048, 15
MEAN_COVERAGE, CELL_COVERAGE = (0.87, 0.93), (0.80, 0.97)
NOTHING = "–"

CLAIMS = "report"
"""The half of the pictures that goals are judged on."""


def page(experiment: Pictures, summary: Mapping[str, Any]) -> str:
    """Return the results in Markdown."""
    titles = {name: experiment.methods[name].title for name in summary["methods"]}
    parts = ["# Pictures, measured", INTRODUCTION, _paper(summary["paper"], titles)]
    parts += [_goals(summary["groups"]), _ratios(summary["times"]["ratios"])]
    parts += [_growth(summary["times"]["growth"]), _compile(summary["times"]["compile"])]
    parts += [*(_masks(group) for group in summary["groups"].values())]
    parts += [_coverage(group) for group in summary["groups"].values()]
    for group in summary["groups"].values():
        parts += [_quality(group, titles), _errors(group, titles)]
    parts += [_failures(summary["failed"]), _stale(summary["stale"])]
    return "\n\n".join(part for part in parts if part) + "\n"


INTRODUCTION = """`python -m bench.pictures` computes what is on this page. NMAE is the mean absolute error on
missing pixels over the range of the picture. “Best other” is the lowest error of all methods that are not
airnp's; slow ones, which ran on some of the problems only, are compared apart. Settings of airnp were chosen
on the tuning half of scikit-image's pictures; the report half influenced nothing, and goals are judged on it
alone (✓, ✗)."""


def _mark(is_met: bool) -> str:
    return "✓" if is_met else "✗"


def number(value: float | None) -> str:
    """Return an NMAE with at least three significant digits."""
    if value is None:
        return NOTHING
    return f"{value:.4f}" if value >= 0.01 else f"{value:.5f}"


def _lowest(errors: Mapping[str, float], names: Iterable[str]) -> list[str]:
    """Return a field for each method, the lowest error in bold."""
    best = min(errors.values())
    fields = {
        name: f"**{number(error)}**" if error == best else number(error) for name, error in errors.items()
    }
    return [fields.get(name, NOTHING) for name in names]


def _paper(lines: Sequence[Line], titles: Mapping[str, str]) -> str:
    if not lines:
        return ""
    rows: list[list[object]] = []
    for line in lines:
        goal, own = GOALS[line["row"]], line["errors"].get(OURS)
        verdict = NOTHING
        if own is not None:
            is_lowest = max(line.get("ratio", 0), line.get("slow_ratio", 0)) <= 1
            verdict = _mark(own <= goal) + ("" if is_lowest else " not the lowest")
        rows.append([line["row"], *_lowest(line["errors"], titles), number(goal), verdict])
    seeds = max(count for line in lines for count in line["seeds"].values())
    return f"## The paper's rows\n\nNMAE, a mean over {seeds} seeds where the mask is random.\n\n" + markdown(
        ["", *titles.values(), "goal", "airnp meets it"], rows
    )


def _goals(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of goals, one column for each group that has cells of ours."""
    shown = [group for group in groups.values() if group["all"] is not None]
    if not shown:
        return ""

    def row(
        name: str, goal: str, value: Callable[[Any], float | None], is_met: Callable[[float], bool]
    ) -> list:
        fields = []
        for group in shown:
            found = value(group)
            judged = f" {_mark(is_met(found))}" if found is not None and group["half"] == CLAIMS else ""
            fields.append(NOTHING if found is None else f"{found:.3f}{judged}")
        return [name, goal, *fields]

    rows = [
        row(
            f"error over that of the best other, {name}: geometric mean",
            f"≤ {goal}",
            lambda group, name=name: group["kinds"].get(name, {}).get("ratio"),
            lambda found, goal=goal: found <= goal,
        )
        for name, goal in RATIO_GOALS.items()
    ]
    rows += [
        row(
            "share of problems with the lowest error",
            f"≥ {LEAST_SHARE}",
            lambda group: group["all"]["lowest"],
            lambda found: found >= LEAST_SHARE,
        ),
        row(
            "error over that of the best other: worst",
            f"≤ {WORST_RATIO}",
            lambda group: group["all"]["worst"],
            lambda found: found <= WORST_RATIO,
        ),
        row(
            'error of `quality="fast"` over that of the default: geometric mean',
            f"≤ {WORST_FAST}",
            lambda group: group["all"]["fast_ratio"],
            lambda found: found <= WORST_FAST,
        ),
    ]
    header = ["", "goal", *(_name(group) for group in shown)]
    return "## The goals\n\n" + markdown(header, rows)


def _name(group: Mapping[str, Any]) -> str:
    size = "240×240, grey" if group["size"] == "240" else "own size and colours"
    return f"{group['half']} half, {size}"


def _ratios(found: Sequence[Case]) -> str:
    """Return the time of each method as a multiple of biharmonic's."""
    if not found:
        return ""
    names = [name for name in METHODS if any(name in case["ratios"] for case in found)]
    rows: list[list[object]] = []
    for case in found:
        fields = []
        for name in names:
            ratio, limit = case["ratios"].get(name), RATIO_LIMITS.get((case["row"], name))
            judged = "" if ratio is None or limit is None else f" (goal {limit}) {_mark(ratio <= limit)}"
            fields.append(NOTHING if ratio is None else f"{ratio:.3g}{judged}")
        base = f"{1e3 * case['seconds']['biharmonic']:.0f} ms"
        rows.append([RATIOS[case["row"]], case["threads"], base, *fields])
    header = ["", "threads", "biharmonic takes", *(METHODS[name].title for name in names)]
    return "## Time, as a multiple of biharmonic's\n\n" + markdown(header, rows)


def _growth(found: Sequence[Case]) -> str:
    """Return seconds and memory on large photographs, and how time grows with the missing pixels."""
    if not found:
        return ""
    order = list(METHODS)
    lines = sorted(found, key=lambda case: (case["mask"], order.index(case["method"]), case["pixels"]))
    rows: list[list[object]] = []
    for case in lines:
        memory = f"{case['megabytes']:.0f} MB"
        if case["method"] in (OURS, FAST):
            memory += f" {_mark(case['megabytes'] <= MOST_MEGABYTES)}"
        size = "×".join(map(str, case["shape"]))
        title, seconds = METHODS[case["method"]].title, f"{case['seconds']:.3g} s"
        rows.append([case["mask"], title, f"{size}×3", case["missing"], seconds, memory])
    slopes = []
    for mask, name in dict.fromkeys((case["mask"], case["method"]) for case in lines):
        same = [case for case in lines if (case["mask"], case["method"]) == (mask, name)]
        if len(same) > 1:
            power = slope([case["missing"] for case in same], [case["seconds"] for case in same])
            slopes.append(f"{METHODS[name].title} {power:.2f} ({mask})")
    header = ["mask", "method", "size", "missing", "time", "peak memory"]
    return (
        f"## Large photographs, 2 % missing, {found[0]['threads']} threads\n\n{markdown(header, rows)}\n\n"
        f"Memory is to stay below {MOST_MEGABYTES} MB. Time grows with the number of missing pixels to the "
        f"power of: {', '.join(slopes)}."
    )


def _compile(found: Sequence[Case]) -> str:
    return "\n\n".join(
        f"The first call of a process takes {case['compiled']:.1f} s longer than the next "
        f"(goal {LONGEST_COMPILE} s) {_mark(case['compiled'] <= LONGEST_COMPILE)}, and "
        f"{case['cached']:.1f} s longer if compiled code is on the disk."
        for case in found
    )


def _masks(group: Mapping[str, Any]) -> str:
    if not group["masks"]:
        return ""
    rows = [
        [
            mask,
            found["n"],
            f"{found['ratio']:.3f}",
            f"{found['worst']:.3f} ({found['worst_at'].split()[0]})",
            f"{100 * found['lowest']:.0f} %",
            NOTHING if found["fast_ratio"] is None else f"{found['fast_ratio']:.3f}",
            *_slow(found),
        ]
        for mask, found in group["masks"].items()
    ]
    header = ["mask", "pictures", "error / best other", "worst", "lowest error in", "fast / default"]
    header += ["error / best slow one", "lower in"]
    return f"## By mask: {_name(group)}\n\n" + markdown(header, rows)


def _slow(found: Mapping[str, Any]) -> list[str]:
    """Return our error over that of the best method that ran on request, and how often it is lower."""
    if not found["slow_n"]:
        return [NOTHING, NOTHING]
    return [f"{found['slow_ratio']:.3f}", f"{100 * found['slow_lowest']:.0f} % of {found['slow_n']}"]


def _coverage(group: Mapping[str, Any]) -> str:
    """Return the coverage of 90 % intervals by mask, and of which pictures it is out of bounds."""
    rows: list[list[object]] = []
    for mask, found in group["masks"].items():
        if found["coverage"] is None:
            continue
        within = MEAN_COVERAGE[0] <= found["coverage"] <= MEAN_COVERAGE[1]
        each = CELL_COVERAGE[0] <= found["least_coverage"] and found["most_coverage"] <= CELL_COVERAGE[1]
        marks = [f" {_mark(met)}" if group["half"] == CLAIMS else "" for met in (within, each)]
        spread = f"{100 * found['least_coverage']:.1f} to {100 * found['most_coverage']:.1f}"
        expected = f"{found['expected_ratio']:.2f} ×/÷ {np.exp(found['expected_spread']):.2f}"
        rows.append([mask, f"{100 * found['coverage']:.1f}{marks[0]}", f"{spread}{marks[1]}", expected])
    if not rows:
        return ""
    pictures: dict[str, list[float]] = {}
    for line in group["lines"]:
        if line.get("coverage") is not None:
            pictures.setdefault(line["picture"], []).append(line["coverage"])
    means = ", ".join(f"{name} {100 * statistics.fmean(found):.1f}" for name, found in pictures.items())
    header = [
        "mask",
        "mean over pictures, % (goal 87–93)",
        "lowest to highest (goal 80–97)",
        "expected error / true",
    ]
    return (
        f"## Coverage of 90 % intervals: {_name(group)}\n\n{markdown(header, rows)}\n\n"
        f"Means over masks: {means}."
    )


def _quality(group: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Return NMAE, PSNR and SSIM by mask of each method that has all pictures."""
    names = [name for name in titles if any(name in line["errors"] for line in group["lines"])]
    rows: list[list[object]] = []
    for mask in dict.fromkeys(line["mask"] for line in group["lines"]):
        lines = [line for line in group["lines"] if line["mask"] == mask]
        fields = [
            f"{number(geometric_mean([line['errors'][name] for line in lines]))}, "
            f"{statistics.fmean(line['psnr'][name] for line in lines):.2f}, "
            f"{statistics.fmean(line['ssim'][name] for line in lines):.4f}"
            if all(name in line["errors"] for line in lines)
            else NOTHING
            for name in names
        ]
        rows.append([mask, len(lines), *fields])
    table = markdown(["mask", "pictures", *(titles[name] for name in names)], rows)
    title = f"## NMAE, PSNR in dB and SSIM: {_name(group)}"
    return f"{title}\n\nMeans over pictures; geometric ones of NMAE.\n\n{table}"


def _errors(group: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    names = [name for name in titles if any(name in line["errors"] for line in group["lines"])]
    rows = [[line["picture"], line["mask"], *_lowest(line["errors"], names)] for line in group["lines"]]
    header = ["picture", "mask", *(titles[name] for name in names)]
    return f"## NMAE of all: {_name(group)}\n\n" + markdown(header, rows)


def _failures(failed: Sequence[Mapping[str, Any]]) -> str:
    if not failed:
        return ""
    rows = [[cell["row"], cell["method"], cell["seed"], cell["error"].replace("|", "\\|")] for cell in failed]
    return "## Failed\n\n" + markdown(["problem", "method", "seed", "error"], rows)


def _stale(stale: Mapping[str, int]) -> str:
    if not stale:
        return ""
    counts = ", ".join(f"{name} {count}" for name, count in stale.items())
    return f"Cells that were computed by other code of airnp: {counts}. `--redo stale` computes them again."
