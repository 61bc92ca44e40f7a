"""A headless Chromium that opens all pages of a site, and tells what went wrong on them.

The site is served on the loopback address. Beside it the server has one page of its own, which opens the
others in a frame, one after the other, looks at them from within, and posts what it found. So nothing has to
be driven from outside, and no package for that is needed. Names of other hosts do not resolve, so a request
to one fails.
"""

from __future__ import annotations

import json
import queue
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--enable-logging=stderr",
    "--window-size=1200,900",
]

_LOOK = """<!doctype html><meta charset="utf-8"><title>looking</title><link rel="icon" href="data:,">
<iframe id="frame" width="1100" height="850"></iframe>
<script>
const pages = PAGES;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function opened(page) {
  const frame = document.getElementById("frame");
  const loaded = new Promise((done) => frame.addEventListener("load", done, {once: true}));
  frame.src = "/" + page;
  await loaded;
  return frame.contentWindow;
}
async function images(view) {
  const all = [...view.document.images];
  for (const image of all) image.loading = "eager";
  await Promise.all(all.map((image) => image.decode().catch(() => null)));
  return all.map((image) => [image.getAttribute("src"), image.naturalWidth]);
}
async function look(page) {
  const view = await opened(page);
  const found = {page, images: await images(view)};
  found.requests = view.performance.getEntriesByType("resource").map((entry) => entry.name);
  found.math = [...view.document.querySelectorAll("math")].map((one) => one.getBoundingClientRect().height);
  found.title = view.document.title;
  found.targets = [...view.document.querySelectorAll("a[href]")].map((a) => a.href);
  found.too_wide = view.document.documentElement.scrollWidth - view.innerWidth;
  return found;
}
async function search(word) {
  const view = await opened("search.html?q=" + word);
  for (let i = 0; i < 100; i++) {
    const links = [...view.document.querySelectorAll("#search-results li a")].map((a) => a.href);
    if (links.length) return links;
    await pause(100);
  }
  return [];
}
(async () => {
  const report = {pages: [], search: []};
  try {
    for (const page of pages) report.pages.push(await look(page));
    report.search = await search("AdaptiveLaplacian");
  } catch (error) {
    report.error = String(error);
  }
  await fetch("/report", {method: "POST", body: JSON.stringify(report)});
})();
</script>
"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the site, the page that looks at it, and takes the report."""

    def __init__(self, *args: Any, pages: list[str], reports: Any, failures: list[str], **more: Any) -> None:
        self._pages, self._reports, self._failures = pages, reports, failures
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        if self.path != "/look":
            super().do_GET()
            return
        body = _LOOK.replace("PAGES", json.dumps(self._pages)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self._reports.put(report)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        if int(code) >= 400:
            self._failures.append(f"{int(code)} {unquote(self.path)}")

    def log_message(self, *words: Any) -> None:
        pass


def look_at(site: Path, pages: list[str], profile: Path, seconds: float) -> dict[str, Any]:
    """Return what Chromium finds on the pages of a site.

    Parameters
    ----------
    site : Path
        A folder with HTML files.
    pages : list of str
        Which of them to open, relative to the folder.
    profile : Path
        A new folder for Chromium's files.
    seconds : float
        How long to wait at most.

    Returns
    -------
    dict
        ``pages``: for each its images with their widths, requests, heights of formulas, links; ``search``:
        what the search for "AdaptiveLaplacian" finds; ``failures``: requests that the server refused;
        ``console``: lines that the pages wrote to the console; ``home``: address of the server.
    """
    reports: queue.Queue[dict[str, Any]] = queue.Queue()
    failures: list[str] = []
    handler = partial(_Handler, directory=str(site), pages=pages, reports=reports, failures=failures)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    home = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    log = profile.parent / "chromium.log"
    with log.open("wb") as errors:
        browser = subprocess.Popen(
            [str(CHROMIUM), *_FLAGS, f"--user-data-dir={profile}", f"{home}look"],
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            report = reports.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(
                f"no report within {seconds} s; Chromium said:\n{log.read_text(errors='replace')[-2000:]}"
            ) from None
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
            server.server_close()
    console = re.findall(r"CONSOLE.*", log.read_text(errors="replace"))
    return {**report, "failures": failures, "console": console, "home": home}
