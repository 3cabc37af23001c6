"""How is a report put on one page that opens anywhere, offline?

Model: a page is a title, the command that made it, and sections: text, verdicts, plots, tables.
Plots are plotly figures as plain data; plotly's script, the page's own and its style are written
into the page, and its policy forbids the browser to load anything else.
Trade-off: 4.8 MB a page, nearly all of it plotly's script; for that a page needs nothing and keeps.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from tokenweir.core.errors import ConfigError

__all__ = [
    "Card",
    "Page",
    "Plot",
    "Section",
    "TableData",
    "check_report",
    "page_html",
    "write_page",
]

Figure = dict[str, Any]

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot, or several views of it under the same name, of which one is shown at a time.

    Attributes:
        name: Stands above it.
        views: plotly figures (data and layout) by name of the view.
        height_px: Of the plot.
        is_wide: Whether it takes the whole width.
    """

    name: str
    views: dict[str, Figure]
    height_px: int = 320
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class TableData:
    """A table: headings, and rows of cells; numbers are set right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True, slots=True)
class Card:
    """A verdict in a few words, with what does not fit into them."""

    name: str
    figure: str
    what: str
    is_good: bool | None
    details: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    heading: str
    text: str = ""
    cards: Sequence[Card] = ()
    plots: Sequence[Plot] = ()
    table: TableData | None = None
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A report.

    Attributes:
        title: What it is about.
        lead: Sentences under it.
        command: Line that makes it again.
        sections: In order.
    """

    title: str
    lead: Sequence[str]
    command: str
    sections: Sequence[Section]


def check_report(file: Path | None) -> None:
    """Check before a long run that its report can be written.

    Raises:
        ConfigError: plotly is not installed, or the file cannot be written.
    """
    if file is None:
        return
    try:
        import plotly  # noqa: F401
    except ImportError:
        raise ConfigError(
            "--html needs the package plotly, allowed: pip install 'tokenweir[report]'"
        ) from None
    try:
        with file.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--html {file}: cannot be written: {error.strerror}, allowed: a file"
        ) from None


def write_page(page: Page, file: Path) -> None:
    """Write a page to a file, in one piece: whoever reads it meanwhile sees the old one."""
    draft = file.with_name(f"{file.name}.part")
    draft.write_text(page_html(page), encoding="utf-8")
    draft.replace(file)


def page_html(page: Page) -> str:
    """Return the page; the same page gives the same bytes."""
    from plotly.offline import get_plotlyjs

    here = resources.files("tokenweir.study.report")
    style, script = ((here / name).read_text("utf-8") for name in ("page.css", "page.js"))
    plots: list[Plot] = []
    body = "".join(_section(section, plots) for section in page.sections)
    views = [[{"view": name, **figure} for name, figure in plot.views.items()] for plot in plots]
    # "</" would end the script whatever string it stands in.
    data = json.dumps(views, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    title, lead = html.escape(page.title), "".join(f"<p>{html.escape(s)}</p>" for s in page.lead)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body><header><h1>{title}</h1>{lead}"
        f"<pre><code>{html.escape(page.command)}</code></pre></header><main>{body}</main>"
        f"<footer>tokenweir {html.escape(metadata.version('tokenweir'))}</footer>"
        f"<script>{get_plotlyjs()}</script><script>const PLOTS={data};{script}</script>"
        "</body></html>\n"
    )


def _section(section: Section, plots: list[Plot]) -> str:
    parts = [f"<p>{html.escape(section.text)}</p>" if section.text else ""]
    if section.cards:
        parts.append(f'<div class="cards">{"".join(map(_card, section.cards))}</div>')
    if section.plots:
        parts.append(_chooser(section.plots))
        parts.append('<div class="plots">')
        for plot in section.plots:
            parts.append(
                f'<figure class="{"wide" if plot.is_wide else ""}"><figcaption>'
                f"{html.escape(plot.name)}</figcaption>"
                f'<div class="plot" id="plot-{len(plots)}" style="height:{plot.height_px}px"></div>'
                "</figure>"
            )
            plots.append(plot)
        parts.append("</div>")
    if section.table is not None:
        parts.append(_table(section.table))
    heading, inside = html.escape(section.heading), "".join(parts)
    if section.is_folded:
        return f"<details><summary>{heading}</summary>{inside}</details>"
    return f"<section><h2>{heading}</h2>{inside}</section>"


def _chooser(plots: Sequence[Plot]) -> str:
    views = list(dict.fromkeys(view for plot in plots for view in plot.views))
    if len(views) < 2:
        return ""
    options = "".join(f"<option>{html.escape(view)}</option>" for view in views)
    return f'<label>Show <select class="view">{options}</select></label>'


def _card(card: Card) -> str:
    state = {True: "kept", False: "broken", None: "plain"}[card.is_good]
    word = {True: "kept", False: "not kept", None: ""}[card.is_good]
    more = "".join(f"<li>{html.escape(line)}</li>" for line in card.details)
    folded = f"<details><summary>{len(card.details)} cases</summary><ul>{more}</ul></details>"
    return (
        f'<div class="card {state}"><h3>{html.escape(card.name)} <span>{word}</span></h3>'
        f"<strong>{html.escape(card.figure)}</strong><p>{html.escape(card.what)}</p>"
        f"{folded if card.details else ''}</div>"
    )


def _table(table: TableData) -> str:
    kinds = [
        ' class="number"' if any(isinstance(row[i], (int, float)) for row in table.rows) else ""
        for i in range(len(table.headings))
    ]
    head = "".join(
        f'<th scope="col"{kind}>{html.escape(heading)}</th>'
        for kind, heading in zip(kinds, table.headings, strict=True)
    )
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    inside = f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll"><table>{inside}</table></div>'


def _cell(value: str | float | None) -> str:
    if isinstance(value, str):
        return f"<td>{html.escape(value)}</td>"
    if value is None:
        return '<td class="number" data-value="">&ndash;</td>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f'<td class="number" data-value="{value!r}">{text}</td>'
