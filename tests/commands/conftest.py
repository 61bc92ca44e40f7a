"""Fixtures for tests of the command line, each of which runs in an empty folder of its own."""

import builtins
import sys

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def without(monkeypatch):
    """A function that makes a package impossible to import."""

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
