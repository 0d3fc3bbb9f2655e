"""Words of strangers as cells of a terminal: none that steer it, and never more than there are."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.text import Text

MOST_CHARACTERS = 1000
"""Of a text that are looked at."""
ELLIPSIS = "~"


def harmless(text: str, plain: bool = False) -> str:
    """The text without what moves, hides or joins characters; `plain`: in ASCII."""
    shown = []
    for character in text[:MOST_CHARACTERS]:
        ascii = " " <= character <= "~"
        fits = ascii or (not plain and character.isprintable() and cell_len(character) > 0)
        shown.append(character if fits else "?")
    return "".join(shown)


def fit(text: str, width: int, right: bool = False) -> str:
    """A harmless text in exactly so many cells; `right`: at their right end."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + ELLIPSIS if width > 1 else ELLIPSIS[:width]
    space = " " * (width - length)
    return space + text if right else text + space


def row(width: int, *parts: tuple[str, str]) -> Text:
    """One line of (text, style) parts, in exactly so many cells."""
    line = Text(no_wrap=True, end="")
    left = max(0, width)
    for words, style in parts:
        if left <= 0:
            break
        cut = words if cell_len(words) <= left else fit(words, left)
        line.append(cut, style)
        left -= cell_len(cut)
    line.append(" " * left)
    return line


def between(width: int, left: list[tuple[str, str]], right: list[tuple[str, str]]) -> Text:
    """One line with parts at both ends; where there is no room for all, the right ones go."""
    taken = sum(cell_len(words) for words, _ in left + right)
    if taken >= width:
        return row(width, *left)
    return row(width, *left, (" " * (width - taken), ""), *right)


def items(width: int, *groups: list[tuple[str, str]]) -> Text:
    """One line of groups of parts, the most important first: those that don't fit are left out."""
    parts: list[tuple[str, str]] = []
    left = width
    for number, group in enumerate(groups):
        gap = 2 if number else 0
        taken = gap + sum(cell_len(words) for words, _ in group)
        if number and taken > left:
            continue
        parts += [("  "[:gap], ""), *group]
        left -= taken
    return row(width, *parts)
