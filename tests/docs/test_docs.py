"""Run the examples of the documentation and check its links, contents and reference."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import runpy
from pathlib import Path

import pytest

import airnp

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
GALLERY = sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))
REFERENCE = sorted((ROOT / "docs" / "api").glob("*.rst"))
PUBLIC_MODULES = [
    f"airnp.{name}" for name in ("baselines", "dask", "datasets", "masks", "metrics", "plot", "sklearn")
]
EXPORTED_TWICE = {"airnp.plot.GraphRecorder"}
"""Names that the reference lists under airnp itself."""
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(airnp.__path__, "airnp.")
    if module.name != "airnp.__main__"
)


def python_blocks(page: Path) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_pages_have_python_blocks():
    assert python_blocks(ROOT / "README.md")
    assert len(python_blocks(ROOT / "docs" / "objective.md")) >= 4


@pytest.mark.parametrize("name", ["airnp", *MODULES])
def test_docstring_examples(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_exist(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem)
def test_gallery_program_runs(script, tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert pyplot.get_fignums()
    pyplot.close("all")


def test_every_page_is_in_a_table_of_contents():
    front = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {
        name for tree in re.findall(r"```{toctree}(.*?)```", front, flags=re.DOTALL) for name in tree.split()
    }
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages - listed == set(), "add these to a toctree of docs/index.md"


def names_in_the_reference(pages):
    """Return the full names that pages of the reference list."""
    listed = set()
    for page in pages:
        current = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                current = line.split()[-1]
            elif current and re.fullmatch(r"   [\w.]+", line):
                listed.add(f"{current}.{line.strip()}")
    return listed


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_names_in_the_reference_exist(page):
    for name in names_in_the_reference([page]):
        assert pkgutil.resolve_name(name).__doc__, name


@pytest.mark.parametrize("module", ["airnp", *PUBLIC_MODULES])
def test_public_names_are_in_the_reference(module):
    names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    missing = names - names_in_the_reference(REFERENCE) - set(PUBLIC_MODULES) - EXPORTED_TWICE
    assert missing == set(), "add these to a page of docs/api"
