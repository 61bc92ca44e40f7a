"""Formulas as MathML, which browsers draw themselves: no script, no font and no network are needed."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _markup(latex: str, display: str) -> str:
    try:
        return str(convert(latex, display=display))
    except Exception as error:
        raise nodes.SkipNode(f"formula: {latex!r} cannot be converted: {error}") from error


def _visit_inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_markup(node.astext(), "inline"))
    raise nodes.SkipNode


def _visit_block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    for line in node.astext().split("\n\n"):
        translator.body.append(_markup(line, "block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
