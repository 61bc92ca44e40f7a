"""The page: test errors of all models, and differences with intervals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from bench.ratings import tuning
from bench.ratings.cells import Cells
from bench.ratings.data import TABLES
from bench.ratings.models import ABLATION
from bench.ratings.peers import PEERS
from bench.ratings.statistics import Difference, compared, rmse
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
"""Which two are compared, the first being the one with more in it."""

MODELS = ABLATION | PEERS


class Found:
    """All fits of one table."""

    def __init__(self, table: str, names: Sequence[str], cells: Cells, seeds: int) -> None:
        chosen = tuning.chosen_for(table)
        self.tables = [TABLES[table].draw(seed) for seed in range(seeds)]
        self.errors: dict[str, list[np.ndarray]] = {}
        self.seconds: dict[str, float] = {}
        self.chosen = {name: chosen[name] for name in names if name in chosen}
        for name, choice in self.chosen.items():
            found = [cells.find(table, name, choice["settings"], seed) for seed in range(seeds)]
            lines = [
                cell.predictions - self.tables[seed].test.values
                for seed, cell in enumerate(found)
                if cell is not None
            ]
            if lines:
                self.errors[name] = lines
                self.seconds[name] = statistics.median(cell.seconds for cell in found if cell is not None)

    def difference(self, one: str, two: str, *, by_user: bool) -> Difference:
        """Compare two models over the same test entries, user by user or one by one."""
        first, second = self.errors[one], self.errors[two]
        if min(len(first), len(second)) > 1:  # what is not computed yet is left out on both sides
            both = min(len(first), len(second))
            first, second = first[:both], second[:both]
        if len({len(line) for line in [*first, *second]}) == 1 and self._same_test():
            groups = self.tables[0].test.rows if by_user else None
            return compared(np.stack(first), np.stack(second), groups)
        # Other seeds ask for other entries: one long line.
        pairs = list(zip(first, second, strict=False))
        rows = [table.test.rows for table in self.tables[: len(pairs)]]
        joined = [np.concatenate([pair[side] for pair in pairs])[None] for side in (0, 1)]
        return compared(*joined, np.concatenate(rows) if by_user else None)

    def _same_test(self) -> bool:
        return all(np.array_equal(table.test.rows, self.tables[0].test.rows) for table in self.tables)


def page(plan: Mapping[str, Sequence[str]], cells: Cells, seeds: int) -> str:
    """Return everything that was found, in Markdown."""
    parts = []
    for table, names in plan.items():
        found = Found(table, names, cells, seeds)
        parts.append(f"## {TABLES[table].label}\n\n{_errors(found, names)}")
        pairs = [pair for pair in PAIRS if pair[0] in found.errors and pair[1] in found.errors]
        if pairs:
            parts.append(_differences(found, pairs))
    return "\n\n".join(parts) + "\n"


def _errors(found: Found, names: Sequence[str]) -> str:
    rows: list[list[object]] = []
    for name in names:
        label = MODELS[name].label
        if name not in found.errors:
            model = MODELS[name]
            note = f"not measured: {model.needs} is not installed" if model.is_missing else "not computed"
            rows.append([label, "–", "–", "–", "–", "–", note])
            continue
        lines = found.errors[name]
        roots = [float(rmse(line)) for line in lines]
        spread = f"{statistics.stdev(roots):.4f}" if len(roots) > 1 else "–"
        mae = float(np.mean([np.abs(line).mean() for line in lines]))
        rows.append(
            [
                label,
                f"{np.mean(roots):.4f}",
                spread,
                f"{mae:.4f}",
                f"{found.chosen[name]['validation_rmse']:.4f}",
                found.chosen[name]["settings"].get("max_iter", "–"),
                f"{found.seconds[name]:.2g} s, {len(lines)} run{'s' if len(lines) > 1 else ''}",
            ]
        )
    header = [
        "model",
        "test RMSE",
        "± over seeds",
        "test MAE",
        "validation RMSE",
        "iterations",
        "median time",
    ]
    return markdown(header, rows)


def _differences(found: Found, pairs: Sequence[tuple[str, str]]) -> str:
    rows = []
    for one, two in pairs:
        entries = found.difference(one, two, by_user=False)
        users = found.difference(one, two, by_user=True)
        verdict = "no clear difference"
        if users.is_clear:
            verdict = "better" if users.mean < 0 else "worse"
        rows.append([f"{_short(one)} − {_short(two)}", _interval(entries), _interval(users), verdict])
    header = ["difference of test RMSE", "95 % over entries", "95 % over rows (users)", "the first is"]
    return markdown(header, [list(row) for row in rows])


def _short(name: str) -> str:
    return f"`{name}`"


def _interval(found: Difference) -> str:
    return f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
