"""A self-contained page, with its style, its script and plotly's script."""

from __future__ import annotations

import gzip
import json
from base64 import b85encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from umbel.checks import UsageError
from umbel.report.figures.panels import Panel, described
from umbel.report.figures.to_plotly import spec
from umbel.report.html.markup import Markup, Part, element, join, table
from umbel.summary import counted

ALLOWED = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)
"""Content security policy: run the page's own scripts, and load nothing."""

SCRIPTS = ("unpack.js", "names.js", "figures.js", "tables.js")

LONG = 4000
"""Values with a longer text are packed."""

UNDRAWN = (
    "This browser cannot draw the figures, so each one is described in words. They are drawn "
    "by Chrome and Edge from version 86 on, Firefox from 113 and Safari from 16.4, with scripts "
    "turned on."
)


@dataclass(frozen=True)
class Section:
    """A part of a page, with a heading."""

    title: str
    parts: tuple[Part, ...]

    @property
    def anchor(self) -> str:
        """The anchor for links to the section."""
        return self.title.lower().replace(" ", "-")


def made_with(session: Mapping[str, Any]) -> str:
    """The time, the machine and the versions."""
    known = {"seconds": "?", "threads": "?", "processors": "?", **session}
    versions = [f"{name} {version}" for name, version in session.get("versions", {}).items()]
    machine = [known.get(name) for name in ("host", "platform")]
    machine += [known.get("cuda") or "no GPU"]
    machine.append(f"{known['threads']} of {known['processors']} processors")
    when = f"{known['began']}, {known['seconds']} s"
    return f"{when}; {', '.join(map(str, filter(None, machine)))}; {', '.join(versions)}"


def page(title: str, head: Sequence[Part], sections: Sequence[Section]) -> str:
    """The whole page. Raises `UsageError` if plotly is not installed."""
    links = [
        element("li", element("a", section.title, href=f"#{section.anchor}"))
        for section in sections
    ]
    body = element(
        "body",
        element(
            "header",
            element("h1", title),
            *head,
            element("nav", element("ul", *links), aria_label="Sections"),
            element("p", UNDRAWN, class_="notice", role="alert", id="undrawn", hidden=True),
            element("noscript", element("p", UNDRAWN, class_="notice")),
        ),
        element("main", *(_section(section) for section in sections)),
        element("script", Markup(packed(_plotly())), type="text/plain", id="plotly"),
        _script("".join(map(_text, SCRIPTS))),
    )
    top = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=ALLOWED),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(_text("page.css"))),
        element("noscript", element("style", Markup(".plot { height: auto !important; }"))),
    )
    return f"<!doctype html>\n{element('html', top, body, lang='en').text}\n"


def figures(panels: Iterable[Panel]) -> Markup:
    """The figures, side by side if there is room."""
    return element("div", *map(_figure, panels), class_="figures")


def data(value: object, **attributes: str) -> Markup:
    """A value for the page's script, escaped so that it can't end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if len(text) > LONG:
        return element("script", Markup(packed(text)), type="text/plain", **attributes)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Markup(text), type="application/json", **attributes)


def _section(section: Section) -> Markup:
    return element(
        "section",
        element("h2", section.title, id=f"{section.anchor}-head"),
        *section.parts,
        id=section.anchor,
        aria_labelledby=f"{section.anchor}-head",
    )


def _figure(panel: Panel) -> Markup:
    words = described(panel.figure)
    # The words are shown until the figure is drawn, or if it is never drawn.
    drawing = element("div", words, class_="drawing", role="img", aria_label=words)
    return element(
        "figure",
        element("figcaption", element("h3", panel.figure.title)),
        element("div", drawing, data(spec(panel.figure)), class_="plot"),
        *([element("p", panel.note)] if panel.note else []),
        class_="across" if panel.wide else "",
    )


def _script(text: str) -> Markup:
    assert "</script" not in text.lower()
    return element("script", Markup(text))


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UsageError('a report needs an extra: pip install "umbel[report]"') from None
    text: str = get_plotlyjs()
    return text


def _text(name: str) -> str:
    return files("umbel.report.html").joinpath(name).read_text(encoding="utf-8")


def lines(*texts: str) -> Markup:
    """Paragraphs."""
    return join(*(element("p", text) for text in texts))


MOST_ROWS = 300
"""Number of clients that a table shows at once; others are found by searching and sorting."""


def listing(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """The table, with a name that is unique on the page, and its search field."""
    some = rows[:MOST_ROWS]
    search = element("input", type="search", id=f"{name}-search", autocomplete="off")
    label = element("label", "Find a client ", search, for_=f"{name}-search")
    note = f"{len(some)} of {counted(len(rows), 'client')} shown"
    status = element("span", note, id=f"{name}-status", role="status", class_="quiet")
    # Rows that are on the page already are not included again.
    more = data(rows, id=f"{name}-all") if len(rows) > len(some) else Markup("")
    listed = table(heads, some, tall=True, id=name, data_sortable="yes")
    return join(element("div", label, status, class_="tools"), listed, more)


SAFE = bytes.maketrans(b"<>&", b".,:")
"""Replacements for the three of the 85 characters that have a meaning in HTML."""


def packed(script: str) -> str:
    """The compressed script, five characters for four bytes: `unpack.js` is the inverse.

    Base 64 would take four signs for three bytes, which is one part in fifteen more.
    """
    squeezed = gzip.compress(script.encode(), 9, mtime=0)
    return b85encode(squeezed).translate(SAFE).decode()
