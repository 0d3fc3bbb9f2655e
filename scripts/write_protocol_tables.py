"""Writes the table of messages into docs/protocol.md from their declarations."""

from __future__ import annotations

import sys
from pathlib import Path

from protocol.tables import field_table

DOCUMENT = Path(__file__).parent.parent / "docs" / "protocol.md"
BEGIN, END = "<!-- messages: begin -->", "<!-- messages: end -->"


def table() -> str:
    """The messages and their fields, in Markdown."""
    lines = []
    for number, name, meaning, fields in field_table():
        heading = name if number is None else f"{number} {name}"
        lines += [f"### {heading}", "", meaning, ""]
        if fields:
            lines += ["| field | type and bounds |", "|---|---|"]
            lines += [f"| `{field}` | {kind} |" for field, kind in fields]
            lines.append("")
    return "\n".join(lines)


def rewritten(document: str) -> str:
    """The document with the table between its two marks renewed."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


if __name__ == "__main__":
    old = DOCUMENT.read_text(encoding="utf-8")
    new = rewritten(old)
    if "--check" in sys.argv:
        sys.exit(old != new)
    DOCUMENT.write_text(new, encoding="utf-8")
