"""The page of results: test errors of all models, and their differences with bootstrap intervals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.ratings import data, fits
from bench.ratings.fits import Cells, rmse
from bench.timing import markdown

PAIRS = (
    ("dmf2", "dmf3"),
    ("dmf2", "dmf2_entry"),
    ("nearest3", "dmf3"),
    ("nearest", "dmf2"),
    ("candidates", "dmf2"),
    ("candidates", "dmf3"),
    ("given", "dmf2"),
    ("candidates", "given"),
    ("both", "given"),
    ("both", "candidates"),
    ("l2", "dmf2"),
    ("l2_nearest", "l2"),
    ("l2_candidates", "l2"),
    ("l2_given", "l2"),
    ("l2_candidates", "l2_given"),
    ("l2_candidates", "dmf2"),
    ("l2_quarter", "l2"),
    ("l2_sixteenth", "l2"),
    ("mask", "l2"),
    ("mask", "cmfrec_implicit"),
    ("mask", "surprise_svd"),
    ("mask", "surprise_svdpp"),
    ("mask", "lenskit"),
    ("mask", "offsets"),
)
"""Pairs of models to compare; the first has more parts than the second."""

RESAMPLES = 2000


def page(plan: Mapping[str, Sequence[str]], cells: Cells, seeds: int) -> str:
    """Return all results in Markdown."""
    parts = []
    for table, names in plan.items():
        found = TableFits(table, names, cells, seeds)
        parts.append(f"## {data.TABLES[table].label}\n\n{_errors(found, names)}")
        pairs = [pair for pair in PAIRS if pair[0] in found.errors and pair[1] in found.errors]
        if pairs:
            parts.append(_differences(found, pairs))
    return "\n\n".join(parts) + "\n"


def _errors(found: TableFits, names: Sequence[str]) -> str:
    rows: list[list[object]] = []
    for name in names:
        model = fits.MODELS[name]
        if name not in found.errors:
            note = f"not measured: {model.needs} is not installed" if model.is_missing else "not computed"
            rows.append([model.label, *["–"] * 5, note])
            continue
        lines = found.errors[name]
        roots = [float(rmse(line)) for line in lines]
        spread = f"{statistics.stdev(roots):.4f}" if len(roots) > 1 else "–"
        mae = float(np.mean([np.abs(line).mean() for line in lines]))
        rows.append(
            [
                model.label,
                f"{np.mean(roots):.4f}",
                spread,
                f"{mae:.4f}",
                f"{found.chosen[name]['validation_rmse']:.4f}",
                found.chosen[name]["settings"].get("max_iter", "–"),
                f"{found.seconds[name]:.2g} s, {len(lines)} run{'s' if len(lines) > 1 else ''}",
            ]
        )
    header = ["model", "test RMSE", "± over seeds", "test MAE", "validation RMSE", "iterations"]
    return markdown([*header, "median time"], rows)


def _differences(found: TableFits, pairs: Sequence[tuple[str, str]]) -> str:
    rows = []
    for one, two in pairs:
        entries = found.difference(one, two, by_user=False)
        users = found.difference(one, two, by_user=True)
        verdict = "no clear difference"
        if users.is_clear:
            verdict = "better" if users.mean < 0 else "worse"
        rows.append([f"`{one}` − `{two}`", _interval(entries), _interval(users), verdict])
    header = ["difference of test RMSE", "95 % over entries", "95 % over rows (users)", "the first is"]
    return markdown(header, [list(row) for row in rows])


def _interval(found: Difference) -> str:
    return f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"


class TableFits:
    """The finished fits of one table: errors on the test entries, and seconds."""

    def __init__(self, table: str, names: Sequence[str], cells: Cells, seeds: int) -> None:
        chosen = fits.chosen_for(table)
        self.tables = [data.TABLES[table].draw(seed) for seed in range(seeds)]
        self.errors: dict[str, list[np.ndarray]] = {}
        self.seconds: dict[str, float] = {}
        self.chosen = {name: chosen[name] for name in names if name in chosen}
        for name, choice in self.chosen.items():
            found = [cells.find(table, name, choice["settings"], seed) for seed in range(seeds)]
            finished = {seed: cell for seed, cell in enumerate(found) if cell is not None}
            if finished:
                self.errors[name] = [
                    cell.predictions - self.tables[seed].test.values for seed, cell in finished.items()
                ]
                self.seconds[name] = statistics.median(cell.seconds for cell in finished.values())

    def difference(self, one: str, two: str, *, by_user: bool) -> Difference:
        """Compare two models on the same test entries, resampled by user or one by one."""
        first, second = self.errors[one], self.errors[two]
        if min(len(first), len(second)) > 1:  # only seeds that both have
            both = min(len(first), len(second))
            first, second = first[:both], second[:both]
        if len({len(line) for line in [*first, *second]}) == 1 and self._same_test():
            groups = self.tables[0].test.rows if by_user else None
            return compare(np.stack(first), np.stack(second), groups)
        # Other seeds have other test entries: join them into one line.
        pairs = list(zip(first, second, strict=False))
        rows = [table.test.rows for table in self.tables[: len(pairs)]]
        joined = [np.concatenate([pair[side] for pair in pairs])[None] for side in (0, 1)]
        return compare(*joined, np.concatenate(rows) if by_user else None)

    def _same_test(self) -> bool:
        return all(np.array_equal(table.test.rows, self.tables[0].test.rows) for table in self.tables)


# --- paired bootstrap ---


@dataclass(frozen=True)
class Difference:
    """RMSE of a model minus that of another, with the middle 95 % of its bootstrap distribution."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether zero is outside the interval."""
        return not self.low <= 0 <= self.high


def compare(
    errors: np.ndarray, base: np.ndarray, groups: np.ndarray | None = None, *, seed: int = 0
) -> Difference:
    """Compare two models by a paired bootstrap over entries, or over groups of them (users).

    Parameters
    ----------
    errors, base : array (seeds, entries)
        Errors of both models on the same entries. A single line is compared with every seed of the other.
    groups : array (entries,), optional
        Whole groups are resampled, because the entries of a user are not independent.

    Returns
    -------
    Difference
        Of the RMSE, averaged over seeds; negative if the first is better. The interval is that over other
        test entries; seeds are averaged, not resampled.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> base = rng.standard_normal((1, 500))
    >>> compare(1.1 * base, base).is_clear, compare(base[:, ::-1], base).is_clear
    (True, False)
    """
    lines = max(len(errors), len(base))
    one, two = (np.broadcast_to(np.square(e), (lines, e.shape[1])) for e in (errors, base))
    if groups is None:
        groups = np.arange(one.shape[1])
    (first, counts), (second, _) = _group_sums(one, groups), _group_sums(two, groups)
    rng = np.random.default_rng(seed)
    differences = []
    for _ in range(RESAMPLES // 100):
        draws = rng.integers(len(counts), size=(100, len(counts)))
        times = np.stack([np.bincount(draw, minlength=len(counts)) for draw in draws]).astype(float)
        totals = times @ counts
        roots = [np.sqrt(times @ sums.T / totals[:, None]) for sums in (first, second)]
        differences.append((roots[0] - roots[1]).mean(axis=1))
    low, high = np.quantile(np.concatenate(differences), [0.025, 0.975])
    whole = np.sqrt(first.sum(axis=1) / counts.sum()) - np.sqrt(second.sum(axis=1) / counts.sum())
    return Difference(float(whole.mean()), float(low), float(high))


def _group_sums(squares: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of squared errors of each group, shape (seeds, groups), and its number of entries."""
    _, place = np.unique(groups, return_inverse=True)
    sums = np.stack([np.bincount(place, line) for line in squares])
    return sums, np.bincount(place).astype(float)
