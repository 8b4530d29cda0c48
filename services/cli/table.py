"""Tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_WIDEST = 60


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows below their head, each column as wide as it must be; the last one may be of any width."""
    cells = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    widths = [min(max(len(row[column]) for row in cells), _WIDEST) for column in range(len(head))]
    widths[-1] = 0
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "\n".join(lines) + "\n"


def one_line(text: str) -> str:
    """The text as a terminal may be given it: what a user's code has said moves no cursor and breaks no line."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def counted(number: int, thing: str) -> str:
    """So many things: `1 run`, `2 runs`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
