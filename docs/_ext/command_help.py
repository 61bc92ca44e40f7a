"""A directive ``command-help``: what ``airnp … --help`` prints, asked for at each build."""

from __future__ import annotations

import contextlib
import io
import os
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from airnp.commands.main import COMMANDS, main

_WIDTH = "92"


def help_of(*words: str) -> str:
    """Return what a command prints when asked for help."""
    printed = io.StringIO()
    plain = {"COLUMNS": _WIDTH, "NO_COLOR": "1"}
    with patch.dict(os.environ, plain), contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return printed.getvalue()


class CommandHelp(SphinxDirective):
    """Without content: help of the whole program, then a section for each command that it has."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        return [_literal(help_of()), *(self._section(name) for name in COMMANDS)]

    def _section(self, name: str) -> nodes.section:
        section = nodes.section(ids=[f"airnp-{name}"], names=[f"airnp {name}"])
        title = nodes.title("", "", nodes.literal("", f"airnp {name}"))
        section += [title, _literal(help_of(name))]
        self.state.document.note_implicit_target(section, section)
        return section


def _literal(text: str) -> nodes.container:
    return nodes.container("", nodes.literal_block(text, text, language="text"), classes=["command-help"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
