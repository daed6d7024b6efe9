"""What things say of themselves: short, and never the examples or the models."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import umbel
from tests.federations import blobs, mlp
from umbel.data.federation import Federation
from umbel.notebooks import HtmlTable, cut
from umbel.result.outcomes import spread_text
from umbel.run.records import Record
from umbel.summary import counted, number_text, scaled_text

SHORT = 400

SHOWN_WHOLE = {
    "ClusterCount",  # a few numbers
    "Heatmap",  # a figure
    "Meta",  # numbers, and a function of tensors
    "Objective",  # functions of tensors
    "Tree",  # an order
}


def state_classes() -> list[type[Any]]:
    """All dataclasses of the package that hold tensors or arrays."""
    found: dict[str, type[Any]] = {}
    for module in pkgutil.walk_packages(umbel.__path__, "umbel."):
        if ".template" in module.name or module.name.endswith("__main__"):
            continue
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                types = [str(field.type) for field in dataclasses.fields(kind)]
                if kind.__module__ == module.name and re.search("Tensor|NDArray", str(types)):
                    found[f"{module.name}.{kind.__name__}"] = kind
    return list(found.values())


@pytest.mark.parametrize("kind", state_classes(), ids=lambda kind: kind.__name__)
def test_what_holds_tensors_says_so_without_their_values(kind: type[Any]) -> None:
    written_by_dataclass = hasattr(vars(kind)["__repr__"], "__wrapped__")
    assert written_by_dataclass == (kind.__name__ in SHOWN_WHOLE)


def test_a_federation_is_its_sizes_and_never_its_examples() -> None:
    x = np.full((4, 3), 1234.5, dtype=np.float32)
    federation = Federation.from_arrays(
        [(x, np.array([0, 1, 2, 0]))] * 2, [(x[:1], np.array([2]))] * 2, groups=[0, 1]
    )
    assert repr(federation) == (
        "Federation: 2 clients, 8 training and 2 test examples, inputs (3,), 3 classes, "
        "2 planted groups"
    )
    for said in (repr(federation.train), federation._repr_html_(), str(federation)):
        assert "1234" not in said
        assert len(said) < 3000
    assert repr(federation.train) == "Split(x=float32 (8, 3), y=int64 (8,), offsets=int64 (3,))"


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.arange(4.0), "regression of one value"),
        (np.ones((4, 2)), "regression of (2,) values"),
        (np.arange(8).reshape(4, 2) % 3, "3 classes for each of (2,)"),
    ],
)
def test_a_federation_says_what_is_to_be_learnt(y: np.ndarray, said: str) -> None:
    federation = Federation.from_arrays([(np.ones((4, 3)), y)], test_fraction=0)
    assert repr(federation) == (
        f"Federation: 1 client, 4 training and 0 test examples, inputs (3,), {said}"
    )


def test_runs_nets_states_and_records_are_short() -> None:
    federation, net = blobs(), mlp()
    run = umbel.Run(umbel.FLACC(n_sep=3), federation, net, participation=0.5)
    for state, record in run.rounds(1):
        assert repr(run).startswith("Run: FLACC(n_sep=3), seed 0, participation 0.5; Federation: 6")
        assert repr(net) == "Net: Sequential, 83 trained values, classification"
        assert repr(state).startswith("FLACCState(models=float32 (1, 83), labels=int64 (6,), ")
        assert repr(record) == (
            f"Record: round 0, accuracy {record.accuracy:.3f}, "
            f"{counted(record.num_clusters or 0, 'cluster')}, ARI {record.ari:.2f}"
        )
        for shown in (run, net, state, record, run.context(0, 1), run.start(1)):
            assert len(repr(shown)) < SHORT
            assert not re.search(r"tensor|array\(", repr(shown))


def test_names_are_escaped_and_tables_have_no_colours_of_their_own() -> None:
    x, y = np.ones((2, 1)), np.array([0, 1])
    federation = Federation.from_arrays([(x, y)], names=["<b>&"], test_fraction=0)
    html = federation._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "<b>" not in html
    for shown in (html, Record(3, accuracy=0.5, measures={"<i>": 1.0})._repr_html_()):
        assert "<i>" not in shown
        assert not re.search(r"#[0-9a-f]{3}|(?<!-)color:|background", shown)
        assert not re.search(r"<script|<link|src=", shown)


def test_long_tables_are_cut_and_say_so() -> None:
    table = cut(("a", "b"), [(str(n), "x") for n in range(1030)], "title", "clients")
    assert repr(table).splitlines()[-1] == "... and 1,010 more clients"
    assert len(table.rows) == 20
    assert repr(HtmlTable(("run", "ARI"), (("ifca", "0.5"),))) == "run   ARI\nifca  0.5"


def test_a_result_is_its_last_round_and_never_fails(tmp_path: Path) -> None:
    experiment = umbel.read(
        umbel.find_experiment("flacc-digits"), ["rounds=2", "scenario.clients=8"]
    )
    folder = umbel.RunFolder.create(tmp_path / "first", experiment)
    *_, last = umbel.execute(folder, umbel.Sources.default())
    result = umbel.load(tmp_path / "first")
    assert repr(result) == (
        f"Result: {tmp_path / 'first'}: flacc-digits, seed 0, 2 rounds; "
        f"accuracy {last.accuracy:.3f}, {last.num_clusters} cluster"
        f"{'' if last.num_clusters == 1 else 's'}, ARI {number_text(last.ari, 2)}"
    )
    members = [name for name, cluster in result.clusters.items() if cluster == 0]
    assert f">{', '.join(members)}<" in result._repr_html_()
    (tmp_path / "first" / "records.jsonl").write_text("damaged")
    (tmp_path / "first" / "clusters.csv").write_text("damaged")
    damaged = umbel.load(tmp_path / "first")
    assert repr(damaged).endswith("first, which can't be read")
    assert "can&#x27;t be read" in damaged._repr_html_()


def test_an_assignment_is_who_goes_where() -> None:
    scores = torch.tensor([[0.5, 0.25], [1.0, 2.0]])
    found = umbel.Assignment(("<b>", "Ben"), scores, "training loss")
    assert repr(found) == "Assignment: 2 newcomers, their clusters: <b>: 1, Ben: 0"
    assert "&lt;b&gt;" in found._repr_html_()
    assert "0.25" in found._repr_html_()


def test_small_losses_are_told_by_three_digits() -> None:
    told = {0.123456: "0.1235", 0.0123456: "0.0123", 0.00123456: "0.00123", 1.23456e-7: "1.23e-07"}
    assert {value: scaled_text(value, 4) for value in told} == told
    assert (scaled_text(0.0, 4), scaled_text(None, 4)) == ("0.0000", "-")
    assert spread_text([0.002, 0.001], 4, scaled=True) == "0.0015±0.0005"
    assert spread_text([2e-5, 1e-5], 4, scaled=True) == "1.5e-05±5e-06"
    assert spread_text([0.2, 0.1], 4, scaled=True) == "0.1500±0.0500"
    assert spread_text([0.05, 0.05], 3, scaled=True) == "0.050±0.000"
    assert spread_text([200.001, -199.999], 3, scaled=True) == "0.001±200.000"
