"""``tokenweir simulate``: the article's rows, or any workload under any policy."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenweir.cli.options import (
    Json,
    collect_seldom,
    print_json,
    processes,
    progress,
    seeds_of,
    table_console,
)
from tokenweir.cli.replay import replay

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Simulate a policy on an engine.", no_args_is_help=True)
    app.add_typer(group, name="simulate")
    group.command("run", help="The same as replay.")(replay)

    @group.command()
    def article(
        seeds: Annotated[int, typer.Option(help="Average over seeds 1 to N.")] = 1,
        flaws: Annotated[bool, typer.Option(help="Measure what each flaw changes.")] = True,
        checks: Annotated[bool, typer.Option(help="Recount the accounts every second.")] = True,
        as_json: Json = False,
    ) -> None:
        """Print every published row of the article beside ours, then what its flaws change."""
        from tokenweir.study.article.published import PUBLISHED
        from tokenweir.study.article.report import flaws_table, rows_tables
        from tokenweir.study.article.rows import article_rows

        chosen = seeds_of(seeds)
        collect_seldom()
        runs = sum(len(row.queues) for row in PUBLISHED) * len(chosen)
        with progress("runs", total=runs) as bar:
            rows = article_rows(
                seeds=chosen,
                processes=processes() if len(chosen) > 1 else 1,
                checks=checks,
                on_run=lambda: bar.advance(bar.task_ids[0]),
            )
        shown = []
        if flaws:
            from tokenweir.study.article.flaws import FLAWS, flaw_rows

            with progress("flaws", total=len(FLAWS)) as bar:
                shown = flaw_rows(
                    seeds=chosen,
                    processes=processes() if len(chosen) > 1 else 1,
                    on_flaw=lambda: bar.advance(bar.task_ids[0]),
                )
        if as_json:
            document: dict[str, object] = {"rows": rows}
            if flaws:
                document["flaws"] = [
                    {"flaw": f.flaw, "articles_way": f.articles_way, "corrected": f.corrected}
                    for f in shown
                ]
            print_json(document)
            return
        console = table_console()
        for table in rows_tables(rows):
            console.print(table)
        if flaws:
            console.print(flaws_table(shown))
