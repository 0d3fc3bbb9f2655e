"""What environments and libraries say, made fit to be shown and sent."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """A text as a line of at most `limit` characters that has a UTF-8 form."""
    return " ".join(text.split())[:limit].encode(errors="replace").decode()


def words_of(error: BaseException, limit: int = 160) -> str:
    """An exception as such a line; it may be of a kind that can't even say what it is."""
    try:
        words = str(error)
    except Exception:
        words = "its message can't be had"
    return one_line(f"{type(error).__name__}: {words}", limit)
