"""One way to break a kernel: an exact replacement in its text."""

from __future__ import annotations

from dataclasses import dataclass

from airnp.engines import launching as kernel_sources

MODULES = {
    "graph_statistics": "laplacian",
    "graph_step": "laplacian",
    "masked_residual": "residual",
    "add_scaled_lines": "residual",
    "adam": "adam",
    "descend": "adam",
    "add_variation": "variation",
    "add_laplacian": "fixed_graph",
    "add_sparse_laplacian": "fixed_graph",
    "record": "record",
    "row_residuals": "sparse_entries",
    "entry_values": "sparse_entries",
    "edge_terms": "sparse_edges",
    "line_sums": "sparse_lines",
    "gap_sums": "sparse_lines",
    "join_pieces": "sparse_lines",
}
"""Every kernel, and the module that it stands in."""


@dataclass(frozen=True)
class Mutation:
    """A defect that somebody could have written.

    Parameters
    ----------
    kernel : str
        Whose tests must find it.
    what : str
        The defect in a few words.
    old, new : str
        The text as it is, and what stands there instead.
    after : str
        Where to look: ``old`` is the first one behind this text. Without it, ``old`` must be the only one.
    """

    kernel: str
    what: str
    old: str
    new: str
    after: str = ""

    @property
    def module(self) -> str:
        """The module of the kernel."""
        return MODULES[self.kernel]

    def text(self) -> str:
        """Return the text of the module, shared part included, with the defect in it.

        Raises
        ------
        ValueError
            If the text to replace is not there, or not the only one.
        """
        text = kernel_sources.module_source(self.module)
        for part in (self.after, self.old) if self.after else (self.old,):
            if part not in text:
                raise ValueError(f"{self.kernel}, {self.what}: the text has no {part!r}")
        if self.after and text.count(self.after) > 1:
            raise ValueError(f"{self.kernel}, {self.what}: more than one {self.after!r}")
        if not self.after and text.count(self.old) > 1:
            raise ValueError(f"{self.kernel}, {self.what}: more than one {self.old!r}; say which by after=")
        head, anchor, tail = text.partition(self.after) if self.after else ("", "", text)
        if self.old not in tail:
            raise ValueError(f"{self.kernel}, {self.what}: no {self.old!r} behind {self.after!r}")
        return head + anchor + tail.replace(self.old, self.new, 1)
