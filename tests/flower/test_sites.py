"""Sites come with data of their own, late, under names, or in a form that does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import ERRORS
from tests.flower.small import SMALL, clients, engine_of, grid_of, site
from umbel.algorithms import FLACC, FedAvg, Oracle
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.flower import Settings, client_app, serve, site_clients, slice_of
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.handshake import Site, SiteForm
from umbel.flower.registry import Roll
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import Linear
from umbel.result.run import Experiment
from umbel.run.personal import Personal


def test_sites_of_their_own_data_need_no_planted_groups(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["north", "east"]), clients(["south"]))
    settings = Settings(3, patience=5, runs_dir=str(tmp_path / "runs"))
    folder = serve(grid, replace(SMALL, algorithm=FLACC(LOCAL)), settings)
    assert [client.name for client in folder.clients()] == ["east", "north", "south"]
    assert folder.records()[-1].ari is None


def test_regressions_have_a_loss_and_no_accuracy(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((20, 3), dtype=np.float32)
    federation = Federation.from_arrays([(x, x.sum(1)), (x, -x.sum(1))])
    settings = Settings(2, patience=5, runs_dir=str(tmp_path / "runs"))
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), model=Linear(), rounds=1)
    record = serve(site(tmp_path, federation, of=experiment), experiment, settings).records()[-1]
    assert record.loss is not None
    assert record.accuracy is None
    assert not record.refused


@pytest.mark.parametrize("labels", [1, 3])
def test_examples_may_have_several_labels_that_are_there_or_not(
    labels: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((20, 3), dtype=np.float32)
    shape = (20,) if labels == 1 else (20, labels)
    federation = Federation.from_arrays([(x, rng.integers(0, 2, shape)) for _ in range(2)])
    settings = Settings(2, patience=5, runs_dir=str(tmp_path / "runs"))
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), model=Linear(), rounds=1)
    experiment = replace(experiment, objective="binary")
    record = serve(site(tmp_path, federation, of=experiment), experiment, settings).records()[-1]
    assert record.accuracy is not None
    assert not record.refused


def test_a_site_of_another_form_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    other = Federation.from_arrays(
        [(rng.random((9, 32), dtype=np.float32), rng.integers(0, 10, 9))], num_classes=10
    )
    meeting = Meeting(site(tmp_path, other, clients(["a"]), clients(["b"])), 5.0)
    assert set(meeting.gather(3, 0.6)) == {"a", "b"}
    assert meeting.left_out == {1}
    assert "node 1 is left out: input_shape is (32,), but at the other sites (64,)" in caplog.text


def scaled(federation: Federation, factor: float) -> Federation:
    """The same clients with whole numbers up to about the factor, as pictures in files have."""
    train = replace(federation.train, x=(factor * federation.train.x).floor())
    return replace(federation, train=train)


def test_a_site_of_another_scale_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, scaled(clients(["a"]), 255), clients(["b"]), clients(["c"]))
    meeting = Meeting(grid, 5.0)
    assert set(meeting.gather(3, 0.6)) == {"b", "c"}
    assert meeting.left_out == {1}
    said = "node 1 is left out: x has whole numbers beyond 1, and that of nodes 2 and 3 has"
    assert said in caplog.text
    late = client_app(tmp_path / "experiment.toml", lambda *_: scaled(clients(["d"]), 255))
    grid.apps, grid.configs = {**grid.apps, 4: late}, {**grid.configs, 4: {}}
    assert set(meeting.look_around()) == {"b", "c"}
    assert "node 4 is left out: x has whole numbers beyond 1" in caplog.text


def test_two_sites_of_different_scales_do_not_begin(tmp_path: Path) -> None:
    meeting = Meeting(site(tmp_path, scaled(clients(["a"]), 255), clients(["b"])), 5.0)
    with pytest.raises(UsageError, match=r"fractions of at most 1: .*; neither is what most nodes"):
        meeting.gather(2, 0.6)


def test_a_site_in_other_units_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = clients(["a"])
    other = replace(other, train=replace(other.train, x=100 * other.train.x))
    meeting = Meeting(site(tmp_path, other, clients(["b"]), clients(["c"])), 5.0)
    assert set(meeting.gather(3, 0.6)) == {"a", "b", "c"}
    assert "node 1: x is on average at least" in caplog.text


def test_a_node_that_comes_late_is_told_of_and_takes_no_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b", "c"]))
    late, grid.apps = {2: grid.apps[2]}, {1: grid.apps[1]}
    engine = engine_of(grid, wanted=1)
    run = replace(SMALL, algorithm=FedAvg(LOCAL)).run(clients(["a"]), engine)
    rounds = run.rounds(3)
    next(rounds)
    grid.apps = {**grid.apps, **late}
    *_, (_, record) = rounds
    told = [line for line in caplog.messages if "connected after the run began" in line]
    said = "clients 'b', 'c' are not part of it; a new run would include them"
    assert told == [f"node 2 connected after the run began: {said}"]
    assert engine.nodes == {"a": 1}
    assert record.missing == ()


def test_a_node_whose_app_does_not_load_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    grid.fate[2] = "not loaded"
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(2, 0.6) == {"a": 1}
    said = (
        f"node 2 is left out: error {ERRORS['not loaded']}: not loaded; this node's log says more"
    )
    assert caplog.messages == [f"{said}; it will be asked again"]


def test_a_node_that_could_not_read_its_data_at_first_takes_part_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    tries = []

    def load(context: Context, settings: Experiment) -> Federation:  # noqa: ARG001
        tries.append(context.node_id)
        if len(tries) == 1:
            raise OSError("the share is not mounted")
        return clients(["b"])

    grid.apps = {**grid.apps, 2: client_app(tmp_path / "experiment.toml", load)}
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(2, 60) == {"a": 1, "b": 2}
    assert meeting.left_out == set()
    assert not meeting.owners.refused
    assert caplog.messages[-1] == "node 2 can work now"


def test_without_enough_clients_nothing_begins(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["a"]))
    settings = Settings(2, patience=0.5, runs_dir=str(tmp_path / "runs"))
    with pytest.raises(ValueError, match=r"clients: 1 is not at least 2 after 0\.5 s"):
        serve(grid, SMALL, settings)


VALIDATING = replace(
    SMALL,
    scenario=replace(ROTATED_DIGITS, clients=8, examples=(20, 40), validation_fraction=0.2),
)


def without(context: Context, settings: Experiment) -> Federation:
    """What a node has, without validation examples."""
    built = settings.scenario.build(settings.seed, Sources.default())
    return replace(slice_of(context, built), validation=None)


def served_by(tmp_path: Path, unvalidated: slice, experiment: Experiment = VALIDATING) -> RunFolder:
    """A run with these nodes, counted from 0, that have no validation examples."""
    grid = grid_of(experiment, tmp_path / "site")
    app = client_app(tmp_path / "site" / "experiment.toml", without)
    apps = {**grid.apps, **dict.fromkeys(list(grid.apps)[unvalidated], app)}
    return serve(replace(grid, apps=apps), experiment, Settings(8, runs_dir=str(tmp_path)))


def test_nodes_judge_rounds_on_validation_examples_though_some_have_none(tmp_path: Path) -> None:
    served = served_by(tmp_path, slice(0, 1))
    records = served.records()
    assert all(record.validation_loss is not None for record in records)
    assert [record.loss is None for record in records] == [True, True, True, False]
    assert not any(record.refused or record.missing for record in records)
    sizes = Roll.read(served.file("clients.json")).validation
    assert sizes is not None
    assert sum(size == 0 for size in sizes) == 3


def many(name: str, count: int, **told: Any) -> Site:
    """A node with this many clients, each of 20 examples."""
    form = SiteForm(input_shape=(64,), num_outputs=10, num_classes=10, model="m")
    names = [f"{name}{n}" for n in range(count)]
    return replace(Site(names, [20] * count, [5] * count, None, form), **told)


def called(*sites: Site) -> Roll:
    """The roll of nodes, counted from 1, that have these clients."""
    nodes = dict(enumerate(sites, start=1))
    return Roll.call({name: n for n, site in nodes.items() for name in site.clients}, nodes)


def test_clients_choose_their_models_though_most_nodes_have_no_validation_examples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tuned = Personal(epochs=(1,), batch_size=10)
    experiment = replace(VALIDATING, algorithm=FedAvg(LOCAL), rounds=1, personal=tuned)
    served = served_by(tmp_path, slice(1, None), experiment)
    sizes = Roll.read(served.file("clients.json")).validation
    assert sizes is not None
    assert sum(size > 0 for size in sizes) == 3
    chosen = [c.tuned_epochs for c, size in zip(served.clients(), sizes, strict=True) if not size]
    assert chosen == [0] * 5
    assert "1 of 3 nodes say that half of their clients or more have validation" in caplog.text
    (tmp_path / "none").mkdir()
    with pytest.raises(UsageError, match=r"^personal: no node has validation examples, .* at the"):
        served_by(tmp_path / "none", slice(None), experiment)


def test_nodes_that_tell_no_planted_groups_are_named(caplog: pytest.LogCaptureFixture) -> None:
    assert called(many("a", 2, groups=[0, 1]), many("b", 1, groups=[1])).groups == [0, 1, 1]
    assert called(many("a", 2), many("b", 1)).groups is None
    assert not caplog.messages
    assert called(many("a", 2, groups=[0, 1]), many("b", 1)).groups is None
    assert caplog.messages == ["no planted groups are used, as not all nodes tell them: node 2"]


def test_a_node_without_planted_groups_is_left_out_of_a_run_that_needs_them(
    tmp_path: Path,
) -> None:
    planted = replace(clients(["a", "b"]), groups=np.array([0, 1]))
    experiment = replace(SMALL, algorithm=Oracle(LOCAL), rounds=1, participation=1.0)
    grid = site(tmp_path, planted, clients(["c"]), of=experiment)
    folder = serve(grid, experiment, Settings(2, patience=5, runs_dir=str(tmp_path / "runs")))
    assert [client.name for client in folder.clients()] == ["a", "b"]
    refused = Owners.read(folder.file("nodes.json"), 60.0).refused
    assert refused == {"node 2": "left out: it tells no planted groups, which the method needs"}


def test_clients_tune_their_models_at_their_nodes_as_in_one_process(tmp_path: Path) -> None:
    personal = Personal(epochs=(1, 3), batch_size=10, validation_fraction=0.25)
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), personal=personal)
    grid = grid_of(experiment, tmp_path / "site")
    served = serve(grid, experiment, Settings(8, runs_dir=str(tmp_path)))
    expected = RunFolder.create(tmp_path / "here", experiment)
    for _ in execute(expected, Sources.default()):
        pass
    assert served.records()[-1].refused == {}
    for found, wanted in zip(served.clients(), expected.clients(), strict=True):
        assert found.tuned_epochs == wanted.tuned_epochs
        assert found.accuracy == wanted.accuracy
    assert any(client.tuned_epochs for client in served.clients())


def node_at(folder: Path) -> Context:
    return Context(1, 1, {"data": str(folder)}, RecordDict(), {})


def test_a_file_that_comes_while_a_run_lasts_changes_no_others_examples(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("berta", "carl"):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(30, 2)), y=np.arange(30) % 2)
    before = site_clients(node_at(tmp_path), 0.3)
    assert before.test.sizes.tolist() == [9, 9]
    np.savez(tmp_path / "anna.npz", x=rng.normal(size=(30, 2)), y=np.arange(30) % 2)
    after = site_clients(node_at(tmp_path), 0.3)
    assert after.names == ("anna", "berta", "carl")
    for then, now in zip(before.splits, after.splits, strict=True):
        for client in range(2):
            torch.testing.assert_close(then.of(client), now.of(client + 1), rtol=0, atol=0)


def test_test_examples_in_files_are_taken_as_they_are(tmp_path: Path) -> None:
    x, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x[:3], y_test=y[:3])
    assert site_clients(node_at(tmp_path)).test.sizes.tolist() == [3]
