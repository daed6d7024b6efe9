"""Ordinary tables as people have them: the same rows in the habits of many programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROWS = 60

AGE, WARDS = ("age",), ("ward is A", "ward is B", "ward is C")
PLAIN = (*AGE, *WARDS)
"""The features of the plain table."""


def frame() -> Any:
    """Three sites; the outcome depends on the age."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"site": np.resize(["north", "south", "west"], ROWS)})
    table["age"] = rng.integers(20, 80, ROWS)
    table["ward"] = rng.choice(["A", "B", "C"], ROWS)
    table["outcome"] = np.where(table["age"] > 50, "stay", "home")
    return table


@dataclass(frozen=True)
class Ordinary:
    """A table, and what is expected: features, the plain rows' if none are given, or a refusal."""

    write: Callable[[Any, Path], object]
    features: tuple[str, ...] = PLAIN
    refused: str = ""  # a regular expression: the message says what to write
    warned: str = ""
    ending: str = "csv"
    settings: dict[str, Any] = field(default_factory=dict)


def csv(**how: Any) -> Callable[[Any, Path], object]:
    """Written by pandas, without an index unless it is asked for."""
    return lambda table, file: table.to_csv(file, **{"index": False, **how})


def changed(change: Callable[[Any], Any], **how: Any) -> Callable[[Any, Path], object]:
    """Changed, then written by pandas."""
    return lambda table, file: csv(**how)(change(table), file)


def edited(edit: Callable[[str], str], **how: Any) -> Callable[[Any, Path], object]:
    """Written by pandas, then edited as a text."""

    def write(table: Any, file: Path) -> None:
        file.write_text(edit(table.to_csv(None, **{"index": False, **how})), encoding="utf-8")

    return write


def parquet(change: Callable[[Any], Any]) -> Callable[[Any, Path], object]:
    """Changed, then written as Parquet."""
    return lambda table, file: change(table).to_parquet(file)


def lines(edit: Callable[[int, str], str]) -> Callable[[Any, Path], object]:
    """Each line is edited by its number; the header has number 0."""
    return edited(lambda text: "".join(edit(*each) for each in enumerate(text.splitlines(True))))


def folder(table: Any, file: Path) -> None:
    """A file for each client, with the index that pandas writes."""
    file.mkdir()
    for site, rows in table.groupby("site"):
        rows.drop(columns="site").reset_index(drop=True).to_csv(file / f"{site}.csv")


def with_gaps(word: str) -> Callable[[Any, Path], object]:
    """Every seventh age is missing, written as this word."""
    return changed(lambda t: t.assign(age=t["age"].astype(object).where(t.index % 7 > 0, word)))


GAPS = (*AGE, "age is missing", *WARDS)

ORDINARY: dict[str, Ordinary] = {
    "plain": Ordinary(csv()),
    # Indexes
    "pandas: to_csv with its index": Ordinary(csv(index=True)),
    "pandas: reset_index": Ordinary(changed(lambda t: t.reset_index())),
    "pandas: tables of sites joined, with their indexes": Ordinary(
        changed(
            lambda t: pd.concat(
                [r.reset_index(drop=True) for _, r in t.groupby("site")]
            ).reset_index(names="Unnamed: 0")
        )
    ),
    "R: write.csv with numbers of rows": Ordinary(
        edited(lambda text: text.replace('"",', '"",', 1), index=True, quoting=2)
    ),
    "R: names of rows": Ordinary(
        changed(lambda t: t.assign(X=[f"patient {n}" for n in range(ROWS)]))
    ),
    "R: write.table, whose header lacks the names of rows": Ordinary(
        edited(lambda text: text.removeprefix(","), index=True),
        refused="row 1 has 5 values, unlike the header with 4; .* begin the header with a name",
    ),
    "Parquet with a named index": Ordinary(
        parquet(lambda t: t.assign(patient=range(9, ROWS + 9)).set_index("patient")),
        ending="parquet",
    ),
    "one file for each client, with indexes": Ordinary(
        folder, ending="d", settings={"client": None}
    ),
    # Doubtful columns, which are used
    "a random identifier": Ordinary(
        changed(lambda t: t.assign(id=np.random.default_rng(1).permutation(10**6)[:ROWS])),
        features=("age", "id", *WARDS),
        warned="column 'id' has another whole number in every row",
    ),
    "names of people": Ordinary(
        changed(lambda t: t.assign(name=[f"P{n:03}" for n in range(ROWS)])),
        features=(*PLAIN, *(f"name is P{n:03}" for n in range(ROWS))),
        warned="column 'name' has another text in almost every row",
        settings={"test_fraction": 0.0},
    ),
    # Gaps
    "empty values": Ordinary(with_gaps(""), features=GAPS),
    "R's NA": Ordinary(with_gaps("NA"), features=GAPS),
    "#N/A of Excel": Ordinary(with_gaps("#N/A"), features=GAPS),
    "a question mark": Ordinary(
        with_gaps("?"),
        refused=r"row 1, column 'age': .* if '\?' stands .* write missing = \[.*\"\?\"\]",
    ),
    "an empty column": Ordinary(changed(lambda t: t.assign(remarks=np.nan))),
    "a class None": Ordinary(
        changed(lambda t: t.assign(outcome=t["outcome"].replace("home", "None"))),
        refused=r"'None' in \d+ rows is read as missing; .* class, write missing = \[\"\"\]",
    ),
    "a site NA": Ordinary(
        changed(lambda t: t.assign(site=t["site"].replace("north", "NA"))),
        refused=r"row 1, column 'site': names no client: 'NA' in 20 rows .* missing = \[\"\"\]",
    ),
    # Separators, quotation marks, lines
    "semicolons": Ordinary(csv(sep=";"), refused='by semicolons: write separator = ";"'),
    "tabs": Ordinary(csv(sep="\t"), refused=r'by tabs: write separator = "\\t"'),
    "a byte order mark of Excel": Ordinary(csv(encoding="utf-8-sig")),
    "UTF-16 of Excel": Ordinary(csv(encoding="utf-16"), refused="save it again .* 'CSV UTF-8'"),
    "sep=; of Excel": Ordinary(
        edited(lambda text: "sep=;\n" + text, sep=";"),
        refused='write separator = ";" .* remove the line above',
    ),
    "a separator behind each line": Ordinary(
        lines(lambda _, line: line.replace("\n", ",\n")),
    ),
    "a title above the header": Ordinary(
        edited(lambda text: "Visits of 2024,,,\n,,,\n" + text),
        refused="the names of columns seem to be 'site', 'age', 'ward', ...: remove the 2 lines",
    ),
    "a comment among the rows": Ordinary(
        lines(lambda n, line: "# the second day\n" + line if n == 9 else line),
        refused="row 9 has 1 values, .* seems to be a comment: remove it",
    ),
    "a comma within a text without quotation marks": Ordinary(
        lines(lambda _, line: line.replace(",A,", ",A, east,")),
        refused="has 5 values, .* put a value with ',' in quotation marks",
    ),
    "a row of sums below": Ordinary(
        edited(lambda text: text + "Total,3000,,\n"),
        refused="row 61, column 'outcome': is missing; drop_unlabelled = true leaves out 1 of 61",
    ),
    # Numbers, dates, bools, categories
    "decimal commas": Ordinary(
        changed(lambda t: t.assign(age=t["age"] + 0.5), sep=";", decimal=","),
        refused="column 'age' seems to hold numbers such as 0,5 .* write them as 0.5",
        settings={"separator": ";"},
    ),
    "thousands": Ordinary(
        changed(lambda t: t.assign(age=[f"{1000 * age:,}" for age in t["age"]])),
        refused="column 'age' seems to hold numbers such as 0,5 or 1,250",
    ),
    "codes with leading zeros": Ordinary(
        changed(lambda t: t.assign(code=[f"{n % 7:05}" for n in range(ROWS)])),
        features=("age", "code", *WARDS),
        warned="column 'code' has numbers with leading zeros, as codes have",
    ),
    "units": Ordinary(
        changed(lambda t: t.assign(age=[f"{age} kg" for age in t["age"]])),
        refused="column 'age' seems to hold numbers of 'kg': write them without the unit",
    ),
    "a copy of the target": Ordinary(
        changed(lambda t: t.assign(code=np.where(t["outcome"] == "stay", 7, 3))),
        features=("age", "code", *WARDS),
        warned="column 'code' has another value for each class, as a copy of the target",
    ),
    "sites in several spellings": Ordinary(
        changed(lambda t: t.assign(site=np.where(t.index % 2, t["site"], t["site"].str.upper()))),
        warned="clients whose names differ only in capitals or blanks",
    ),
    "classes in several spellings": Ordinary(
        changed(lambda t: t.assign(outcome=t["outcome"].where(t["site"] != "west", "Stay "))),
        warned="classes of 'outcome' that differ only in capitals or blanks are different ones: "
        "'Stay ', 'stay'",
    ),
    "categories in several spellings": Ordinary(
        changed(lambda t: t.assign(ward=t["ward"].where(t["age"] > 40, t["ward"].str.lower()))),
        features=(*AGE, *(f"ward is {ward}" for ward in "ABCabc")),
        warned="categories of 'ward' that differ only in capitals or blanks are different ones",
    ),
    "yes and no at one site, 1 and 0 at others": Ordinary(
        changed(
            lambda t: t.assign(
                outcome=(t["outcome"] == "stay")
                .astype(int)
                .where(t["site"] != "west", t["outcome"].replace({"stay": "yes", "home": "no"}))
            )
        ),
        refused="row 3, column 'outcome': is a text, but most of this column are numbers; write it "
        "as one of these, as other rows have it; if it is a class of its own, name .* categories$",
    ),
    "amounts of money": Ordinary(
        changed(lambda t: t.assign(age=[f"${age}.00" for age in t["age"]])),
        refused="column 'age' seems to hold numbers with signs",
    ),
    "dates": Ordinary(
        changed(lambda t: t.assign(day=pd.date_range("2024-01-01", periods=ROWS))),
        features=("age", "day", *WARDS),
    ),
    "dates without hyphens": Ordinary(
        changed(
            lambda t: t.assign(day=pd.date_range("2024-01-01", periods=ROWS).strftime("%Y%m%d"))
        ),
        features=("age", "day", *WARDS),
        warned="column 'day' has whole numbers that are dates such as 20130131; to read them as "
        'dates, write dates = ["day"]',
    ),
    "dates without hyphens, as said": Ordinary(
        changed(
            lambda t: t.assign(day=pd.date_range("2024-01-01", periods=ROWS).strftime("%Y%m%d"))
        ),
        features=("age", "day", *WARDS),
        settings={"dates": ["day"]},
    ),
    "dates without hyphens in Parquet, as said": Ordinary(
        parquet(
            lambda t: t.assign(
                day=pd.date_range("2024-01-01", periods=ROWS).strftime("%Y%m%d").astype(int)
            )
        ),
        features=("age", "day", *WARDS),
        settings={"dates": ["day"]},
        ending="parquet",
    ),
    "American dates": Ordinary(
        changed(
            lambda t: t.assign(day=pd.date_range("2024-01-01", periods=ROWS).strftime("%m/%d/%Y"))
        ),
        refused="column 'day' seems to hold dates such as 31.1.2013: write them as 2013-01-31",
    ),
    "times of the day": Ordinary(
        changed(lambda t: t.assign(at=[f"{n % 24}:{n % 60:02}" for n in range(ROWS)])),
        refused="column 'at' seems to hold times such as 12:30",
    ),
    "R's TRUE and FALSE": Ordinary(
        changed(lambda t: t.assign(old=np.where(t["age"] > 40, "TRUE", "FALSE"))),
        features=("age", "old", *WARDS),
    ),
    "bools of Parquet with gaps": Ordinary(
        parquet(lambda t: t.assign(old=(t["age"] > 40).astype("boolean").where(t["age"] > 25))),
        features=("age", "old", "old is missing", *WARDS),
        ending="parquet",
    ),
    "categories of Parquet": Ordinary(
        parquet(lambda t: t.astype({"ward": "category", "site": "category"})), ending="parquet"
    ),
    "a word among numbers": Ordinary(
        changed(lambda t: t.assign(age=t["age"].astype(object).where(t.index != 8, "about 40"))),
        refused="row 9, column 'age': is a text, but most of this column are numbers; correct it",
    ),
    # Headers
    "a name twice": Ordinary(
        edited(lambda text: text.replace("ward", "age", 1)),
        refused="two columns have the name 'age'; rename one",
    ),
    "names in other scripts": Ordinary(
        changed(lambda t: t.rename(columns={"age": "âge (années)", "ward": "病房"})),
        features=("âge (années)", "病房 is A", "病房 is B", "病房 is C"),
    ),
    "blanks behind the commas of the header": Ordinary(
        edited(lambda text: text.replace("site,age,ward,outcome", "site, age, ward, outcome", 1)),
        refused="lacks the column 'outcome', did you mean ' outcome'.* 'scenario.target=\" outc",
    ),
    "no header": Ordinary(
        csv(header=False),
        refused="lacks the column 'site'; .*; columns: 'north', '71'",
    ),
    # Wide tables
    "tens of pixels": Ordinary(
        changed(
            lambda t: t[["site", "outcome"]].join(
                pd.DataFrame(
                    np.random.default_rng(2).integers(0, 9, (ROWS, 40)),
                    columns=[f"pixel{n}" for n in range(40)],
                )
            )
        ),
        features=tuple(f"pixel{n}" for n in range(40)),
    ),
    "a column for each client": Ordinary(
        changed(lambda t: t.pivot_table(index="ward", columns="site", values="age").reset_index()),
        refused="which column says which client .* must first be brought below one another",
        settings={"client": None},
    ),
    "a row for each client": Ordinary(
        changed(lambda t: t.assign(site=[f"P{n}" for n in range(ROWS)])),
        warned="60 of 60 clients have a single row",
    ),
}
