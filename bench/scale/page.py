"""The page and the picture of the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.timing import markdown

Measured = Sequence[tuple[str, dict[str, Any]]]


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent of seconds = c · sizes^p that fits best on logarithmic axes.

    Examples
    --------
    >>> round(slope([1e3, 1e4, 1e5], [2e-3, 2e-2, 2e-1]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def select(found: Measured, section: str) -> list[dict[str, Any]]:
    """Return the measurements of a section by size; failures last."""
    return sorted(
        (result for name, result in found if name == section), key=lambda r: ("failed" in r, r["m"])
    )


def page(found: Measured) -> str:
    """Return all tables in Markdown."""
    parts = [_growth(found), _errors(found), _peers(found), _large(found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _growth(found: Measured) -> str:
    growth, dense = select(found, "growth"), {r["m"]: r for r in select(found, "dense")}
    if not growth:
        return ""
    rows = []
    for r in growth:
        other = dense.get(r["m"], {})
        rows.append(
            [
                _grouped(r["m"]),
                _grouped(r.get("nnz", 0)),
                _iteration(r),
                f"{r['search']:.1f} s" if "search" in r else "–",
                f"{r['megabytes']:.0f} MB" if "megabytes" in r else "–",
                _iteration(other) if other else "–",
                f"{other['megabytes']:.0f} MB" if "megabytes" in other else "–",
            ]
        )
    header = ["rows", "entries", "iteration", "neighbours", "peak memory"]
    text = markdown([*header, "dense iteration", "dense memory"], rows)
    good = [r for r in growth if "seconds" in r]
    if len(good) > 2:
        sizes, seconds = [r["nnz"] for r in good], [r["seconds"] for r in good]
        text += (
            f"\n\nSlope of the iteration in the number of entries: {slope(sizes, seconds):.2f} over all sizes"
        )
        text += f", {slope(sizes[-3:], seconds[-3:]):.2f} over the three largest."
    return text


def _errors(found: Measured) -> str:
    rows = []
    for r in select(found, "error"):
        if "to_error" in r:
            took = f"{r['to_error']:.1f} s, {r['iterations']} iterations" if r["reached"] else "not reached"
            rows.append([_grouped(r["m"]), _grouped(r["nnz"]), f"{r['error']:.3f}", took])
    header = ["rows", "entries, 50 a row", "held-out RMSE", "time to 0.35"]
    return markdown(header, rows) if rows else ""


def _iteration(result: dict[str, Any]) -> str:
    if "failed" in result:
        return result["failed"]
    return _duration(result["seconds"])


def _duration(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _peers(found: Measured) -> str:
    rows = []
    for r in [*select(found, "peers"), *select(found, "large peers")]:
        if "failed" in r:
            rows.append([f"{r['m']}×{r['n']}", "–", "–", r["failed"], "–"])
            continue
        for name, seconds in r["seconds"].items():
            size = f"{r['m']}×{r['n']}, {_grouped(r['nnz'])} entries, r = k = {r['rank']}"
            rows.append([size, name, _duration(seconds), f"{r['ratios'][name]:.2f}", r["threads"]])
    if not rows:
        return ""
    return markdown(["table", "program", "iteration", "times airnp's", "threads"], rows)


def _large(found: Measured) -> str:
    rows = [
        [
            f"{r['m']}×{r['n']}",
            _grouped(r["nnz"]) if "nnz" in r else "–",
            _iteration(r),
            f"{r['search']:.0f} s" if "search" in r else "–",
            f"{r['megabytes']:.0f} MB" if "megabytes" in r else "–",
        ]
        for r in select(found, "large")
    ]
    return markdown(["table", "entries", "iteration", "neighbours", "peak memory"], rows) if rows else ""


def picture(found: Measured, path: Path) -> None:
    """Draw seconds of an iteration and peak memory over entries, on logarithmic axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, key, name in zip(
        figure.subplots(1, 2),
        ("seconds", "megabytes"),
        ("seconds an iteration", "peak memory in MB"),
        strict=True,
    ):
        for section, label in (("growth", "sparse form"), ("dense", "dense form")):
            good = [r for r in select(found, section) if key in r]
            if not good:
                continue
            sizes, values = [r["nnz"] for r in good], [r[key] for r in good]
            note = f", slope {slope(sizes, values):.2f}" if len(good) > 1 else ""
            ax.loglog(sizes, values, "o-", label=label + note)
        ax.set_xlabel("observed entries")
        ax.set_ylabel(name)
        ax.grid(True, which="major", alpha=0.3)
        if ax.get_lines():
            ax.legend()
    figure.savefig(path, dpi=120)
