"""Facts about each reproduction: the sections of the papers' `findings.md`.

Neither they nor the names of kept results need PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import sqrt
from pathlib import Path

PAPERS_SEEDS = 5
"""The seeds of the papers' means; some of Kim et al. are over up to 20."""

ANY = ""
"""The column of numbers that hold for every column."""


@dataclass(frozen=True)
class Published:
    """A number of a paper: its mean, with the standard deviation if one is printed."""

    mean: float
    std: float | None = None  # None: not printed
    about: bool = False  # read off a figure, or from words such as "close to"

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 without a deviation."""
        return (self.std or 0.0) / sqrt(PAPERS_SEEDS)

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:g}"
        return f"{'about ' if self.about else ''}{self.mean:g}{spread}"

    @classmethod
    def of(cls, text: str) -> Published:
        """The number in a text such as "82.8", "82.8 ± 1.2" or "about 90"."""
        mean, _, std = text.removeprefix("about ").partition("±")
        return cls(float(mean), float(std) if std else None, text.startswith("about "))


def printed(text: str) -> Mapping[tuple[str, str, str], Published]:
    """The numbers of a table by row, column and measure; a dash is no number.

    The corner names the measure. Where it is empty, the columns are measures, and the numbers hold
    for every column of the reproduction.
    """
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    (corner, *heads), _, *rows = lines
    return {
        (row, head, corner) if corner else (row, ANY, head): Published.of(cell)
        for row, *cells in rows
        for head, cell in zip(heads, cells, strict=True)
        if cell != "-"
    }


PAPERS = tuple(
    Path(__file__).parent / paper for paper in ("mehta2023", "kim2024", "gu2024", "lin2024")
)
"""A folder each, in the order in which they are listed."""

STATEMENT = re.compile(r"\*(\w+)\.\* ")
"""Labels of the statements about a reproduction."""


@dataclass(frozen=True)
class Findings:
    """The paper's numbers, our setting, and our findings."""

    name: str
    source: str  # such as "Kim et al. 2024, Table 10"
    title: str
    setting: str  # our setting at full size
    reduced: str = ""  # what the reduced size changes
    absent: str = ""  # why no result is saved, if there is none
    cause: str = ""  # of the largest differences, in a few words
    remarks: str = ""  # differences from the paper, with reasons
    published: Mapping[tuple[str, str, str], Published] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Findings:
        """A section: a heading of name and source, the title, statements and tables.

        A statement begins with its kind, as "*Remarks.* ", and goes on through the paragraphs that
        begin with no other.
        """
        heading, title, *parts = (part.strip() for part in text.strip().split("\n\n"))
        name, _, source = heading.removeprefix("## ").partition(": ")
        numbers = (printed(part) for part in parts if part.startswith("|"))
        said: dict[str, str] = {}
        kind = ""
        for part in parts:
            begun = STATEMENT.match(part)
            kind = begun[1].lower() if begun else kind
            if not part.startswith("|"):
                sentences = " ".join(part[begun.end() if begun else 0 :].split())
                said[kind] = f"{said[kind]}\n\n{sentences}" if kind in said else sentences
        return cls(
            name,
            source,
            " ".join(title.split()).removesuffix("."),
            published={place: number for table in numbers for place, number in table.items()},
            **said,
        )

    def of_paper(self, row: str, column: str, measure: str) -> Published | None:
        """The paper's number for a cell, if it has one."""
        known = self.published
        return known.get((row, column, measure), known.get((row, ANY, measure)))


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and the rows of a reproduction whose numbers decide it."""

    text: str
    name: str  # of the reproduction; "-": none
    measure: str
    ahead: tuple[str, ...]  # these rows come before, or have larger numbers than
    behind: tuple[str, ...]  # each of these; (): the claim is the numbers that the paper prints
    columns: tuple[str, ...]  # which columns it is about; (): all
    why: str  # why nobody tested it, if so

    @classmethod
    def of(cls, line: str) -> Claim:
        """A line of a table: the claim, the reproduction, the measure, the rows, the columns.

        Rows are such as "A > B, C"; without a reproduction they say why nobody tested the claim.
        """
        text, name, measure, rows, columns = (part.strip() for part in line.split("|")[1:-1])
        none = name == "-"
        ahead, _, behind = ("" if none else rows).partition(" > ")
        why = rows if none else ""
        return cls(text, name, measure, _listed(ahead), _listed(behind), _listed(columns), why)


def _listed(names: str) -> tuple[str, ...]:
    return tuple(filter(None, names.split("; ")))


@dataclass(frozen=True)
class Paper:
    """All findings about a paper."""

    name: str  # of its folder
    title: str
    claims: tuple[Claim, ...]
    sections: tuple[Findings, ...]

    @classmethod
    def of(cls, folder: Path) -> Paper:
        """Read a paper's `findings.md`: its title, a table of claims, and a section a table."""
        head, *parts = (folder / "findings.md").read_text(encoding="utf-8").split("\n## ")
        title, _, table = head.strip().removeprefix("# ").partition("\n\n")
        claims = map(Claim.of, table.splitlines()[2:])
        return cls(folder.name, title, tuple(claims), tuple(map(Findings.of, parts)))


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, in their order."""
    return tuple(map(Paper.of, PAPERS))


@cache
def findings() -> Mapping[str, Findings]:
    """All sections by name, in their order."""
    return {section.name: section for paper in papers() for section in paper.sections}


def kept_files(name: str) -> Iterator[Path]:
    """The results of a reproduction that come with the package, the largest size first."""
    for size in ("full", "reduced"):
        for paper in PAPERS:
            yield from paper.glob(f"kept/{name}-{size}.json")
