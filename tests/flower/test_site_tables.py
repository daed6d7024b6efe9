"""Sites that read tables of their own must mean the same by each number of an example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import umbel
from tests.flower.small import site
from umbel.algorithms import IFCA, FedAvg
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.tables.encoding import Encoding
from umbel.flower import Settings, serve
from umbel.flower.client_owners import Owners
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


def test_of_two_kinds_of_tables_none_leads(tmp_path: Path) -> None:
    with pytest.raises(umbel.UsageError, match="no table is that of most nodes"):
        served(tmp_path, table(tmp_path, "north"), table(tmp_path, "west", wards="ABD"))


def test_the_meaning_of_a_table_is_not_its_scale(tmp_path: Path) -> None:
    first, second = (table(tmp_path, name).encoding for name in ("north", "southern"))
    assert isinstance(first, Encoding)
    assert isinstance(second, Encoding)
    assert not first.is_like(second)
    assert first.meaning == second.meaning


def grouped(folder: Path, *federations: Federation) -> umbel.Result:
    """A finished run of these sites, whose method has clusters."""
    experiment = replace(EXPERIMENT, algorithm=IFCA(num_clusters=2, local=LocalTraining(epochs=1)))
    settings = Settings(2, patience=5.0, runs_dir=str(folder / "runs"))
    run = serve(site(folder, *federations, of=experiment), experiment, settings)
    return umbel.load(run.path)


def test_a_table_unlike_those_of_the_sites_is_no_newcomer(tmp_path: Path) -> None:
    result = grouped(tmp_path, table(tmp_path, "north"))
    alike, unlike = table(tmp_path, "south"), table(tmp_path, "west", wards="ABD")
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
