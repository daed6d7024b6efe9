"""A page that needs nothing else: its style, its script and plotly's are in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from umbel.checks import UsageError
from umbel.report.interactive import spec
from umbel.report.markup import Markup, Part, element, join
from umbel.report.panels import Panel, described


@dataclass(frozen=True)
class Section:
    """A part of a page, with a heading."""

    title: str
    parts: tuple[Part, ...]

    @property
    def anchor(self) -> str:
        """What links to it are called."""
        return self.title.lower().replace(" ", "-")


def page(title: str, head: Sequence[Part], sections: Sequence[Section]) -> str:
    """The whole page. Raises `UsageError` without the library that draws in it."""
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
        ),
        element("main", *(_section(section) for section in sections)),
        _script(_plotly()),
        _script(_text("page.js")),
    )
    top = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(_text("page.css"))),
    )
    return f"<!doctype html>\n{element('html', top, body, lang='en').text}\n"


def figures(panels: Iterable[Panel]) -> Markup:
    """The figures side by side, where there is room."""
    return element("div", *map(_figure, panels), class_="figures")


def data(value: object, **attributes: str) -> Markup:
    """A value for the page's script, with nothing in it that could end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
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
    drawing = element("div", class_="drawing", role="img", aria_label=words)
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
    return text.replace("</script", "<\\/script")


def _text(name: str) -> str:
    return files("umbel.report").joinpath(name).read_text(encoding="utf-8")


def lines(*texts: str) -> Markup:
    """Paragraphs."""
    return join(*(element("p", text) for text in texts))
