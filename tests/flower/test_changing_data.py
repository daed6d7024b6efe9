"""Files that can't be read cost their own client only, and examples that change are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, having, site
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.engines.privacy import Privacy
from umbel.flower import FlowerEngine, client_app, site_clients
from umbel.flower.client import Node
from umbel.flower.discovery import Meeting
from umbel.flower.registry import Roll

EXPERIMENT = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=3)


def write(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        x = np.random.default_rng(0).random((20, 64), dtype=np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=np.arange(20) % 10)


def at_site(folder: Path) -> Federation:
    return site_clients(Context(1, 1, {"data": str(folder)}, RecordDict(), {}))


@pytest.mark.parametrize("spoilt", ["cut", "fewer labels"])
def test_a_file_that_can_not_be_read_costs_its_own_client_only(
    spoilt: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a", "b", "c")
    (tmp_path / "groups.csv").write_text("client,group\na,0\nb,1\nc,1\n")
    file, x = tmp_path / "b.npz", np.zeros((20, 64), dtype=np.float32)
    whole = file.read_bytes()
    match spoilt:
        case "cut":
            file.write_bytes(whole[: len(whole) // 2])
        case "fewer labels":
            np.savez(file, x=x, y=np.arange(7))
    here = at_site(tmp_path)
    assert here.names == ("a", "c")
    assert here.groups is not None
    assert here.groups.tolist() == [0, 1]
    assert "client 'b' is left out, as its file can't be read: " in caplog.text


def test_files_that_do_not_fit_each_other_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, "a")
    np.savez(tmp_path / "b.npz", x=np.zeros((9, 3), dtype=np.float32), y=np.arange(9) % 3)
    with pytest.raises(UsageError):
        at_site(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"nothing")
    (tmp_path / "b.npz").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"a\.npz"):
        at_site(tmp_path)


def labelled(*labels: list[int]) -> Federation:
    """Clients with these labels, of three for training and one for the test in each."""
    pairs = [(np.ones((len(y), 4), dtype=np.float32), np.array(y)) for y in labels]
    test = [(x[:1], y[:1]) for x, y in pairs]
    names = [f"client{n}" for n in range(len(pairs))]
    return Federation.from_arrays(pairs, test, names=names, num_classes=3)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ([0, 1, 2, 2, 0], "5 training and 1 test examples, label counts"),
        ([0, 2, 1], ""),  # only another order
    ],
)
def test_a_client_whose_examples_change_under_a_run_is_named_in_log_and_record(
    after: list[int], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = site(tmp_path, labelled([0, 1, 2], [0, 0, 1]), of=EXPERIMENT)
    meeting = Meeting(grid, 5.0)
    nodes = meeting.gather(2, 5.0)
    roll = Roll.call(nodes, meeting.sites)
    assert Roll.from_plain(roll.plain) == roll
    engine = FlowerEngine(meeting, roll.names, nodes, 5.0, facts=roll.facts)
    rounds = EXPERIMENT.run(roll.federation(), engine).rounds(3)
    assert not next(rounds)[1].bounded
    changed = client_app(tmp_path / "experiment.toml", having(labelled(after, [0, 0, 1])))
    grid.apps = {1: changed}
    second, third = (record for _, record in rounds)
    if not said:
        assert not second.bounded
        return
    why = f"its examples have changed: {said}"
    assert second.bounded.keys() == third.bounded.keys() == {0}
    assert why in second.bounded[0]
    assert ", but when the run began 3 training and 1 test examples, label counts " in caplog.text
    assert caplog.text.count(why) == 1


def test_a_private_node_tells_nothing_of_its_examples(tmp_path: Path) -> None:
    private = replace(EXPERIMENT, privacy=Privacy(clip=1.0))
    node = Node.of(private, labelled([0, 1, 2]), tmp_path / "memory.safetensors")
    assert node.site().facts == []
