"""What the tests of real deployments share: an experiment, and absences to replay."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from umbel.algorithms import FLACC
from umbel.client.work import LocalTraining
from umbel.data.scenarios.folder import Folder
from umbel.engines import EngineSettings
from umbel.flow import Engine, Replies, Request
from umbel.networks import MLP
from umbel.result.run import Experiment
from umbel.run.records import Record

LOCAL = LocalTraining(epochs=2, batch_size=8)
BASE = Experiment(
    Folder("all", num_classes=3),
    MLP((8,)),
    FLACC(LOCAL, n_sep=2),
    rounds=2,
    evaluate_every=2,
    engine=EngineSettings("sequential"),  # a message starts a process: this one loads faster
)


@dataclass
class Absent:
    """Clients are missing as these records say."""

    engine: Engine
    records: list[Record]
    round: int = 0

    def send(self, request: Request) -> Replies:
        record = self.records[self.round]
        self.round += 1
        absent = {*record.missing, *record.refused}
        keep = [n for n, client in enumerate(request.clients.tolist()) if client not in absent]
        return self.engine.send(request.pick(torch.tensor(keep)))
