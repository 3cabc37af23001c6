"""How is a comparison shown in a terminal?"""

from __future__ import annotations

from typing import Any

from rich.table import Table

__all__ = ["comparison_table"]


def comparison_table(document: dict[str, Any]) -> Table:
    """Return one line per figure."""
    first, second = document["first"], document["second"]
    title = (
        f"{first} - {second} on the same {document['requests']:,} requests of {document['trace']}, "
        f"{document['profile']} at {document['load']:g} x capacity"
    )
    apart = document["good_under"]
    caption = (
        f"paired by {document['pairs_are']}; good under both {apart['both']:,.0f}, {first} only "
        f"{apart['first_only']:,.0f}, {second} only {apart['second_only']:,.0f}"
    )
    if not document["is_complete"]:
        caption += f"; interrupted after {document['seeds']} seeds"
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column("figure", no_wrap=True)
    for heading in (first, second, "difference", "± 95 %"):
        table.add_column(heading, justify="right")
    table.add_column("more than chance")
    for row in document["figures"]:
        numbers = [row[name] for name in ("first", "second", "difference", "ci95")]
        cells = ["-" if number is None else f"{number:.4f}" for number in numbers]
        table.add_row(row["figure"], *cells, "yes" if row["is_clear"] else "no")
    return table
