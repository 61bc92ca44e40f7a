"""The documentation builds without a warning, and every page of it opens in a browser without an error.

``AIRNP_DOCS_SITE`` may name a site that is built already; otherwise it is built here, which runs the gallery.
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

from tests.chromium import CHROMIUM, look_at

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("sphinx", "myst_parser", "sphinx_gallery", "numpydoc", "furo", "latex2mathml")
GENERATED = ("auto_gallery", "generated", "_build", "__pycache__")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    built = os.environ.get("AIRNP_DOCS_SITE")
    if built:
        return Path(built)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f'building the site needs pip install "airnp[docs]": {", ".join(missing)} not found')
    # The gallery is written beside the sources. A copy of them leaves the checkout as it is.
    work = tmp_path_factory.mktemp("documentation")
    shutil.copytree(ROOT / "docs", work / "docs", ignore=shutil.ignore_patterns(*GENERATED))
    shutil.copy(ROOT / "CHANGELOG.md", work)
    (work / "airnp").symlink_to(ROOT / "airnp")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", "site"],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return work / "site"


@pytest.fixture(scope="module")
def seen(site, tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine to open the pages with")
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    return look_at(site, pages, tmp_path_factory.mktemp("browser") / "profile", seconds=300)


def test_the_site_has_its_pages(site):
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    wanted = {f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    wanted |= {f"auto_gallery/{script.stem}.html" for script in (ROOT / "docs" / "gallery").glob("plot_*.py")}
    wanted |= {"api/generated/airnp.fit.html", "api/generated/airnp.sklearn.AIRImputer.html"}
    assert wanted - pages == set()


def test_no_page_names_another_host_to_load_from(site):
    for page in site.rglob("*.html"):
        loads = re.findall(
            r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]*)",
            page.read_text(encoding="utf-8"),
        )
        assert loads == [], page


def test_every_example_of_the_gallery_drew_something(site):
    for script in (ROOT / "docs" / "gallery").glob("plot_*.py"):
        page = (site / "auto_gallery" / f"{script.stem}.html").read_text(encoding="utf-8")
        assert f"sphx_glr_{script.stem}_001" in page, script.name
        assert "Traceback" not in page, script.name


def test_the_command_line_is_what_the_commands_print(site):
    page = (site / "command-line.html").read_text(encoding="utf-8")
    for command in ("complete", "inpaint", "graph", "demo", "data", "bench", "info"):
        assert f"usage: airnp {command}" in page


def test_all_pages_open(seen):
    assert "error" not in seen, seen.get("error")
    assert len(seen["pages"]) > 80
    assert all(page["title"] for page in seen["pages"])


def test_nothing_is_said_on_the_console(seen):
    assert seen["console"] == []


def test_all_requests_are_answered_and_none_goes_to_another_host(seen):
    assert seen["failures"] == []
    abroad = {
        name
        for page in seen["pages"]
        for name in page["requests"]
        if not name.startswith((seen["home"], "data:"))
    }
    assert abroad == set()


def test_all_pictures_are_there(seen):
    pictures = [image for page in seen["pages"] for image in page["images"]]
    assert len(pictures) > 20
    assert [source for source, width in pictures if width == 0] == []


def test_formulas_are_drawn(seen):
    formulas = {page["page"]: page["math"] for page in seen["pages"]}
    assert len(formulas["gradients.html"]) >= 8
    assert len(formulas["api/generated/airnp.fit.html"]) >= 2
    assert all(height > 5 for heights in formulas.values() for height in heights)


def test_links_between_pages_lead_somewhere(seen, site):
    home = seen["home"]
    for page in seen["pages"]:
        for target in page["targets"]:
            if target.startswith(home):
                file = target.removeprefix(home).split("#")[0].split("?")[0]
                assert (site / (file or "index.html")).exists(), f"{page['page']} links to {target}"


def test_no_page_is_wider_than_the_window(seen):
    assert {page["page"]: page["too_wide"] for page in seen["pages"] if page["too_wide"] > 0} == {}


def test_the_search_finds_something(seen):
    assert any("AdaptiveLaplacian" in link for link in seen["search"])
