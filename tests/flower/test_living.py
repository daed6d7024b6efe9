"""A deployment of real processes in which a site comes late, and another leaves for good.

That nothing was lost or counted twice shows in the end: the models are those of a simulation in
which the same clients came, left and were absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.flower.deployed_runs import BASE, LOCAL, Absent
from tests.flower.deployment import Deployment, write_clients
from tests.flower.test_deployment import kill_server_app, rounds
from umbel import Event, Membership
from umbel.algorithms import FedAvg
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.engines.replies.validation import Limits
from umbel.experiment.toml_file import write
from umbel.folder import checkpoint
from umbel.folder.execution import restorable
from umbel.folder.run_folder import RunFolder

pytestmark = pytest.mark.deployment

ROUNDS = 300  # more than there is time for
LIVING = replace(
    BASE,
    algorithm=FedAvg(LOCAL),
    name="living",
    rounds=ROUNDS,
    evaluate_every=ROUNDS,
    limits=Limits(quorum=0.1),
    membership=Membership(forget_after=3),
)


@pytest.fixture
def living(tmp_path: Path) -> Iterator[Deployment]:
    """Three sites with the clients 0 to 2, 3 and 4, and 5 and 6; two are there."""
    write_clients(tmp_path / "data", count=7, nodes=3)
    with Deployment(tmp_path) as processes:
        for number in range(2):
            processes.start_site(number)
        yield processes


def test_a_site_that_comes_takes_part_and_one_that_dies_is_forgotten(living: Deployment) -> None:
    app = living.app("living", write(LIVING))
    living.run(app, clients=5, patience=480, release_after=5)
    run = RunFolder(app.parent / "runs" / "living-seed0")
    living.wait_for(lambda: rounds(run) >= 2)
    living.start_site(2)
    living.wait_for(lambda: any(record.joined for record in run.records()))
    living.kill("node1")
    living.wait_for(lambda: any(record.left for record in run.records()))
    done = rounds(run)
    living.wait_for(lambda: rounds(run) >= done + 4)
    kill_server_app(living)  # so that nobody writes there any more
    records = run.records()
    came, left = ([r for r in records if getattr(r, what)] for what in ("joined", "left"))
    assert [r.joined for r in came] == [(5, 6)]
    assert [r.left for r in left] == [(3, 4)]
    # The clients of the dead site may have been missing in the round in which it died, at most.
    assert {r.missing for r in records} <= {(), (3, 4)}
    assert not any(r.missing for r in records[left[0].round :])

    names = [*map(str, range(7))]
    events = [
        Event(
            r.round, tuple(names[c] for c in r.joined or ()), tuple(names[c] for c in r.left or ())
        )
        for r in (*came, *left)
    ]
    everyone = Folder(str(living.folder / "data" / "all"), num_classes=3)
    there = replace(LIVING, scenario=everyone, membership=Membership(tuple(events), forget_after=3))
    whole = there.open(Sources.default())
    made = checkpoint.header(run.file("checkpoint.safetensors"))["made"]
    state, done = restorable(run, whole, whole.start(ROUNDS), made)
    assert state is not None
    assert len(state.labels) == 5
    replayed = replace(whole, engine=Absent(whole.clients, records)).rounds(ROUNDS)
    *_, (expected, _) = islice(replayed, done)
    torch.testing.assert_close(state.models, expected.models, rtol=1e-4, atol=1e-5)
