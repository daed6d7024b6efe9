"""A deployment of real processes: a site comes late, one dies, and one returns with other data.

That nothing was lost or counted twice shows in the end: models and clusters are those of a
simulation in which the same clients came, left, were absent and had other data.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.export.test_openmetrics import prometheus, scraped
from tests.flower.deployed_runs import BASE, LOCAL, Absent
from tests.flower.deployment import Deployment, free_port, write_clients
from tests.flower.test_deployment import kill_server_app, rounds
from tests.shell import Shell
from umbel import Event, Membership
from umbel.algorithms import IFCA
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.engines.replies.validation import Limits
from umbel.experiment.toml_file import write
from umbel.folder import checkpoint
from umbel.folder.execution import restorable
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record
from umbel.run.rounds import Rounds

pytestmark = pytest.mark.deployment

ROUNDS = 300  # more than there is time for
LIVING = replace(
    BASE,
    algorithm=IFCA(2, LOCAL),
    name="living",
    rounds=ROUNDS,
    evaluate_every=ROUNDS,
    limits=Limits(quorum=0.1),
    membership=Membership(forget_after=3),
)


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Deployment]:
    """Four sites with two clients each, one of each group; three sites are there."""
    write_clients(tmp_path / "data", count=8, nodes=4)
    with Deployment(tmp_path) as processes:
        for number in range(3):
            processes.start_site(number)
        yield processes


def swap(folder: Path) -> None:
    """Clients 4 and 5 have each other's examples from now on, and so those of the other group."""
    one, other = (folder / f"{client}.npz" for client in (4, 5))
    one.rename(folder / "kept")
    other.rename(one)
    (folder / "kept").rename(other)


def test_a_run_goes_on_while_sites_come_die_and_return_with_other_data(
    living: Deployment, umbel: Shell
) -> None:
    target = f"127.0.0.1:{free_port()}"
    app = living.app("living", write(LIVING))
    run = RunFolder(app.parent / "runs" / "living-seed0")

    def came() -> list[int]:
        return [client for record in run.records() for client in record.joined or ()]

    def gone() -> list[int]:
        return [client for record in run.records() for client in record.left or ()]

    with ExitStack() as stack:
        if shutil.which("prometheus"):
            place = living.folder / "prometheus"
            place.mkdir()
            query = stack.enter_context(prometheus(place, target))
        else:
            query = None
        living.run(app, clients=6, patience=480, release_after=5, metrics=target)
        living.wait_for(lambda: rounds(run) >= 2)
        before = scraped(f"http://{target}/metrics")
        assert before["clients_joined_total"] == before["clients_left_total"] == 0
        living.start_site(3)
        living.wait_for(lambda: came() == [6, 7])
        living.kill("node1")
        living.kill("node2")
        living.wait_for(lambda: sorted(gone()) == [2, 3, 4, 5])
        swap(living.folder / "data" / "site2")
        living.start_site(2)
        living.wait_for(lambda: came() == [6, 7, 4, 5])
        done, last = rounds(run), max(record.round for record in run.records() if record.left)
        living.wait_for(lambda: rounds(run) > max(done, last + 3))  # the dead site is forgotten
        found = scraped(f"http://{target}/metrics")
        assert found["clients_joined_total"] == found["clients_left_total"] == 4
        assert found["rounds_total"] >= done > before["rounds_total"]
        if query is not None:
            for name in ("joined", "left"):
                count = f"umbel_clients_{name}_total"
                seen = [query(count), query(f"min_over_time({count}[1h])")]
                assert [series["value"][1] for (series,) in seen] == ["4", "0"]
            (series,) = query("umbel_rounds_total")
            assert int(series["value"][1]) >= done
        kill_server_app(living)  # so that nobody writes there any more

    # The clients of the dead sites may have been missing in the rounds in which they died.
    records = run.records()
    assert {client for record in records for client in record.missing} <= {2, 3, 4, 5}
    assert not any(record.missing for record in records[last:])
    # The new examples were told when the site came back: they count, and nobody is at fault.
    assert not any(record.bounded for record in records)
    assert_as_simulated(living.folder / "data" / "all", run, records)
    umbel("report", str(run.path))
    assert "Clients that came and left" in run.file("report.html").read_text()


def assert_as_simulated(data: Path, run: RunFolder, records: list[Record]) -> None:
    """The models and clusters are those of a simulation in which the same things happened."""
    events = [
        Event(r.round, tuple(map(str, r.joined or ())), tuple(map(str, r.left or ())))
        for r in records
        if r.joined or r.left
    ]

    def simulated() -> Rounds:
        membership = Membership(tuple(events), forget_after=3)
        everyone = Folder(str(data), num_classes=3)
        return replace(LIVING, scenario=everyone, membership=membership).open(Sources.default())

    whole = simulated()
    made = checkpoint.header(run.file("checkpoint.safetensors"))["made"]
    state, done = restorable(run, whole, whole.start(ROUNDS), made)
    assert state is not None
    swap(data)
    returned, clusters = events[-1].round, list[dict[int, int]]()
    replay = Absent(whole.clients, records)
    for expected, record in islice(replace(whole, engine=replay).rounds(ROUNDS), done):
        members = whole.client_numbers(record.round).tolist()
        clusters.append(dict(zip(members, expected.labels.tolist(), strict=True)))
        if record.round == returned - 1:
            replay.engine = simulated().clients
    torch.testing.assert_close(state.models, expected.models, rtol=1e-4, atol=1e-5)
    assert state.labels.tolist() == expected.labels.tolist()
    assert clusters[0] == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}
    assert clusters[-1] == {0: 0, 1: 1, 4: 1, 5: 0, 6: 0, 7: 1}
