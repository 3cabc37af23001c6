"""``tokenweir arena``: how evenly, and how soon, many tenants are served by each fairness row."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    print_json,
    progress,
    seeds_of,
    table_console,
)
from tokenweir.cli.study_options import Html, Jobs, Seeds, command_line, jobs_from
from tokenweir.study.report.page import check_report

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(arena)


def arena(
    fairness: Annotated[
        str, typer.Option(help="Rows of fairness by comma, or all; fcfs is always run.")
    ] = "all",
    seeds: Seeds = 4,
    jobs: Jobs = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Replay a 27-tenant chat arena, and compare rows of fairness with measured ones."""
    from tokenweir.study.arena.report import arena_page
    from tokenweir.study.arena.run import arena_document, rows_from
    from tokenweir.study.arena.tables import arena_table, verdicts, verdicts_table
    from tokenweir.study.report.page import write_page

    rows, chosen = rows_from(fairness), seeds_of(seeds)
    check_report(html)
    collect_seldom()
    with progress("runs", total=len(rows) * len(chosen)) as bar:
        document = arena_document(
            rows,
            seeds=chosen,
            processes=jobs_from(jobs, backend=None),
            on_run=lambda: bar.advance(bar.task_ids[0]),
        )
    found = verdicts(document)
    if html is not None:
        write_page(arena_page(document, found, command=command_line()), html)
    if as_json:
        print_json({**document, "targets": found})
        return
    console = table_console()
    console.print(arena_table(document))
    console.print(verdicts_table(found))
    console.print(f"engine {document['profile']}: {document['source']}")
