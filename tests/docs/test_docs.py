"""Python blocks of README and docs run, page by page; so do docstring examples and the gallery's programs."""

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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GALLERY = sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))
REFERENCE = sorted((ROOT / "docs" / "api").glob("*.rst"))
DOCUMENTED = ("baselines", "dask", "datasets", "graphs", "masks", "metrics", "plot", "sklearn", "sparse")
FROM_AIRNP = {
    "airnp.plot.GraphRecorder",
    "airnp.results.sparse_result.SparseFitResult",
    "airnp.ratings.ratings.fit_ratings",
}
"""What these modules have of airnp's own names, under which the reference has it."""
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
def test_the_python_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_there_are_blocks_to_run():
    assert python_blocks(ROOT / "README.md")
    assert len(python_blocks(ROOT / "docs" / "objective.md")) >= 4


@pytest.mark.parametrize("name", ["airnp", *MODULES])
def test_docstring_examples(name):
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_of_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem)
def test_a_program_of_the_gallery_runs(script, tmp_path, monkeypatch):
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
    """Return the full names in the lists of pages of the reference."""
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
def test_every_name_in_the_reference_is_there(page):
    for name in names_in_the_reference([page]):
        assert pkgutil.resolve_name(name).__doc__, name


@pytest.mark.parametrize("module", ["airnp", *(f"airnp.{name}" for name in DOCUMENTED)])
def test_every_public_name_is_in_the_reference(module):
    listed = names_in_the_reference(REFERENCE)
    names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    modules = {f"airnp.{name}" for name in DOCUMENTED}
    missing = names - listed - modules - FROM_AIRNP
    assert missing == set(), "add these to a page of docs/api"
