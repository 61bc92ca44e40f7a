"""Put the existing tables and figures into one HTML file that needs no other.

    python -m bench.report [--results bench/results] [--out bench/results/report.html]

It computes nothing. For each missing part it names the command that makes it.
"""

from __future__ import annotations

import argparse
import base64
import html
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bench.figures.captions import CAPTIONS, Caption
from bench.speed import RESULTS

WIDEST = 1600
"""The largest width of a picture in pixels, enough for a large screen."""


@dataclass(frozen=True)
class Table:
    """A table that another command writes as Markdown."""

    name: str
    title: str
    file: str
    command: str


TABLES = (
    Table("table1", "Errors of all methods", "table1/table1.md", "python -m bench.table1"),
    Table("table2", "Computing time", "table2.md", "python -m bench.table2"),
)


def main(argv: list[str] | None = None) -> None:
    """Write the report and print what is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the tables")
    parser.add_argument("--figures", type=Path, help="folder of the figures; default RESULTS/figures")
    parser.add_argument("--out", type=Path, help="default RESULTS/report.html")
    arguments = parser.parse_args(argv)
    figures = arguments.figures or arguments.results / "figures"
    out = arguments.out or arguments.results / "report.html"
    page, missing = report(arguments.results, figures)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
    for name, command in missing.items():
        print(f"missing: {name}; {command} makes it")


def report(results: Path, figures: Path) -> tuple[str, dict[str, str]]:
    """Return the page, and the command for each missing part."""
    missing: dict[str, str] = {}
    sections, contents = [], []
    for table in TABLES:
        path = results / table.file
        if path.is_file():
            body = from_markdown(path.read_text(encoding="utf-8"))
        else:
            missing[table.name] = table.command
            body = absent(table.command)
        sections.append(section(table.name, table.title, body))
        contents.append((table.name, table.title, path.is_file()))
    notes: list[dict] = []
    for name, caption in CAPTIONS.items():
        path = figures / f"{name}.png"
        about = _about(figures / f"{name}.json")
        if path.is_file():
            body = figure(path, caption, about)
        else:
            missing[name] = caption.command
            body = absent(caption.command)
        notes += [about] if path.is_file() and about else []
        sections.append(section(name, caption.title, body))
        contents.append((name, caption.title, path.is_file()))
    links = "".join(
        f'<li><a href="#{name}">{html.escape(title)}</a>{"" if there else " (missing)"}</li>'
        for name, title, there in contents
    )
    page = _PAGE.format(contents=links, facts=facts(notes), body="\n".join(sections))
    return page, missing


def _about(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def section(name: str, title: str, body: str) -> str:
    return f'<section id="{name}"><h2>{html.escape(title)}</h2>\n{body}\n</section>'


def absent(command: str) -> str:
    return f'<p class="absent">Not there yet: <code>{html.escape(command)}</code> makes it.</p>'


def figure(path: Path, caption: Caption, about: dict) -> str:
    """Return a picture with its caption; that of a quick figure is not compared with the paper."""
    picture = base64.b64encode(compact(path)).decode("ascii")
    lines = [("Shown", caption.shows), ("Settings", caption.settings)]
    old = len(about.get("runs_of_other_code", []))
    if old:
        lines.append(("Code", f"{old} of its {len(about['runs'])} runs were made by other code of airnp."))
    if about.get("quick"):
        lines.append(
            ("Quick", "Small and short, to see that all works; it cannot be compared with the paper.")
        )
    else:
        lines += [("The paper", caption.paper), ("Here", caption.ours)]
    listed = "".join(f"<dt>{name}</dt><dd>{inline(text)}</dd>" for name, text in lines)
    return (
        f'<figure><div class="wide"><img alt="{html.escape(caption.title)}" '
        f'src="data:image/png;base64,{picture}"></div>'
        f"<figcaption><dl>{listed}<dt>Command</dt><dd><code>{html.escape(caption.command)}</code></dd></dl>"
        "</figcaption></figure>"
    )


def compact(path: Path) -> bytes:
    """Return a picture as PNG, not wider than :data:`WIDEST`, with 256 colours if that is smaller."""
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    if picture.width > WIDEST:
        height = round(picture.height * WIDEST / picture.width)
        picture = picture.resize((WIDEST, height), Image.Resampling.LANCZOS)
    return min(_png(picture), _png(picture.quantize(256)), key=len)


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def facts(notes: list[dict]) -> str:
    """Return the versions and numbers of threads that the figures were made with."""
    found: dict[str, set[str]] = {}
    for note in notes:
        for name, value in {**note.get("versions", {}), "threads": note.get("threads")}.items():
            found.setdefault(name, set()).add(str(value))
    if not found:
        return ""
    listed = ", ".join(f"{name} {' and '.join(sorted(values))}" for name, values in found.items())
    return f"<p>The figures were made with {html.escape(listed)}.</p>"


def inline(text: str) -> str:
    """Return text as HTML, with **strong** words and `code` marked up."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)


def from_markdown(text: str) -> str:
    """Return Markdown of headings, paragraphs and tables as HTML."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            parts.append(_table(lines))
        elif lines[0].startswith("#"):
            level = 1 + len(lines[0]) - len(lines[0].lstrip("#"))
            # The report has a title of its own.
            parts += [f"<h{level}>{inline(lines[0].lstrip('# '))}</h{level}>"] if level > 2 else []
            lines = lines[1:]
            parts += [f"<p>{inline(' '.join(lines))}</p>"] if lines else []
        else:
            parts.append(f"<p>{inline(' '.join(lines))}</p>")
    return "\n".join(parts)


def _table(lines: list[str]) -> str:
    def fields(line: str) -> list[str]:
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        return [inline(cell.strip().replace("\\|", "|")) for cell in cells]

    head = "".join(f"<th>{field}</th>" for field in fields(lines[0]))
    body = "\n".join(
        "<tr>" + "".join(f"<td>{field}</td>" for field in fields(line)) + "</tr>" for line in lines[2:]
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>airnp: the paper, repeated</title>
<style>
:root {{ --ink: #1c1c1e; --paper: #ffffff; --soft: #f2f3f5; --line: #d4d6da; --link: #0b5cad; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e6e8; --paper: #17181a; --soft: #232528; --line: #3c3f44; --link: #7fb8f0; }}
}}
* {{ box-sizing: border-box; }}
body {{ margin: 0 auto; padding: 1rem; max-width: 75rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; }}
h2 {{ font-size: 1.3rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }}
h3 {{ font-size: 1.05rem; }}
a {{ color: var(--link); }}
nav ul {{ padding-left: 1.2rem; columns: 18rem; }}
p, dl {{ max-width: 52rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }}
th, td {{ border: 1px solid var(--line); padding: .25rem .5rem; text-align: left; min-width: 3.5rem; }}
th {{ background: var(--soft); }}
/* The name of a row stays in sight when a wide table is scrolled. */
tr > :first-child {{ position: sticky; left: 0; background: var(--soft); white-space: nowrap; }}
figure {{ margin: 1rem 0; }}
/* The pictures have a white ground of their own; in the dark it needs an edge. */
img {{ display: block; max-width: 100%; height: auto; background: #fff; border-radius: 4px; }}
figcaption {{ font-size: .92rem; }}
dt {{ font-weight: 600; margin-top: .4rem; }}
dd {{ margin: 0; }}
code {{ background: var(--soft); padding: .05rem .3rem; border-radius: 3px; }}
.absent {{ border-left: 4px solid #c77700; background: var(--soft); padding: .6rem .8rem; }}
@media (max-width: 40rem) {{ .wide img {{ max-width: none; width: 44rem; }} }}
</style>
</head>
<body>
<h1>airnp: the paper, repeated</h1>
<p>Tables and figures of <i>Adaptive and Implicit Regularization for Matrix Completion</i>, computed anew by
airnp, each beside what the paper says. On a small screen wide tables and figures scroll sideways.</p>
{facts}
<nav><h2>Contents</h2><ul>{contents}</ul></nav>
{body}
</body>
</html>
"""


if __name__ == "__main__":
    main()
