"""A node does only what a run of its own experiment asks for, and not on too few examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from tests.flower.grid import wired
from tests.flower.small import SMALL, clients, having
from umbel.algorithms import FedAvg, FedProx, Restarts
from umbel.algorithms.ifca import IFCA
from umbel.client.work import (
    MEMORY,
    Description,
    Evaluation,
    Gradient,
    LocalTraining,
    MeanLoss,
    PersonalTraining,
    TrainAndGradient,
    Work,
)
from umbel.data.federation import Federation
from umbel.experiment.toml_file import write
from umbel.flow import Request
from umbel.flower import client_app
from umbel.flower.client import Node
from umbel.flower.exchange import WORK
from umbel.flower.limits import NodeLimits
from umbel.flower.messages import Asked, ask
from umbel.result.run import Experiment
from umbel.run.personal import Personal

LOCAL = LocalTraining(epochs=5, batch_size=32, lr_decay=0.9)

FEDAVG = replace(SMALL, algorithm=FedAvg(LOCAL), rounds=2)


class Site:
    """A node to which messages are sent by hand, in one run of Flower."""

    def __init__(
        self,
        folder: Path,
        of: Experiment = FEDAVG,
        federation: Federation | None = None,
        **config: Any,
    ) -> None:
        self.federation = clients(["a", "b"]) if federation is None else federation
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        file = folder / "experiment.toml"
        file.write_text(write(of))
        self.app = client_app(file, having(self.federation))
        named = {name.replace("_", "-"): value for name, value in config.items()}
        self.context = Context(1, 1, {"memory-dir": str(folder), **named}, RecordDict(), {})
        self.theta = Node.of(of, self.federation, folder / "memory").net.new(seed=0)[None]

    def refused(self, work: Work, names: Sequence[str] = "a", seed: int = 0) -> str:
        """Why the node, or the first of its clients, refuses to do this work; "" if none does."""
        models = {"models": self.theta}
        each = {"theta": self.theta}
        if isinstance(work, PersonalTraining):
            each = {**each, MEMORY: self.theta[None]}
        index = dict.fromkeys(each, [0] * len(names))
        asked = Asked(work, list(names), [seed] * len(names), models, each, index)
        message = Message(ask(asked), 1, WORK)
        message.metadata.__dict__["_message_id"] = message.object_id
        reply = self.app(wired(message)[0], self.context)
        answer = reply.content.config_records["answer"]
        reasons: Any = answer.get("reasons", [""])
        return str(answer.get("refused", reasons[0]))


UNDECLARED = {
    "one step on one example": (
        LocalTraining(steps=1, batch_size=1),
        "local-training: batch_size = 1, but it is 32, in this node's own experiment, whose",
    ),
    "a higher learning rate": (replace(LOCAL, lr=0.11), "lr = 0.11, but it is 0.1"),
    "gradients": (Gradient(1), "work: gradient: not declared, in this node's own experiment"),
    "fine-tuning": (PersonalTraining(LOCAL), "work: personal-training: not declared"),
    "descriptions": (Description(10), "only with describe = true in this node's settings"),
}


@pytest.mark.parametrize(("work", "why"), UNDECLARED.values(), ids=UNDECLARED)
def test_a_node_refuses_what_its_own_experiment_does_not_ask_for(
    work: Work, why: str, tmp_path: Path
) -> None:
    assert why in Site(tmp_path).refused(work)


@pytest.mark.parametrize(
    "work",
    [LOCAL, LOCAL.at_round(1), Evaluation(), Evaluation("validation"), MeanLoss()],
    ids=["first round", "later round", "test", "validation", "newcomers"],
)
def test_a_node_does_what_its_own_experiment_asks_for(work: Work, tmp_path: Path) -> None:
    assert Site(tmp_path).refused(work) == ""


def test_settings_of_the_method_and_of_fine_tuning_are_those_of_the_node(tmp_path: Path) -> None:
    pulled = Site(tmp_path, replace(FEDAVG, algorithm=FedProx(0.3, LOCAL)))
    assert pulled.refused(replace(LOCAL, proximal=0.3)) == ""
    assert "proximal = 0.0, but it is 0.3" in pulled.refused(LOCAL)
    personal = Personal(epochs=(1, 3), validation_fraction=0.2)
    tuning = Site(tmp_path, replace(FEDAVG, personal=personal))
    for work in personal.works(FEDAVG.limits.max_value):
        assert tuning.refused(work) == ""
    assert "local.batch_size = 1, but it is 32" in tuning.refused(
        replace(work, local=replace(work.local, batch_size=1))
    )


def test_a_node_describes_its_inputs_where_its_own_settings_say_so(tmp_path: Path) -> None:
    site = Site(tmp_path, describe="true")
    assert site.refused(Description(10)) == ""
    assert "bound = 9.0, but it is 5.0" in site.refused(Description(10, 9.0))


def test_a_client_with_fewer_examples_than_the_floor_is_refused_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    few, more = ((rng.random((n, 64), dtype=np.float32), rng.integers(0, 10, n)) for n in (6, 40))
    federation = Federation.from_arrays(
        [few, more], names=["few", "more"], num_classes=10, test_fraction=0.0
    )
    site = Site(tmp_path, federation=federation, min_batch=8)
    why = "a step on 6 examples, fewer than the 8 that this node asks for (its setting min-batch)"
    assert site.refused(LOCAL, ["few"]) == site.refused(LOCAL, ["few", "more"]) == why
    assert site.refused(LOCAL, ["more"]) == ""
    assert site.refused(MeanLoss(), ["few"]) == why
    assert site.refused(Evaluation(), ["few"]) == ""
    limits = NodeLimits(min_batch=8)
    both = TrainAndGradient(LOCAL, Gradient(6))  # whose plan is as wide as a step of training
    request = Request(both, torch.tensor([1]), [0])
    assert limits.refused(request, federation) == {1: why}


def test_a_round_has_a_largest_number_of_requests_to_a_client(tmp_path: Path) -> None:
    site = Site(tmp_path, max_requests=2)
    said = [site.refused(MeanLoss(), seed=seed) for seed in (7, 7, 7, 8, 8)]
    assert [bool(each) for each in said] == [False, False, True, False, False]
    why = "client 'a': more requests in a round than the 2 that this node allows (its setting max-"
    assert said[2].startswith(why)
    assert site.refused(MeanLoss(), "b", seed=7) == ""
    starts = Site(
        tmp_path, replace(FEDAVG, algorithm=Restarts(IFCA(local=LOCAL), 3)), max_requests=1
    )
    assert [bool(starts.refused(MeanLoss())) for _ in range(4)] == [False] * 3 + [True]


def test_rounds_beyond_those_of_the_experiment_are_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, max_requests=2)
    said = [site.refused(MeanLoss(), seed=seed) for seed in range(103)]
    assert said[:102] == [""] * 102
    assert said[102] == "client 'a': more rounds than the experiment's 2"
