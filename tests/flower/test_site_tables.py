"""Sites that read tables of their own must mean the same by each number of an example."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel
from tests.flower.grid import MemoryGrid
from tests.flower.small import site
from umbel.algorithms import IFCA, FedAvg
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.tables.encoding import Encoding
from umbel.files.seals import json_text
from umbel.flower import Settings, serve
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.registry import Roll
from umbel.networks import MLP
from umbel.result.run import Experiment

pd = pytest.importorskip("pandas", reason="tables need pandas")

EXPERIMENT = Experiment(
    ROTATED_DIGITS, MLP((4,)), FedAvg(LocalTraining(epochs=1)), participation=1.0, rounds=1
)


def table(
    folder: Path, name: str, wards: str = "ABC", classes: tuple[str, str] = ("home", "stay")
) -> Federation:
    """The clients of one site, two of them, whose ages are its own."""
    rng = np.random.default_rng(len(name))
    rows = pd.DataFrame(
        {
            "who": np.arange(80) % 2,
            "age": rng.normal(20 * len(name), 5, 80),
            "ward": rng.choice(list(wards), 80),
            "outcome": rng.choice(classes, 80),
        }
    )
    rows["who"] = rows["who"].map(lambda client: f"{name} {client}")
    rows.to_csv(folder / f"{name}.csv", index=False)
    path = str(folder / f"{name}.csv")
    return umbel.scenario("table", path=path, client="who", target="outcome")


def served(folder: Path, *federations: Federation) -> tuple[list[str], list[str]]:
    """Whose clients took part, and why nodes were left out."""
    settings = Settings(2, patience=2.0, runs_dir=str(folder / "runs"))
    run = serve(site(folder, *federations, of=EXPERIMENT), EXPERIMENT, settings)
    refused = Owners.read(run.file("nodes.json"), 60.0).refused
    return [client.name for client in run.clients()], list(refused.values())


def test_tables_that_are_scaled_by_their_own_rows_are_joined(tmp_path: Path) -> None:
    names, refused = served(tmp_path, table(tmp_path, "north"), table(tmp_path, "southern"))
    assert names == ["north 0", "north 1", "southern 0", "southern 1"]
    assert refused == []


@pytest.mark.parametrize("other", [{"wards": "ABD"}, {"classes": ("died", "stay")}])
def test_a_table_with_other_categories_or_classes_is_left_out(
    tmp_path: Path, other: dict[str, tuple[str, str]]
) -> None:
    most = table(tmp_path, "north"), table(tmp_path, "southern")
    names, refused = served(tmp_path, *most, table(tmp_path, "west", **other))  # type: ignore[arg-type]
    assert names == ["north 0", "north 1", "southern 0", "southern 1"]
    (said,) = refused
    assert said.startswith("left out: the columns of its table, their categories, the classes or")


def test_a_table_that_lacks_a_category_is_told_how_sites_become_alike(tmp_path: Path) -> None:
    most = table(tmp_path, "north"), table(tmp_path, "southern")
    names, (said,) = served(tmp_path, *most, table(tmp_path, "west", wards="AB"))
    assert len(names) == 4
    assert "input_shape is (3,), but at the other sites (4,); a table has a feature for" in said
    assert "let all sites encode rows alike" in said


def test_arrays_are_joined_with_tables_of_the_same_shape(tmp_path: Path) -> None:
    as_arrays = table(tmp_path, "west", wards="ABD")
    bare = replace(as_arrays, encoding=None)
    names, refused = served(tmp_path, table(tmp_path, "north"), bare)
    assert names == ["north 0", "north 1", "west 0", "west 1"]
    assert refused == []


def test_what_tables_are_like_is_settled_before_the_first_round_or_never(tmp_path: Path) -> None:
    north, west = table(tmp_path, "north"), table(tmp_path, "west", wards="ABD")
    first = Meeting(site(tmp_path, north, of=EXPERIMENT), 5.0)
    assert len(first.gather(2, 1.0)) == 2
    # As of a run that an earlier version began, in which both took part.
    again = Meeting(site(tmp_path, north, west, of=EXPERIMENT), 5.0, first.form)
    assert len(again.gather(4, 1.0)) == 4


def test_of_two_kinds_of_tables_none_leads(tmp_path: Path) -> None:
    with pytest.raises(umbel.UsageError, match="no table is that of most nodes"):
        served(tmp_path, table(tmp_path, "north"), table(tmp_path, "west", wards="ABD"))


def test_tables_of_which_none_leads_are_left_out_where_half_of_the_sites_have_arrays(
    tmp_path: Path,
) -> None:
    arrays = [replace(table(tmp_path, name), encoding=None) for name in ("east", "southern")]
    names, refused = served(
        tmp_path, *arrays, table(tmp_path, "north"), table(tmp_path, "west", wards="ABD")
    )
    assert names == ["east 0", "east 1", "southern 0", "southern 1"]
    assert len(refused) == 2


@pytest.mark.parametrize("tie", [False, True])
def test_a_resumed_run_holds_tables_to_what_it_has_decided(tmp_path: Path, tie: bool) -> None:
    arrays = [replace(table(tmp_path, each), encoding=None) for each in ("a", "bb", "ccc")]
    tables = [table(tmp_path, "north"), table(tmp_path, "southern", wards="ABD" if tie else "ABC")]
    settings = Settings(6 if tie else 10, patience=2.0, runs_dir=str(tmp_path / "runs"))
    run = serve(site(tmp_path, *arrays, *tables, of=EXPERIMENT), EXPERIMENT, settings)
    run.file("clusters.csv").unlink()
    # The node has an array before, or a table like the other one.
    changed = {0: table(tmp_path, "a")} if tie else {3: table(tmp_path, "north", wards="ABD")}
    again = [changed.get(n, each) for n, each in enumerate([*arrays, *tables])]
    run = serve(site(tmp_path, *again, of=EXPERIMENT), EXPERIMENT, settings)
    refused = Owners.read(run.file("nodes.json"), 60.0).refused
    assert ("node 1" if tie else "node 4") in refused


def test_a_date_is_no_number_and_a_number_that_is_not_scaled_no_scaled_one(tmp_path: Path) -> None:
    encoding = table(tmp_path, "north").encoding
    assert isinstance(encoding, Encoding)
    first, *others = encoding.columns
    dated = replace(encoding, columns=(replace(first, kind="date"), *others))
    meanings = {one.meaning for one in (encoding, dated, replace(encoding, scaled=False))}
    assert len(meanings) == 3


def test_the_meaning_of_a_table_is_not_its_scale(tmp_path: Path) -> None:
    first, second = (table(tmp_path, name).encoding for name in ("north", "southern"))
    assert isinstance(first, Encoding)
    assert isinstance(second, Encoding)
    assert not first.is_like(second)
    assert first.meaning == second.meaning


def test_a_run_that_began_without_the_meaning_of_inputs_goes_on(tmp_path: Path) -> None:
    federations = table(tmp_path, "north"), table(tmp_path, "southern")
    grid = site(tmp_path, *federations, of=EXPERIMENT)
    settings = Settings(4, patience=5.0, runs_dir=str(tmp_path / "runs"))
    run = serve(grid, EXPERIMENT, settings)
    roll = Roll.read(run.file("clients.json")).plain
    assert roll.pop("inputs")
    run.file("clients.json").write_text(json_text(roll))
    run.file("clusters.csv").unlink()
    again = serve(grid, EXPERIMENT, settings)
    assert len(again.clients()) == 4


def grouped(folder: Path, *federations: Federation) -> umbel.Result:
    """A finished run of these sites, whose method has clusters."""
    experiment = replace(EXPERIMENT, algorithm=IFCA(num_clusters=2, local=LocalTraining(epochs=1)))
    settings = Settings(2, patience=5.0, runs_dir=str(folder / "runs"))
    run = serve(site(folder, *federations, of=experiment), experiment, settings)
    return umbel.load(run.path)


@pytest.mark.parametrize("other", [{"wards": "ABD"}, {"classes": ("stay", "left")}])
def test_a_table_unlike_those_of_the_sites_is_no_newcomer(
    tmp_path: Path, other: dict[str, tuple[str, str]]
) -> None:
    result = grouped(tmp_path, table(tmp_path, "north"))
    alike, unlike = table(tmp_path, "south"), table(tmp_path, "west", **other)  # type: ignore[arg-type]
    assert set(result.assign(alike).clusters) == {"south 0", "south 1"}
    for labelled in (True, False):
        with pytest.raises(umbel.UsageError, match="not those of the sites' tables"):
            result.assign(unlike, labelled=labelled, clients=alike)
    result.folder.file("clients.json").unlink()
    assert len(result.assign(unlike).clusters) == 2  # nothing says what tables are like


def test_a_table_on_disk_can_not_be_encoded_where_sites_have_encoded_theirs(tmp_path: Path) -> None:
    result = grouped(tmp_path, table(tmp_path, "north"))
    table(tmp_path, "west")
    with pytest.raises(umbel.UsageError, match=r"how sites encode their tables; give arrays") as no:
        result.assign(tmp_path / "west.csv")
    assert "clusters.csv" not in str(no.value)


@dataclass
class OneByOne(MemoryGrid):
    """Nodes connect one after another, one each third time that somebody looks."""

    looks: int = 0

    def get_node_ids(self) -> list[int]:
        return super().get_node_ids()[: 1 + self.looks // 3]

    def get_nodes(self) -> Any:
        self.looks += 1
        return super().get_nodes()


@pytest.mark.parametrize(
    ("wards", "wanted"), [(["ABC", "ABD", "ABC"], 4), (["ABC", "ABC", "ABD", "ABC"], 6)]
)
def test_tables_that_will_not_take_part_are_not_counted_while_sites_are_waited_for(
    tmp_path: Path, wards: list[str], wanted: int
) -> None:
    tables = [table(tmp_path, f"site{'x' * n}", each) for n, each in enumerate(wards)]
    grid = site(tmp_path, *tables, of=EXPERIMENT)
    meeting = Meeting(OneByOne(grid.apps, grid.configs), 5.0)
    nodes = meeting.gather(wanted, 60.0)
    assert sorted(set(nodes.values())) == [n for n, each in enumerate(wards, 1) if each == "ABC"]
    assert len(nodes) == wanted
