"""Running the command line in tests: in this process, or in one of its own."""

import builtins
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import airnp
from airnp.commands import main as cli


def main(*words):
    """Run the command line in this process and return its exit code, however it leaves."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as left:
        return left.code


def facts(capsys, *words):
    """Run a command that must succeed with ``--json`` and return what it says it did."""
    assert main(*words, "--json") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def mistake(capsys, *words, code=2):
    """Run a command that must fail in one line, and return what it says without its name."""
    assert main(*words) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    start = f"airnp {words[0]}: "
    assert shown.err.startswith(start)
    assert shown.err.count("\n") == 1
    return shown.err.removeprefix(start).rstrip("\n")


def environment(**more):
    """Return the variables of a process that finds the same airnp as this one."""
    root = Path(airnp.__file__).resolve().parents[1]
    return {**os.environ, "PYTHONPATH": str(root), **more}


COMPILING = "airnp: compiling for this machine, once (a few seconds) ...\n"


def process(*words, **options):
    """Run ``python -m airnp`` to its end; that it compiled, if it did, is left out."""
    command = [sys.executable, "-m", "airnp", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=300, check=False, **options
    )
    done.stderr = done.stderr.replace(COMPILING, "")
    return done


@pytest.fixture
def without(monkeypatch):
    """Make a package impossible to import."""

    def hide(package):
        for name in list(sys.modules):
            if name == package or name.startswith(f"{package}."):
                monkeypatch.delitem(sys.modules, name)
        importing = builtins.__import__

        def refuse(name, *rest, **options):
            if name == package or name.startswith(f"{package}."):
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
            return importing(name, *rest, **options)

        monkeypatch.setattr(builtins, "__import__", refuse)

    return hide
