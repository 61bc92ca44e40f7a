"""``airnp graph``: write the learned graph over rows or columns."""

from __future__ import annotations

import argparse
import csv
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from airnp.commands.base import (
    OK,
    Command,
    UsageError,
    add_message_arguments,
    add_output_arguments,
    check_outputs,
    finish,
    whole_number,
    write_file,
)
from airnp.commands.fits import add_fit_arguments, explain_errors, fit_dense, load_result
from airnp.commands.tables import add_reading_arguments, read_table
from airnp.tables import holds_result

if TYPE_CHECKING:
    from airnp.results.graphs import Graph

DESCRIPTION = """\
Write which rows, or which columns, a fit has found to be alike: an undirected graph with positive weights.
It comes from a saved result (airnp complete --result, or FitResult.save), or from a table, which is completed
first and for which the options below are.

  .csv       a line "source,target,weight" for each edge, once; nodes go by their labels, else numbers from 0
  .graphml   for Gephi, igraph, networkx; nodes have an attribute label
  .npz       a symmetric scipy.sparse matrix (scipy.sparse.load_npz)
  .mtx       the same in the Matrix Market format
"""

EXAMPLES = """\
  airnp graph learned.npz -o graph.graphml --neighbours 5
  airnp graph ratings.csv -o films.csv --axis columns --neighbours 10
"""

Labels = Sequence[Any] | None


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="result-or-table", help="file to read")
    add_output_arguments(parser, ", ".join(_WRITERS))
    parser.add_argument(
        "--axis", choices=("rows", "columns"), default="rows", help="what the nodes are (%(default)s)"
    )
    parser.add_argument(
        *("--neighbours", "-k"),
        type=whole_number(1),
        metavar="K",
        help="keep the K strongest edges of each node (all that are not negligible)",
    )
    add_reading_arguments(parser)
    add_fit_arguments(parser)
    add_message_arguments(parser)


def _run(options: argparse.Namespace) -> int:
    suffix = options.output.suffix.lower()
    if suffix not in _WRITERS:
        raise UsageError(f"{options.output}: expected a name that ends in one of {', '.join(_WRITERS)}")
    check_outputs(options, {"--output": options.output})
    is_saved = _is_result(options.source)
    result, labels, facts = _load(options) if is_saved else _fit(options)
    graph = _graph(options, result)
    write_file(options.output, lambda file: _WRITERS[suffix](file, graph, labels))

    facts = {
        "command": "graph",
        "input": str(options.source),
        "output": str(options.output),
        "axis": options.axis,
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        **facts,
    }
    so_far = " after an interrupted fit" if facts["stop_reason"] == "interrupted" else ""
    text = f"{graph.n_nodes} {options.axis}, {graph.n_edges} edges\nwrote {options.output}{so_far}"
    code = finish(options, facts, text)
    return OK if is_saved else code


# --- where the graph comes from ---


def _is_result(path: Path) -> bool:
    """Return whether a file is a result that airnp saved."""
    return path.suffix.lower() == ".npz" and zipfile.is_zipfile(path) and holds_result(path)


def _load(options: argparse.Namespace) -> tuple[Any, Labels, dict[str, Any]]:
    result = load_result(options.source)
    # The result of a sparse fit has no labels.
    labels = getattr(result, "index" if options.axis == "rows" else "columns", None)
    facts = {"iterations": result.n_iter, "stop_reason": result.stop_reason, "seed": result.seed}
    return result, labels, facts


def _fit(options: argparse.Namespace) -> tuple[Any, Labels, dict[str, Any]]:
    if options.regularizers in ("dmf", "tv"):
        raise UsageError(f"--regularizers {options.regularizers} learns no graph; air does")
    table = read_table(options, options.source)
    names = {"Y": str(options.source), "mask": str(options.source)}
    result, facts = fit_dense(options, names, table.values, table.observed)
    return result, table.rows if options.axis == "rows" else table.columns, facts


def _graph(options: argparse.Namespace, result: Any) -> Graph:
    matrix = getattr(result, "matrix", None)  # the result of a sparse fit has none
    if matrix is not None and matrix.ndim != 2:
        raise UsageError(
            f"{options.source}: is a stack of matrices, each with its own graph; Python's airnp.load helps"
        )
    make = result.row_graph if options.axis == "rows" else result.column_graph
    with explain_errors({name: str(options.source) for name in ("row_graph", "column_graph")}):
        graph: Graph = make(k=options.neighbours)
    return graph


# --- formats ---


def _edges(graph: Graph) -> Iterator[tuple[int, int, float]]:
    """Yield every edge once."""
    from scipy.sparse import triu

    edges = triu(graph.adjacency, format="coo")
    yield from zip(edges.row.tolist(), edges.col.tolist(), edges.data.tolist(), strict=True)


def _write_csv(file: BinaryIO, graph: Graph, labels: Labels) -> None:
    nodes = range(graph.n_nodes) if labels is None else labels
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["source", "target", "weight"])
    writer.writerows([nodes[start], nodes[end], repr(weight)] for start, end, weight in _edges(graph))
    text.detach()


_NO_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 cannot hold, escaped or not."""


def _xml_text(label: Any) -> str:
    """Return a label as XML holds it; � stands for characters that it cannot."""
    return escape(_NO_XML.sub("\ufffd", str(label)), quote=False).replace("\r", "&#13;")


def _write_graphml(file: BinaryIO, graph: Graph, labels: Labels) -> None:
    nodes = range(graph.n_nodes) if labels is None else labels
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '<key id="label" for="node" attr.name="label" attr.type="string"/>',
        '<key id="weight" for="edge" attr.name="weight" attr.type="double"/>',
        '<graph edgedefault="undirected">',
        # Labels may occur twice, so they are no ids.
        *(
            f'<node id="{number}"><data key="label">{_xml_text(label)}</data></node>'
            for number, label in enumerate(nodes)
        ),
        *(
            f'<edge source="{start}" target="{end}"><data key="weight">{weight!r}</data></edge>'
            for start, end, weight in _edges(graph)
        ),
        "</graph>",
        "</graphml>",
    ]
    file.write("\n".join([*lines, ""]).encode())


def _write_npz(file: BinaryIO, graph: Graph, labels: Labels) -> None:
    from scipy.sparse import save_npz

    save_npz(file, graph.adjacency)


def _write_mtx(file: BinaryIO, graph: Graph, labels: Labels) -> None:
    from scipy.io import mmwrite

    mmwrite(file, graph.adjacency)


_WRITERS: dict[str, Callable[[BinaryIO, Graph, Labels], None]] = {
    ".csv": _write_csv,
    ".npz": _write_npz,
    ".graphml": _write_graphml,
    ".mtx": _write_mtx,
}

COMMAND = Command(_arguments, _run, EXAMPLES, DESCRIPTION)
