"""What things say of themselves: short, and never the examples or the models."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.federations import blobs, mlp
from umbel.client.objectives import Objective
from umbel.data.federation import Federation
from umbel.notebooks import HtmlTable, cut
from umbel.report.terminal.results import one_line
from umbel.result.outcomes import spread_text
from umbel.run.records import Record
from umbel.summary import counted, number_text, scaled_text, settings

SHORT = 400

SHOWN_WHOLE = {
    "ClusterCount",  # a few numbers
    "Heatmap",  # a figure
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


def test_a_state_of_ones_own_is_short_too_unless_it_says_otherwise() -> None:
    @dataclass(frozen=True)
    class Mine(umbel.State):
        seen: Tensor

    @dataclass(frozen=True)
    class Loud(umbel.State):
        def __repr__(self) -> str:
            return "loud"

    zeros = torch.zeros(2, 3)
    assert repr(Mine(zeros, zeros, zeros)).endswith("seen=float32 (2, 3))")
    assert repr(Loud(zeros, zeros)) == "loud"


def test_nets_tell_what_is_not_trained_and_what_for() -> None:
    own = Objective(lambda o, y: (o - y).abs().sum(1), lambda o, y: (o > y).sum(1))
    net = umbel.Net(lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), own)
    assert repr(net) == ("Net: Sequential, 12 trained values and 4 others, an objective of its own")
    assert "running_mean" in net._repr_html_()


def test_messages_about_modules_do_not_print_tensors() -> None:
    with pytest.raises(TypeError, match=r"build returned a Tensor, which is not an nn\.Module"):
        umbel.Net(lambda: torch.full((3,), 1234.5))  # type: ignore[arg-type, return-value]


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


def test_settings_are_the_ones_that_are_not_the_defaults() -> None:
    assert settings(umbel.FLACC()) == "FLACC"
    own = umbel.FedAvg(umbel.LocalTraining(lr=0.5))
    assert settings(own) == "FedAvg(local=LocalTraining(lr=0.5))"
    assert settings(nn.Linear(1, 1)) == "Linear"
    assert [counted(n, "client") for n in (1, 1200)] == ["1 client", "1,200 clients"]


def test_what_is_rounded_to_zero_has_no_sign() -> None:
    assert [number_text(value, 2) for value in (-0.0033, -0.0067, None)] == ["0.00", "-0.01", "-"]
    assert number_text(3, 0) == "3"
    assert spread_text([-0.001, -0.003], 2) == "0.00±0.00"
    record = Record(0, ari=-0.0033)
    assert repr(record) == "Record: round 0, ARI 0.00"
    assert one_line(record, None) == "round 1  ARI 0.00"


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
