"""The tables and figures of four papers as experiments, with the published numbers beside ours."""

from umbel.papers.base import SIZES, Cell, Published, Reproduction, Size
from umbel.papers.catalogue import REPRODUCTIONS

__all__ = ["REPRODUCTIONS", "SIZES", "Cell", "Published", "Reproduction", "Size"]
