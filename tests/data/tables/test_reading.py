"""CSV and Parquet files are read as they are, or refused with file, row and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import umbel
from umbel.checks import UsageError
from umbel.data.tables.kinds import ColumnWords, Numbers, column_of
from umbel.data.tables.reading import CsvFormat, TableRows, read_rows

pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

FORM = CsvFormat(",", ("", "NA"))


def everything(_: Path, header: tuple[str, ...]) -> tuple[str, ...]:
    return header


def read(file: Path, text: str | bytes, form: CsvFormat = FORM) -> TableRows:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_rows(file, form, everything)


def parquet(file: Path, columns: dict[str, Any]) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.table(columns), file)
    return file


def test_kinds_are_found_by_what_all_values_are(tmp_path: Path) -> None:
    text = "age,born,ward,code\n41,1972-01-31,A,7\n,1990-12-01T06:00,,8\n3.5,,B-7,9\n"
    rows = read(tmp_path / "t.csv", text)
    age, born, ward, code = (column_of(rows, name) for name in rows.columns)
    assert isinstance(age, Numbers)
    assert isinstance(born, Numbers)
    assert isinstance(ward, ColumnWords)
    assert isinstance(code, Numbers)
    assert [age.values[0], age.values[2], age.whole] == [41.0, 3.5, False]
    assert born.values[:2].tolist() == [760.0, 7639.25]  # days since 1970
    assert [ward.word(row) for row in range(3)] == ["A", None, "B-7"]
    assert code.whole
    as_words = column_of(rows, "code", "category")
    assert isinstance(as_words, ColumnWords)
    assert as_words.words == ("7", "8", "9")


def test_a_parquet_file_says_its_types(tmp_path: Path) -> None:
    import datetime
    from decimal import Decimal

    import pyarrow as pa

    columns = {
        "words": pa.array(["1", "2", None]),
        "whole": pa.array([3, None, 4], pa.int32()),
        "flag": [True, None, False],
        "price": [Decimal("1.50"), None, Decimal("2.25")],
        "day": [datetime.date(1970, 1, 3), None, datetime.date(1970, 1, 1)],
        "time": pa.array([0, 43_200_000, None], pa.timestamp("ms")),
        "nothing": pa.nulls(3),
        "coded": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    rows = read_rows(parquet(tmp_path / "t.parquet", columns), FORM, everything)
    found = {name: column_of(rows, name) for name in columns}
    words, coded = found["words"], found["coded"]
    assert isinstance(words, ColumnWords)
    assert isinstance(coded, ColumnWords)
    assert words.words == ("1", "2")
    assert coded.codes.tolist() == [0, 1, 0]
    expected: dict[str, tuple[list[float], bool]] = {
        "whole": ([3.0, 4.0], True),
        "flag": ([1.0, 0.0], True),
        "price": ([1.5, 2.25], False),
        "day": ([2.0, 0.0], False),
        "time": ([0.0, 0.5], False),
        "nothing": ([], False),
    }
    for name, (values, whole) in expected.items():
        column = found[name]
        assert isinstance(column, Numbers)
        assert column.values[~(column.values != column.values)].tolist() == values
        assert column.whole == whole or name == "nothing"


def test_a_byte_order_mark_quotes_and_another_separator_are_read(tmp_path: Path) -> None:
    text = '\ufeffa;"b;c"\n1;"two\nlines"\n2;x\n'
    rows = read(tmp_path / "t.csv", text, CsvFormat(";", ("",)))
    assert list(rows.columns) == ["a", "b;c"]
    assert len(rows) == 2


def test_a_folder_has_a_file_for_each_client(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x,y\n1,0\n2,1\n")
    (tmp_path / "a.csv").write_text("y,x\n1,5\n")
    (tmp_path / "._a.csv").write_bytes(b"\0\5\x16\7 macOS writes such files")
    rows = read_rows(tmp_path, FORM, everything)
    assert rows.owners.tolist() == [0, 1, 1]
    x = column_of(rows, "x")
    assert isinstance(x, Numbers)
    assert x.values.tolist() == [5, 1, 2]
    assert rows.at(2, "x") == f"{tmp_path / 'b.csv'}: row 2, column 'x'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.csv: 'an empty file' is not a table"),
        ("a,b\n", "t.csv: 'a table without rows' is not usable"),
        ("a,b,a\n1,2,3\n", "t.csv: two columns have the name 'a'"),
        ("a,b\n1,2\n3\n", "t.csv: row 2 has 1 values, unlike the header with 2"),
        ("a,b\n1,2\n3,4,secret\n", "t.csv: row 2 has 3 values, unlike the header with 2"),
        ("hôpital,b\n1,2\n".encode("latin-1"), "t.csv: not text in UTF-8"),
        ("a,b\nhôpital,2\n".encode("latin-1"), "t.csv: not text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "t.csv: not text in UTF-8"),
        (b"a\n\xff\xfe\x00\n", "t.csv: not text in UTF-8"),
        (b"\x00\x01\x02", "t.csv: "),
    ],
)
def test_what_is_no_csv_file_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        read(tmp_path / "t.csv", text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('a,b\n\n1,x\n2,"secret\n3,y\n', "row 2"),
        ('a,b\n1,"secret\n2,y\n3,"z\n4,y\n', "row 1"),
        ('a,b\n"1\n\n",x\n2,"secret" or not\n', "row 2"),
        ('a,"b\n1,2\n', "the header"),
    ],
)
def test_a_quotation_mark_that_nothing_closes_takes_no_other_rows(
    tmp_path: Path, text: str, where: str
) -> None:
    with pytest.raises(UsageError, match=f"t.csv: {where} has a value that begins with") as refused:
        read(tmp_path / "t.csv", text)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (["1", "2", "secret"], None, "row 3, column 'v': is a text, but most .* are numbers"),
        (["1", "inf"], None, "row 2, column 'v': is infinite"),
        (["1", "-Infinity"], "number", "row 2, column 'v': is infinite"),
        (["2013-01-02", "2013-01-03", "secret"], None, "row 3, .* most of this column are dates"),
        (["a", "1"], "number", "row 1, column 'v': is not a number"),
        (["2013-02-30"], "date", "row 1, column 'v': is not a date such as"),
    ],
)
def test_mixed_and_infinite_values_are_refused_by_row_and_column(
    tmp_path: Path, values: list[str], kind: Any, message: str
) -> None:
    rows = read(tmp_path / "t.csv", "\n".join(["v", *values]))
    with pytest.raises(UsageError, match=f"t.csv: {message}") as refused:
        column_of(rows, "v", kind)
    assert "secret" not in str(refused.value)


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    file.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(UsageError, match=r"t.parquet: not a Parquet file"):
        read_rows(file, FORM, everything)
    parquet(file, {"a": [[1, 2], [3]]})
    with pytest.raises(UsageError, match=r"column 'a' holds values of type ndarray, .* leave_out"):
        column_of(read_rows(file, FORM, everything), "a")


def test_files_of_a_folder_must_be_alike(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n")
    (tmp_path / "b.csv").write_text("x,z\n1,0\n")
    with pytest.raises(UsageError, match=r"b.csv: lacks the column 'y', which .*a.csv has"):
        read_rows(tmp_path, FORM, everything)
    (tmp_path / "b.csv").unlink()
    parquet(tmp_path / "c.parquet", {"x": [1]})
    with pytest.raises(UsageError, match="is not one ending"):
        read_rows(tmp_path, FORM, everything)
    (tmp_path / "a.csv").unlink()
    parquet(tmp_path / "d.parquet", {"x": ["one"]})
    expected = r"d.parquet: column 'x' is of texts, unlike in .*c.parquet, where it is of numbers"
    with pytest.raises(UsageError, match=expected):
        read_rows(tmp_path, FORM, everything)
    parquet(tmp_path / "a.parquet", {"x": [None]})  # says nothing about the others
    with pytest.raises(UsageError, match=expected):
        read_rows(tmp_path, FORM, everything)
    (tmp_path / "d.parquet").unlink()
    assert len(read_rows(tmp_path, FORM, everything)) == 2


@pytest.mark.parametrize("name", ["none.csv", "t.txt", "."])
def test_other_paths_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "t.txt").write_text("a\n1\n")
    with pytest.raises(UsageError, match=r"can't be read|the ending .csv|holds no .csv"):
        read_rows(tmp_path / name, FORM, everything)


def test_a_missing_column_is_named_with_its_nearest(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("weekday,late\n1,0\n")
    with pytest.raises(UsageError, match="lacks the column 'week_day'; did you mean weekday"):
        read_rows(tmp_path / "t.csv", FORM, lambda *_: ("week_day",))


def test_lists_of_choices_are_categories(tmp_path: Path) -> None:
    chosen = ("1 2 1,3 1,2,3 2,3,4", "1 2 A B C 1,2", "10,12,15 10,20,30 12,15")
    for values in chosen:
        rows = read(
            tmp_path / "t.csv", "v;w\n" + values.replace(" ", ";1\n") + ";1\n", CsvFormat(";", ())
        )
        assert isinstance(column_of(rows, "v"), ColumnWords)


def test_a_file_of_a_folder_with_another_separator_is_to_be_saved_again(tmp_path: Path) -> None:
    for name, separator in zip("abcd", ",,;,", strict=True):
        rows = ["age,y", *(f"{n},{n % 2}" for n in range(20))]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows).replace(",", separator))
    said = r"c\.csv: values .* by semicolons, unlike those of .*a\.csv: save it with commas$"
    with pytest.raises(UsageError, match=said):
        umbel.scenario("table", path=str(tmp_path), target="y")
    (tmp_path / "c.csv").rename(tmp_path / "c")
    with pytest.raises(UsageError, match=r"a\.csv: .* by commas: write separator = \",\""):
        umbel.scenario("table", path=str(tmp_path), target="y", separator=";")


def sites(folder: Path, **headers: str) -> Path:
    """A file for each site, with numbers below the header."""
    for name, header in headers.items():
        rows = [",".join([str(n), *"01" * 4][: header.count(",") + 1]) for n in range(20)]
        (folder / f"{name}.csv").write_text("\n".join([header, *rows]))
    return folder


@pytest.mark.parametrize(
    ("odd", "settings", "said"),
    [
        ("Age,w,y", {}, r"a\.csv: lacks the column 'age', which .*b\.csv has; rename its 'Age'"),
        ("age ,w,y", {}, r"lacks the column 'age', which .*b\.csv has; rename its 'age '"),
        ("w,x,y", {}, r"lacks the column 'age', which .* has; add it, or name it in leave_out"),
        (
            "age,w,y,bmi",
            {},
            r"a\.csv: has the column 'bmi', which .*b\.csv lacks; name it in leave",
        ),
        ("Age,w,y", {"columns": ["age"]}, r"'age', which .*b\.csv has; rename its 'Age'"),
        ("age,w,Y", {}, r"lacks the column 'y', which .*b\.csv has; rename its 'Y'"),
        ("age,w,y", {"leave_out": ["v"]}, r"lacks the column 'v'.*; columns: 'y', 'age', 'w'"),
    ],
)
def test_the_file_of_a_folder_whose_columns_differ_is_named_with_what_to_do(
    odd: str, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = sites(tmp_path, a=odd, b="age,w,y", c="age,w,y")
    with pytest.raises(UsageError, match=said):
        umbel.scenario("table", path=str(folder), target="y", **settings)


@pytest.mark.parametrize("has", ["ac", "b"])
def test_a_column_that_only_some_files_have_can_be_left_out(has: str, tmp_path: Path) -> None:
    headers = {name: "age,y,bmi" if name in has else "age,y" for name in "abc"}
    folder = sites(tmp_path, **headers)
    made = umbel.scenario("table", path=str(folder), target="y", leave_out=["bmi"])
    assert made.train.x.shape[-1] == 1
    assert "bmi: left out" in str(made)
