"""What is known of clients goes with them, into files and back, and into no digest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import umbel
from umbel.checks import UsageError

CLIENTS = {name: (np.ones((6, 2)), np.arange(6) % 2) for name in ("Ava", "Ben", "Cleo")}


def known(attributes: dict[str, object]) -> umbel.Federation:
    return umbel.Federation.from_arrays(CLIENTS, attributes=attributes)  # type: ignore[arg-type]


def test_attributes_come_in_a_list_or_by_client() -> None:
    by_name = {"Cleo": "north", "Ava": "south", "Ben": "south"}
    federation = known({"site": by_name, "wrist": [0, 1, 0]})
    assert federation.attributes == {
        "site": ("south", "south", "north"),
        "wrist": ("0", "1", "0"),
    }
    assert repr(federation).endswith("2 classes, known: site and wrist")
    assert "north" in federation._repr_html_()
    assert umbel.Federation.from_arrays(CLIENTS).attributes == {}


def test_those_of_picked_clients_stay_theirs() -> None:
    federation = known({"site": ["south", "west", "north"]}).pick([2, 0])
    assert federation.names == ("Cleo", "Ava")
    assert federation.attributes == {"site": ("north", "south")}


def test_values_that_are_not_known_are_empty() -> None:
    federation = known({"site": ["south", None, float("nan")]})
    assert federation.attributes == {"site": ("south", "", "")}


def test_a_folder_keeps_them(tmp_path: Path) -> None:
    attributes = {"site": ("the south, far", 'a "quoted" one', "north"), "wrist": ("0", "1", "")}
    known(dict(attributes)).save(tmp_path)
    lines = (tmp_path / "attributes.csv").read_text().splitlines()
    assert lines[0] == "client,site,wrist"
    assert umbel.scenario("folder", path=str(tmp_path)).attributes == attributes


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"site": ["south"]}, "attributes: site: 1 is not as many clients as 3"),
        ({"site": {"Ava": 1, "Ben": 2, "Dan": 3}}, "attributes: site: lacks Cleo and names Dan"),
        ({"client": [1, 2, 3]}, "attributes: 'client' is not a name for an attribute"),
        ({" ": [1, 2, 3]}, "attributes: ' ' is not a name for an attribute"),
        ({"site": ["a" * (2**17 + 1), "b", "c"]}, "131,073 characters' is not one of at most 131,"),
        ({"site": ["a\x1b[2J", "b", "c"]}, "is not without control characters"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(
    attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        known(attributes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: '' is not of the form client,NAME"),
        ("name,site\nAva,x\n", r"line 1: 'name,site' is not of the form client,NAME"),
        ("client,site,site\nAva,x,y\n", "line 1: .* with different names"),
        ("client,site\nAva\n", "line 2: '1 value' is not one for each of"),
        ("client,site\nAva,x\nAva,y\n", "line 3: 'Ava' is not named only once"),
        (f"client,site\nAva,{200_000 * 'x'}\n", "not a table of values between commas: field lar"),
        ("client,site\nAva,x\nEve,y\n", "line 3: 'Eve' is not a client; known: Ava, Ben, Cleo"),
        ("client,site\nAva,x\n\n", "'Ben' is not in the file, which needs a line for each"),
    ],
)
def test_a_bad_file_of_attributes_is_refused_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    umbel.Federation.from_arrays(CLIENTS).save(tmp_path)
    (tmp_path / "attributes.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        umbel.scenario("folder", path=str(tmp_path))
