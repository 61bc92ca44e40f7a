"""One way to break a kernel: an exact replacement in its text."""

from __future__ import annotations

from dataclasses import dataclass

from airnp.engines.launching import module_source

MODULES = {
    **dict.fromkeys(("graph_statistics", "graph_step", "mirror"), "laplacian"),
    **dict.fromkeys(("masked_residual", "add_scaled_lines"), "residual"),
    "add_variation": "variation",
    **dict.fromkeys(("add_laplacian", "add_sparse_laplacian"), "fixed_graph"),
    **dict.fromkeys(("adam", "descend"), "adam"),
    "record": "record",
    "split": "split",
    "match_patches": "patch_matching",
    "fill_groups": "patches",
    **dict.fromkeys(("row_residuals", "entry_values"), "sparse_entries"),
    "edge_terms": "sparse_edges",
    "factor_gram": "sparse_gram",
    **dict.fromkeys(("line_sums", "gap_sums", "join_pieces"), "sparse_lines"),
}
"""The module of every kernel."""


@dataclass(frozen=True)
class Mutation:
    """A plausible defect of a kernel.

    Parameters
    ----------
    kernel : str
        The kernel whose tests must find it.
    what : str
        The defect in a few words.
    old, new : str
        The text as it is, and its replacement.
    after : str
        ``old`` is searched for behind this text, which must be unique. Without it, ``old`` must be unique.
    """

    kernel: str
    what: str
    old: str
    new: str
    after: str = ""

    @property
    def name(self) -> str:
        """The kernel and the defect."""
        return f"{self.kernel}: {self.what}"

    @property
    def module(self) -> str:
        """The module of the kernel."""
        return MODULES[self.kernel]

    def text(self) -> str:
        """Return the text of the module with the defect, shared headers included.

        Raises
        ------
        ValueError
            If the text to replace is missing or ambiguous.
        """
        head, tail = "", module_source(self.module)
        anchor = self.after or self.old
        if tail.count(anchor) != 1:
            problem = "more than one" if anchor in tail else "the text has no"
            raise ValueError(f"{self.name}: {problem} {anchor!r}")
        if self.after:
            head, _, tail = tail.partition(self.after)
            if self.old not in tail:
                raise ValueError(f"{self.name}: no {self.old!r} behind {self.after!r}")
        return head + self.after + tail.replace(self.old, self.new, 1)
