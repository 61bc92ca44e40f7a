"""The documentation builds without a warning, and every page opens in a browser without an error.

``AIRNP_DOCS_SITE`` may name a site that is already built. Otherwise it is built here, which runs the gallery.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airnp.commands.main import COMMANDS
from tests.chromium import CHROMIUM, look_at

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("sphinx", "dask", "myst_parser", "sphinx_gallery", "numpydoc", "furo", "latex2mathml")
GENERATED = ("auto_gallery", "generated", "_build", "__pycache__")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    built = os.environ.get("AIRNP_DOCS_SITE")
    if built:
        return Path(built)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f'building the site needs pip install "airnp[docs]": {", ".join(missing)} not found')
    # Sphinx writes the gallery beside the sources, so it gets a copy.
    work = tmp_path_factory.mktemp("documentation")
    shutil.copytree(ROOT / "docs", work / "docs", ignore=shutil.ignore_patterns(*GENERATED))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, work)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", "site"],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return work / "site"


@pytest.fixture(scope="module")
def seen(site, tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("needs chromium to open the pages")
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    return look_at(site, pages, tmp_path_factory.mktemp("browser") / "profile", seconds=1800)


def test_site_has_all_pages(site):
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    wanted = {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    wanted |= {f"auto_gallery/{script.stem}.html" for script in (ROOT / "docs" / "gallery").glob("plot_*.py")}
    wanted |= {"api/generated/airnp.fit.html", "api/generated/airnp.sklearn.AIRImputer.html"}
    assert wanted - pages == set()


def test_pages_load_nothing_from_other_hosts(site):
    for page in site.rglob("*.html"):
        loads = re.findall(
            r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]*)",
            page.read_text(encoding="utf-8"),
        )
        assert loads == [], page


def test_gallery_examples_drew_a_figure(site):
    for script in (ROOT / "docs" / "gallery").glob("plot_*.py"):
        page = (site / "auto_gallery" / f"{script.stem}.html").read_text(encoding="utf-8")
        assert f"sphx_glr_{script.stem}_001" in page, script.name
        assert "Traceback" not in page, script.name


def test_command_line_page_shows_the_help_of_all_commands(site):
    page = (site / "command-line.html").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"usage: airnp {command}" in page


def test_all_pages_open(seen):
    assert "error" not in seen, seen.get("error")
    assert len(seen["pages"]) > 80
    assert all(page["title"] for page in seen["pages"])


def test_console_is_empty(seen):
    assert seen["console"] == []


def test_requests_succeed_and_stay_on_this_host(seen):
    assert seen["failures"] == []
    abroad = {
        name
        for page in seen["pages"]
        for name in page["requests"]
        if not name.startswith((seen["home"], "data:"))
    }
    assert abroad == set()


def test_images_load(seen):
    pictures = [image for page in seen["pages"] for image in page["images"]]
    assert len(pictures) > 20
    assert [source for source, width in pictures if width == 0] == []


def test_formulas_are_rendered(seen):
    formulas = {page["page"]: page["math"] for page in seen["pages"]}
    assert len(formulas["gradients.html"]) >= 8
    assert len(formulas["api/generated/airnp.fit.html"]) >= 2
    assert all(height > 5 for heights in formulas.values() for height in heights)


def test_links_between_pages_exist(seen, site):
    home = seen["home"]
    for page in seen["pages"]:
        for target in page["targets"]:
            if target.startswith(home):
                file = target.removeprefix(home).split("#")[0].split("?")[0]
                assert (site / (file or "index.html")).exists(), f"{page['page']} links to {target}"


def test_no_page_is_wider_than_the_window(seen):
    assert {page["page"]: page["too_wide"] for page in seen["pages"] if page["too_wide"] > 0} == {}


def test_search_finds_a_class(seen):
    assert any("AdaptiveLaplacian" in link for link in seen["search"])
