"""Sections of text and tables, as Markdown and as one HTML file that needs no other."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.timing import markdown


@dataclass(frozen=True)
class Text:
    """What stands in one field of a table."""

    main: str
    note: str = ""
    is_best: bool = False
    is_met: bool | None = None
    """Whether a goal is met; None where there is none."""

    def as_markdown(self) -> str:
        main = f"**{self.main}**" if self.is_best else self.main
        sign = {True: "✓", False: "✗", None: ""}[self.is_met]
        return " ".join(part for part in (main, self.note, sign) if part).replace("|", "\\|")

    def as_html(self) -> str:
        main, note = html.escape(self.main), html.escape(self.note)
        style = {True: ' class="met"', False: ' class="missed"', None: ""}[self.is_met]
        main = f"<b>{main}</b>" if self.is_best else main
        return f"<td{style}>{main}" + (f" <small>{note}</small>" if note else "") + "</td>"


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and perhaps a table."""

    title: str
    sentences: Sequence[str]
    header: Sequence[str] = ()
    body: Sequence[Sequence[Text]] = field(default_factory=list)


def as_markdown(title: str, sections: Sequence[Section]) -> str:
    parts = [f"# {title}"]
    for section in sections:
        parts += [f"## {section.title}", *section.sentences]
        if section.body:
            parts.append(
                markdown(
                    list(section.header), [[text.as_markdown() for text in line] for line in section.body]
                )
            )
    return "\n\n".join(parts) + "\n"


def as_html(title: str, sections: Sequence[Section]) -> str:
    parts = []
    for section in sections:
        parts.append(f"<h2>{html.escape(section.title)}</h2>")
        parts += [f"<p>{html.escape(sentence)}</p>" for sentence in section.sentences]
        if section.body:
            head = "".join(f"<th>{html.escape(name)}</th>" for name in section.header)
            lines = "\n".join(
                "<tr>" + "".join(text.as_html() for text in line) + "</tr>" for line in section.body
            )
            parts.append(f"<div><table>\n<tr>{head}</tr>\n{lines}\n</table></div>")
    return _PAGE.format(title=html.escape(title), body="\n".join(parts))


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #222; background: #fff; }}
p {{ max-width: 60rem; }}
div {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .35rem .7rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }}
th {{ background: #f4f4f4; }}
th:first-child, td:first-child {{ position: sticky; left: 0; background: #f4f4f4; }}
td small {{ display: block; color: #666; }}
td.met {{ background: #d9f2dd; }}
td.missed {{ background: #f9d9d6; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""
