"""Run the command line in tests: in this process, or in one of its own."""

import csv
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import airnp
from airnp.commands import main as cli


def main(line):
    """Run a command line as a user types it, without ``airnp``, and return its exit code."""
    try:
        return cli.main(shlex.split(line))
    except SystemExit as left:
        return left.code


def facts(capsys, line):
    """Run a command that must succeed with ``--json``, and return what it prints."""
    assert main(f"{line} --json") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def mistake(capsys, line, code=2):
    """Run a command that must fail with a message of one line, and return it without the command's name."""
    assert main(line) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    start = f"airnp {line.split()[0]}: "
    assert shown.err.startswith(start)
    assert shown.err.count("\n") == 1
    return shown.err.removeprefix(start).rstrip("\n")


def start(*words, **options):
    """Start Python in a process that finds the same airnp as this one."""
    environment = {**os.environ, "PYTHONPATH": str(Path(airnp.__file__).resolve().parents[1])}
    command = [sys.executable, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True, **options)


def cells(path):
    """Return the cells of a .csv file."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))
