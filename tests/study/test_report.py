"""Reports: one page, nothing fetched, nothing injected."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.study.report.figures import heat, intervals, line, plot_of
from tokenweir.study.report.page import (
    Card,
    Page,
    Plot,
    Section,
    TableData,
    check_report,
    page_html,
    write_page,
)

_LOADERS = ("src", "href", "srcset", "data", "action", "poster", "background")
_HOSTILE = '</script><img src=x onerror="alert(1)">'


class Tags(HTMLParser):
    """What a page is made of: tags, what they would load, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.policy = ""
        self.scripts: list[str] = []
        self._is_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")
        self.loads += [value or "" for name, value in attrs if name in _LOADERS]
        named = dict(attrs)
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        """End a script."""
        self._is_script = self._is_script and tag != "script"

    def handle_data(self, data: str) -> None:
        """Take in a script."""
        if self._is_script:
            self.scripts[-1] += data


def page(text: str = "plain") -> Page:
    """Return a page with one of everything, a text wherever a user's text may stand."""
    plot = plot_of(
        [line(text, x=[1.0, 2.0], y=[0.5, None], number=0, half=[0.1, None])], x="load", y=text
    )
    sections = [
        Section(
            text,
            text,
            cards=[Card(text, text, text, None, [text]), Card("a", "1", "b", is_good=True)],
        ),
        Section(
            "Plots",
            plots=[Plot(text, {"one": plot, "two": plot}), Plot("other", {"one": plot})],
        ),
        Section("Table", table=TableData([text, "n"], [[text, 0.5], ["b", None]]), is_folded=True),
    ]
    return Page(text, [text], text, sections)


def parsed(text: str) -> Tags:
    """Return what a page is made of."""
    tags = Tags()
    tags.feed(text)
    return tags


def test_page_when_opened_then_it_asks_for_nothing_outside_itself() -> None:
    """No tag loads anything, and the page forbids what a script might try."""
    tags = parsed(page_html(page()))
    assert tags.loads == []
    assert "link" not in tags.tags
    assert tags.policy.startswith("default-src 'none'")
    assert "http" not in tags.policy


def test_page_when_a_text_is_hostile_then_it_stays_a_text() -> None:
    """Names of files and policies, whatever they hold, make no tags and end no script."""
    plain, hostile = parsed(page_html(page())), parsed(page_html(page(_HOSTILE)))
    assert plain.tags == hostile.tags
    assert len(hostile.scripts) == 2
    data = hostile.scripts[1].split(";", 1)[0].removeprefix("const PLOTS=")
    assert json.loads(hostile.scripts[1].removeprefix("const PLOTS=").split(';"use strict"')[0])
    assert "<\\/script>" in data


def test_page_when_written_twice_then_the_bytes_are_equal(tmp_path: Path) -> None:
    """Same study, same page; no draft is left behind."""
    files = [tmp_path / "a.html", tmp_path / "b.html"]
    for file in files:
        check_report(file)
        write_page(page(), file)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == files


def test_page_when_plots_have_several_views_then_they_can_be_chosen() -> None:
    """One chooser with each view once; sections without views have none."""
    text = page_html(page())
    assert text.count('<select class="view">') == 1
    assert text.count("<option>") == 2


@pytest.mark.parametrize(
    "trace",
    [
        line("a", x=[1.0], y=[2.0], number=99),
        heat([[1.0, None]], x=["1", "2"], y=["a"], middle=1.0),
        intervals(["a"], [0.1], half=[None]),
    ],
)
def test_trace_when_made_then_plotly_takes_it(trace: dict[str, Any]) -> None:
    """Every property exists and has a value that is allowed."""
    import plotly.graph_objects as objects

    figure = plot_of([trace], x="x", y="y", yaxis={"range": [0, 1]})
    assert objects.Figure(figure).to_plotly_json()["layout"]["yaxis"]["range"] == [0, 1]


def test_line_when_there_are_no_intervals_then_there_are_no_bars() -> None:
    """A single seed shows no false certainty."""
    assert "error_y" not in line("a", x=[1.0], y=[2.0], number=0, half=[None])


def test_check_report_when_it_cannot_be_written_then_one_line_says_so(tmp_path: Path) -> None:
    """Before the first run, not after the last."""
    with pytest.raises(ConfigError, match="cannot be written"):
        check_report(tmp_path / "missing" / "page.html")
    with pytest.raises(ConfigError, match="cannot be written"):
        check_report(tmp_path)
    check_report(None)
