"""Common parts of figures in plotly's format."""

from __future__ import annotations

from html import escape as as_html
from typing import Any

from umbel.report.figures.charts import COLOURS, turn
from umbel.report.html.markup import words

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
DASHES = ("solid", "dash", "dashdot", "dot", "longdash")

Spec = dict[str, Any]


def escape(text: str) -> str:
    """A text for figures on a page, which interpret some HTML."""
    return as_html(words(text))


def axis(title: str) -> Spec:
    """An axis that leaves room for its own numbers."""
    plain: Spec = {"zeroline": False, "automargin": True, "exponentformat": "power"}
    return plain | {"title": {"text": escape(title)}}


def upright(x: float, dash: str = "dash") -> Spec:
    """A line from top to bottom."""
    line = {"color": "mark", "width": 1, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def note(x: float, y: float, text: str) -> Spec:
    """A text at a position."""
    return {"x": x, "y": y, "text": escape(text), "showarrow": False, "font": {"size": 11}}


def named(name: str, x: float, y: float, look: int) -> Spec:
    """A name that the page puts next to a position, where it hides nothing."""
    return {"name": escape(name), "x": x, "y": y, "color": turn(COLOURS, look)}


def several(text: str) -> str:
    """Lines of text."""
    return escape(text).replace("\n", "<br>")
