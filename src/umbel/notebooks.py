"""Small tables of words and numbers, as text, HTML and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from umbel.checks import printable

MOST_ROWS = 20

CELL = "padding:0.2em 0.8em;border:0;border-bottom:1px solid rgba(128,128,128,0.35)"
"""Only the lines have a colour of their own, a grey that suits dark and light pages."""


LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"±": r" $\pm$ "}
)
"""Characters with a special meaning in LaTeX -> their escapes."""


@dataclass(frozen=True)
class HtmlTable:
    """Rows of text under heads, the first column of words, the others of numbers.

    Its `repr` is the table as text; notebooks show it as HTML, with every word escaped.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.heads) for row in self.rows), "a row of another length"

    def __repr__(self) -> str:
        lines = [[printable(cell) for cell in row] for row in (self.heads, *self.rows)]
        lines = lines if any(self.heads) else lines[1:]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = []
        for first, *others in lines:
            cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            text.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join(part for part in (self.title, *text, self.note) if part)

    @property
    def latex(self) -> str:
        """The table in LaTeX, for the package booktabs."""
        body = [" & ".join(map(_latex, row)) + r" \\" for row in (self.heads, *self.rows)]
        lines = [
            rf"\begin{{tabular}}{{l{'r' * (len(self.heads) - 1)}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        head = "".join(_cell("th", cell, place) for place, cell in enumerate(self.heads))
        body = "".join(
            "<tr>" + "".join(_cell("td", cell, place) for place, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        return (
            '<div style="overflow-x:auto">'
            + _paragraph(self.title)
            + '<table style="border-collapse:collapse;border:0;margin:0">'
            + (f"<thead><tr>{head}</tr></thead>" if any(self.heads) else "")
            + f"<tbody>{body}</tbody></table>{_paragraph(self.note)}</div>"
        )


def named(values: Iterable[tuple[str, str]], title: str = "") -> HtmlTable:
    """A table with one line for each name and its value."""
    return HtmlTable(("", ""), tuple(values), title)


def cut(
    heads: Sequence[str], rows: Sequence[Sequence[str]], title: str, rest: str = "rows"
) -> HtmlTable:
    """Make a table of the first `MOST_ROWS` rows, whose note counts the others."""
    more = len(rows) - MOST_ROWS
    note = f"... and {more:,} more {rest}" if more > 0 else ""
    return HtmlTable(tuple(heads), tuple(tuple(row) for row in rows[:MOST_ROWS]), title, note)


def _cell(kind: str, text: str, place: int) -> str:
    side = "right" if place else "left"
    return f'<{kind} style="{CELL};text-align:{side}">{escape(text)}</{kind}>'


def _paragraph(text: str) -> str:
    return f'<div style="margin:0.3em 0">{escape(text)}</div>' if text else ""


def _latex(cell: str) -> str:
    return cell.translate(LATEX)
