"""Writing of figures to files, with fonts for clients' names in any script."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, check
from umbel.files.atomic import replacing

log = logging.getLogger(__name__)

FORMATS = (".png", ".svg", ".pdf")

BESIDE = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei"),
    *("Noto Sans Arabic", "Noto Sans Devanagari", "Noto Emoji", "Symbola"),
    *("Arial Unicode MS", "PingFang SC", "Apple Color Emoji"),
    *("Microsoft YaHei", "MS Gothic", "Malgun Gothic", "Segoe UI Emoji"),
)
"""Fonts for characters that matplotlib's own font lacks; installed ones are used."""

LACKING = "missing from font"
"""Pattern of matplotlib's warning."""


def check_format(file: Path) -> None:
    """Raise `UsageError` if figures can't be written to a file of this kind."""
    check(file.suffix in FORMATS, "--plot", str(file), f"a file that ends in {', '.join(FORMATS)}")


def check_plotting() -> None:
    """Raise `UsageError` if the plotting library is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError('figures need an extra: pip install "umbel[plot]"') from None


@contextmanager
def any_script() -> Iterator[None]:
    """Draw and save figures with the installed fonts for other scripts.

    A single warning says that letters are lacking; boxes are drawn for them. Raises `UsageError`
    without the plotting library.
    """
    check_plotting()
    from matplotlib import rc_context

    with warnings.catch_warnings(record=True) as told, rc_context({"font.family": _families()}):
        warnings.simplefilter("always")
        yield
    lacking = [warning for warning in told if LACKING in str(warning.message)]
    if lacking:
        log.warning("no font here has all letters of these names: figures show boxes for some")
    for warning in told:
        if warning not in lacking:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def save(figure: Any, file: Path) -> None:
    """Write a matplotlib figure, complete or not at all; equal figures give equal files."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "umbel"}):
        file.parent.mkdir(parents=True, exist_ok=True)
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        with replacing(file.resolve()) as beside:  # for a link, its target
            figure.savefig(beside, dpi=150, metadata=dated.get(file.suffix), format=file.suffix[1:])


@cache
def _families() -> list[str]:
    from matplotlib import font_manager

    known = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in BESIDE if name in known)]
