"""HTML that is built from parts; text is escaped unless it is `Markup`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from umbel.checks import printable

EMPTY = ("input", "link", "meta")
"""Elements without an end tag."""


@dataclass(frozen=True)
class Markup:
    """HTML that is not escaped."""

    text: str


Part = str | Markup


def element(name: str, /, *parts: Part, **attributes: str | bool) -> Markup:
    """An element; `class_` is its class, `data_sort` its data-sort, True an attribute alone."""
    said = []
    for key, value in attributes.items():
        written = key.rstrip("_").replace("_", "-")
        if value is True:
            said.append(f" {written}")
        elif value is not False:
            said.append(f' {written}="{escape(value)}"')
    start = f"<{name}{''.join(said)}>"
    return Markup(start if name in EMPTY else f"{start}{join(*parts).text}</{name}>")


def join(*parts: Part) -> Markup:
    """The parts in sequence."""
    return Markup("".join(p.text if isinstance(p, Markup) else escape(words(p)) for p in parts))


def words(text: str) -> str:
    """A text whose lines stay, with escapes for what would turn or hide what stands beside it."""
    return printable(text, "\n\t")


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: int = 1,
    tall: bool = False,
    **attributes: str,
) -> Markup:
    """A table with row headers in the first column, and words, not numbers, in the first few.

    A tall one is scrolled up and down in itself.
    """
    sides = ["" if place < left else "number" for place in range(len(heads))]
    top = [element("th", h, scope="col", class_=s) for h, s in zip(heads, sides, strict=True)]
    body = []
    for row in rows:
        first, *others = row
        cells = [
            element("td", cell, class_=side) for cell, side in zip(others, sides[1:], strict=True)
        ]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    whole = element(
        "table",
        element("thead", element("tr", *top)),
        element("tbody", *body),
        **attributes,
    )
    # Tables wider than the page scroll separately, by keyboard, too. The frame around them is
    # fixed: it shows at which edges there is more.
    kind = "wide tall" if tall else "wide"
    inner = element("div", whole, class_=kind, tabindex="0", role="region", aria_label="table")
    hint = element("p", "Scroll sideways for more columns →", class_="hint", aria_hidden="true")
    return element("div", hint, element("div", inner, class_="frame"), class_="scroller")
