"""An estimate of the time of an iteration of AIR on a GPU, printed as the tables of docs/gpu.md.

    python -m bench.roofline

No kernel is faster than its memory traffic at full bandwidth, or its arithmetic at full speed. Traffic counts
every array once for each kernel that reads or writes it, as if nothing stayed in a cache. The times are lower
bounds for the work and guesses for the launches; nothing here was measured.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from airnp.model.factorization import factor_shapes
from bench.floor import product_shapes
from bench.timing import markdown

PAPER_MS = 8.332
"""An iteration of AIR at m = 240, L = 3 on a V100 in the paper's table: 83.32 s for 10 000."""

HOST_US = 20.0
"""Assumed: one launch from Python, through CuPy or ctypes, including the checks of its arguments."""

GRAPH_US = 10.0
"""Assumed: one launch of a whole CUDA graph from Python."""

NODE_US = 2.5
"""Assumed: the least time from the start of one kernel to that of the next, in a graph or a full queue."""

PRODUCT_US = 5.5
"""Assumed: what a product of cuBLAS takes besides its roofline. One of 240×240 takes 6 to 9 µs on an A100."""

HALVED = 512
"""Rows from which on half of a Gram matrix is computed, as in the engine."""

EXP, ROOT, QUOTIENT = 10, 8, 8
"""Assumed: operations for one exponential, one square root, one division."""

ADAM = 11 + ROOT + QUOTIENT
TWO_SUM = 7
STATISTICS = 6 + 2 * TWO_SUM + EXP + (2 * EXP + 6) / 4
STEP = 8.5 + EXP + ADAM
RESIDUAL = 10 + TWO_SUM
"""Operations for one entry, counted in kernels/*.cu; four columns share one rescaling of the softmax."""


@dataclass(frozen=True)
class Device:
    """Peaks from NVIDIA's data sheets, dense, without sparsity: GB/s and TFLOP/s."""

    name: str
    bandwidth: float
    float32: float
    float64: float
    tf32: float

    def peak(self, precision: str) -> float:
        """Return the peak of products in TFLOP/s."""
        if precision == "tf32x3":
            return self.tf32 / 3
        return float(getattr(self, precision))


DEVICES = (
    Device("V100", 900, 15.7, 7.8, 15.7),  # SXM2; has no TF32 units, float32 serves
    Device("A100", 2039, 19.5, 19.5, 156),  # SXM, 80 GB; float64 by tensor cores
    Device("H100", 3350, 66.9, 66.9, 494.7),  # SXM5; float64 by tensor cores
)


@dataclass(frozen=True)
class Work:
    """The work of all launches of one kernel in an iteration: numbers moved, and operations on them.

    ``on_path`` of the launches follow each other on the longest path of the CUDA graph, by default all.
    """

    name: str
    launches: int
    numbers: float
    flops: float
    formula: str
    is_product: bool = False
    on_path: int | None = None

    @property
    def depth(self) -> int:
        """The number of launches on the longest path."""
        return self.launches if self.on_path is None else self.on_path

    def seconds(self, device: Device, precision: str = "float32") -> float:
        """Return the time of all launches, bounded by bandwidth and by arithmetic."""
        # Outside of products there are no tensor cores.
        peak = device.peak(precision) if self.is_product else min(device.float32, device.peak(precision))
        traffic = self.numbers * itemsize(precision) / (device.bandwidth * 1e9)
        arithmetic = self.flops / (peak * 1e12)
        return max(traffic, arithmetic)

    def busy(self, device: Device, precision: str = "float32") -> float:
        """Return the time of all launches one after the other, each with what it costs at least."""
        bound = self.seconds(device, precision)
        if self.is_product:
            return bound + self.launches * PRODUCT_US * 1e-6
        return max(bound, self.launches * NODE_US * 1e-6)


def itemsize(precision: str) -> int:
    """Return the bytes of one number."""
    return 8 if precision == "float64" else 4


def work(m: int, n: int, depth: int, batch: int = 1, *, halves: bool = True) -> list[Work]:
    """Return the work of an iteration of AIR with graphs of kind "row" over rows and columns.

    ``halves`` says whether large Gram matrices are computed by half and mirrored.
    """
    rank = min(m, n)
    graphs = (m, n)
    factors = sum(rows * columns for rows, columns in factor_shapes(m, n, depth, rank))
    chain = product_shapes(m, n, depth, rank)
    grams = [(k, m * n // k, k) for k in graphs]
    pulls = [(m, m, n), (m, n, n)]

    def moved(shapes: list[tuple[int, int, int]], c: int) -> float:
        return sum(rows * inner + inner * columns + c * rows * columns for rows, inner, columns in shapes)

    def multiplied(shapes: list[tuple[int, int, int]]) -> float:
        return sum(2.0 * rows * inner * columns for rows, inner, columns in shapes)

    # V and its moments are read and written, A is written, the upper half of K is read; partial degrees.
    stepped = sum(7 * k * k + k * (k + 1) / 2 + 2 * k * -(-k // 32) for k in graphs)
    squares = float(sum(k * k for k in graphs))
    halved = halves and batch == 1 and min(m, n) >= HALVED
    formula = "2 · 3 m², by half 2 · 3/2 m²"
    gram = Work("Gram matrices", 2, moved(grams, 1), multiplied(grams), formula, True, 1)
    mirror = Work("mirror", 2, squares, 0.0, "2 · m²", on_path=1)
    if halved:
        gram = replace(gram, numbers=gram.numbers / 2, flops=gram.flops / 2)
    rows = [
        Work(
            "products of factors",
            len(chain),
            moved(chain, 1),
            multiplied(chain),
            "(3 + 3 + 3)(L − 1) m²",
            True,
            2 * (depth - 1),
        ),
        gram,
        *([mirror] if halved else []),
        Work("A X and X A, added", 2, moved(pulls, 2), multiplied(pulls), "2 · 4 m²", True),
        Work("graph_statistics", 2, 2 * squares, STATISTICS * squares, "2 · 2 m²", on_path=1),
        Work("graph_step", 2, stepped, STEP * squares, "2 · (7 + 1/2 + 1/16) m²", on_path=1),
        Work("masked_residual", 1, 4.0 * m * n, RESIDUAL * m * n, "4 m²"),
        Work("adam", 1, 7.0 * factors, ADAM * factors, "7 L m²"),
        Work("record", 1, 6.0, 0.0, "0"),
    ]
    return [replace(row, numbers=batch * row.numbers, flops=batch * row.flops) for row in rows]


@dataclass(frozen=True)
class Ratings:
    """A large sparse problem, with a graph over its rows and one over its columns."""

    entries: int = 20_000_000
    m: int = 138_000
    n: int = 27_000
    rank: int = 32
    neighbours: int = 32

    @property
    def nodes(self) -> int:
        """The nodes of both graphs."""
        return self.m + self.n

    @property
    def edges(self) -> int:
        """The candidates of all nodes, including the nodes themselves."""
        return self.nodes * (self.neighbours + 1)


def sparse_work(of: Ratings) -> list[Work]:
    """Return the work of an iteration of the sparse form with two factors: N entries, K nodes, E edges.

    A row of a factor counts once for every entry that uses it; an index is one number, a 64-bit one two.
    """
    entries, nodes, edges, rank = of.entries, of.nodes, of.edges, of.rank
    return [
        Work(
            "row_residuals",
            1,
            entries * (rank + 4.0) + of.m * (2 * rank + 4),
            entries * (4.0 * rank + TWO_SUM + 5),
            "N (r + 4) + m (2 r + 4)",
        ),
        Work(
            "line_sums",
            1,
            entries * (rank + 4.0) + of.n * (rank + 3),
            entries * (2.0 * rank + 1),
            "N (r + 4) + n (r + 3)",
        ),
        Work(
            "edge_terms",
            2,
            edges * (rank + 8.0) + nodes * (2 * rank + 2),
            edges * (6.0 * rank + EXP + 8),
            "E (r + 8) + K (2 r + 2)",
        ),
        Work(
            "gap_sums",
            2,
            edges * (rank + 4.0) + nodes * (3 * rank + 2),
            edges * 3.0 * rank,
            "E (r + 4) + K (3 r + 2)",
        ),
        Work("factor_gram", 2, 2 * 3.0 * rank**2, 2 * rank**3, "2 · 3 r²"),
        Work("products with r × r", 10, 11.0 * nodes * rank, 10.0 * nodes * rank**2, "11 K r", True),
        Work("adam", 1, 7.0 * (nodes * rank + edges), ADAM * (nodes * rank + edges), "7 (K r + E)"),
    ]


@dataclass(frozen=True)
class Estimate:
    """Milliseconds of one iteration."""

    roofline: float
    single: float
    line: float
    graph: float


def estimate(
    device: Device,
    m: int,
    depth: int = 3,
    batch: int = 1,
    precision: str = "float32",
    *,
    halves: bool = True,
) -> Estimate:
    """Return the roofline, and the time with single launches, with a CUDA graph in line, and in branches.

    The host prepares launches while the device works, so the slower of the two counts. Branches share the
    device: the graph takes as long as its longest path, and no less than the roofline of all its work.
    """
    rows = work(m, m, depth, batch, halves=halves)
    launches = sum(row.launches for row in rows)
    bound = sum(row.seconds(device, precision) for row in rows)
    busy = sum(row.busy(device, precision) for row in rows)
    path = sum(row.busy(device, precision) * row.depth / row.launches for row in rows)
    return Estimate(
        roofline=1e3 * bound,
        single=1e3 * max(busy, launches * HOST_US * 1e-6),
        line=1e3 * max(busy, GRAPH_US * 1e-6),
        graph=1e3 * max(path, bound, GRAPH_US * 1e-6),
    )


def find(name: str) -> Device | None:
    """Return the device of the list whose name occurs in a device's full name."""
    return next((device for device in DEVICES if device.name in name), None)


def _digits(value: float) -> str:
    """Return three significant digits, and 0 below a thousandth."""
    if value < 1e-3:
        return "0"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}".replace(",", " ")


def devices_table() -> str:
    """Return the peaks of the devices."""
    header = ["device", "GB/s", "TFLOP/s float32", "float64", "TF32"]
    rows = [[d.name, _digits(d.bandwidth), d.float32, d.float64, d.tf32] for d in DEVICES]
    return markdown(header, rows)


def _megabytes_and_flops(numbers: float, flops: float) -> str:
    return f"{_digits(numbers * 4e-6)}, {_digits(flops * 1e-6)}"


def work_table(sizes: tuple[int, ...]) -> str:
    """Return traffic and arithmetic of each kernel, for square matrices, three factors, float32."""
    header = ["kernel", "launches", "numbers moved", *(f"MB, MFLOP at m = {m}" for m in sizes)]
    columns = [{row.name: row for row in work(m, m, 3)} for m in sizes]
    rows: list[list[object]] = []
    for name, row in columns[-1].items():
        same = [column.get(name) for column in columns]
        cells = ["–" if one is None else _megabytes_and_flops(one.numbers, one.flops) for one in same]
        rows.append([name, row.launches, row.formula, *cells])
    totals = [
        _megabytes_and_flops(sum(r.numbers for r in c.values()), sum(r.flops for r in c.values()))
        for c in columns
    ]
    launches = dict.fromkeys(sum(row.launches for row in column.values()) for column in columns)
    rows.append(["together", " or ".join(map(str, launches)), "", *totals])
    return markdown(header, rows)


def times_table(sizes: tuple[int, ...]) -> str:
    """Return milliseconds of an iteration on each device, three factors, float32."""
    header = ["m", "device", "roofline ms", "launched one by one ms", "graph in line ms", "in branches ms"]
    header.append("10 000 iterations")
    rows: list[list[object]] = []
    for m in sizes:
        for device in DEVICES:
            found = estimate(device, m)
            times = [_digits(value) for value in (found.roofline, found.single, found.line, found.graph)]
            rows.append([m, device.name, *times, f"{_digits(10 * found.graph)} s"])
    paper = [f"{PAPER_MS:.3g}", "–", f"{10 * PAPER_MS:.3g} s, measured"]
    rows.append([240, "V100, the paper's program", "–", "–", *paper])
    return markdown(header, rows)


def branches_table(sizes: tuple[int, ...]) -> str:
    """Return an iteration in one line of launches with whole Gram matrices, and as it is."""
    header = ["m", "nodes", "longest path", "kernels + products", "MB moved"]
    header += [f"{device.name} µs" for device in DEVICES]
    body: list[list[object]] = []
    for m in sizes:
        before, now = (work(m, m, 3, halves=halves) for halves in (False, True))
        counts: list[list[object]] = []
        for rows in (before, now):
            nodes = sum(row.launches for row in rows)
            products = sum(row.launches for row in rows if row.is_product)
            path = nodes if rows is before else sum(row.depth for row in rows)
            megabytes = _digits(sum(row.numbers for row in rows) * 4e-6)
            counts.append([nodes, path, f"{nodes - products} + {products}", megabytes])
        line = [estimate(device, m, halves=False).line for device in DEVICES]
        graph = [estimate(device, m).graph for device in DEVICES]
        both = [
            *zip(*counts, strict=True),
            *([_digits(1e3 * ms) for ms in pair] for pair in zip(line, graph, strict=True)),
        ]
        body.append([m, *(f"{old} → {new}" for old, new in both)])
    return markdown(header, body)


def shares_table(m: int) -> str:
    """Return microseconds of each kernel at one size, by the roofline alone."""
    rows = [[row.name, *(_digits(1e6 * row.seconds(device)) for device in DEVICES)] for row in work(m, m, 3)]
    return markdown([f"µs at m = {m}", *(device.name for device in DEVICES)], rows)


def sparse_table() -> str:
    """Return traffic, arithmetic and milliseconds by the roofline of a sparse iteration, float32."""
    work, header = sparse_work(Ratings()), ["kernel", "launches", "numbers moved", "MB, MFLOP"]
    rows: list[list[object]] = []
    for row in work:
        times = [_digits(1e3 * row.seconds(device)) for device in DEVICES]
        rows.append(
            [row.name, row.launches, row.formula, _megabytes_and_flops(row.numbers, row.flops), *times]
        )
    total = _megabytes_and_flops(sum(row.numbers for row in work), sum(row.flops for row in work))
    times = [_digits(1e3 * sum(row.seconds(device) for row in work)) for device in DEVICES]
    rows.append(["together", sum(row.launches for row in work), "", total, *times])
    return markdown([*header, *(f"{device.name} ms" for device in DEVICES)], rows)


def tables(sizes: tuple[int, ...] = (240, 1000, 4000)) -> list[str]:
    """Return all tables, in the order of docs/gpu.md."""
    return [
        devices_table(),
        work_table(sizes),
        times_table(sizes),
        branches_table((64, *sizes)),
        shares_table(1000),
        sparse_table(),
    ]


def main(argv: list[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[240, 1000, 4000])
    print("\n\n".join(tables(tuple(parser.parse_args(argv).sizes))))


if __name__ == "__main__":
    main()
