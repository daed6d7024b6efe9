"""The example that makes clients of public sources: what it makes of words and packages."""

from __future__ import annotations

from pathlib import Path

import pytest

import umbel

pd = pytest.importorskip("pandas", reason="the extra umbel[data] is not installed")
pytest.importorskip("pyarrow", reason="the extra umbel[data] is not installed")

ENTRY = """Package: thing{number}
Maintainer: {team} <team@example.org>
Section: {section}
Description: a {section} thing: number {number}
 and more about it.

"""


def test_packages_of_teams_with_many_in_two_sections(tmp_path: Path) -> None:
    from examples.natural_data import main

    index = tmp_path / "Packages"
    entries = [
        ENTRY.format(number=number, team=team, section=section)
        for number in range(120)
        for team, section in (
            ("Team One", "contrib/libs" if number % 2 else "doc"),
            ("Team of one section", "games"),
        )
    ]
    index.write_text("".join(entries) + "Package: nobody's\n")
    main([str(tmp_path), "packages", str(index)])
    table = pd.read_parquet(tmp_path / "natural" / "packages.parquet")
    assert set(table["client"]) == {"Team One"}
    assert set(table["section"]) == {"libs", "doc"}
    assert table["text"][0] == "a doc thing: number 0"
    scenario = umbel.scenario("packages", data_dir=tmp_path, text_features=16)
    assert scenario.names == ("Team One",)


def test_words_of_six_clients_a_language(tmp_path: Path) -> None:
    from examples.natural_data import main

    for language, stem in (("german", "haus"), ("french", "maison")):
        lines = [f"{stem}{a}{b}".capitalize() for a in "abcdef" for b in "ghijkl"]
        (tmp_path / language).write_text("\n".join([*lines, "xy", "it's"]))
    main([str(tmp_path), "words", *(f"{n}={tmp_path / n}" for n in ("german", "french"))])
    federation = umbel.scenario("words", data_dir=tmp_path, words=0)
    assert federation.num_clients == 12
    assert federation.names[:2] == ("french-0", "french-1")
    assert federation.attributes["language"].count("german") == 6


@pytest.mark.parametrize(
    "given", [["wristwatch"], ["packages"], ["words"], ["words", "german"], []]
)
def test_unknown_or_missing_arguments_are_refused_with_what_there_is(
    given: list[str], tmp_path: Path
) -> None:
    from examples.natural_data import main

    with pytest.raises(SystemExit, match=r"examples/natural_data.py DIRECTORY watch"):
        main([str(tmp_path), *given])
    assert not any(tmp_path.iterdir())
