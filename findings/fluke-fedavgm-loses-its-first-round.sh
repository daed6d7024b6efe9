#!/usr/bin/env bash
# fluke-fl 0.8.1 (a package of federated learning, LGPL-2.1): FedAvgM throws the first round away. Its server sets the momentum to
# zero in round 1 instead of to the mean update, and takes a step of that momentum. Seen on two clients with losses (w - b)^2 / 2,
# b = 0 and 4, with one and three examples, from w = 1, two steps of rate 1/4: after round 1 the model is 1.0, where its own
# FedAvg has 1.875 (FedAvgM's first round is FedAvg's); after round 2 it is 1.875. Runs compared by rounds are one round behind.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip torch==2.13.0 numpy==2.4.6 scikit-learn==1.9.1 torchmetrics==1.9.0 pandas==3.1.1 matplotlib==3.11.2 \
    seaborn==0.13.2 diskcache==5.6.3 omegaconf==2.4.0 rich==15.0.0 psutil==7.2.2 cerberus==1.3.8
$pip --no-deps fluke-fl==0.8.1
cat > "$folder/try_it.py" <<'PYTHON'
import torch
from torch import nn

from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.algorithms.fedavgm import FedAVGMServer
from fluke.client import Client
from fluke.server import Server


class Weight(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([value], dtype=torch.float64))

    def forward(self, inputs):
        return self.w * inputs


def loss(outputs, targets):
    return 0.5 * ((outputs - targets) ** 2).mean()


def examples(target, number):
    inputs = torch.ones(number, 1, dtype=torch.float64)
    return FastDataLoader(
        inputs, target * inputs, num_labels=1, batch_size=number, shuffle=False, skip_singleton=False
    )


def sgd():
    optimizer = {"name": torch.optim.SGD, "lr": 0.25}
    scheduler = {"name": torch.optim.lr_scheduler.StepLR, "step_size": 1_000, "gamma": 1.0}
    return OptimizerConfigurator(optimizer_cfg=optimizer, scheduler_cfg=scheduler)


def models(server_class, rounds):
    clients = [
        Client(number, examples(target, size), None, sgd(), loss, local_epochs=2)
        for number, (target, size) in enumerate(((0.0, 1), (4.0, 3)))
    ]
    server = server_class(Weight(1.0), None, clients, weighted=True)
    found = []
    for client in clients:
        client.set_channel(server.channel)
    for number in range(rounds):
        server.broadcast_model(clients)
        for client in clients:
            client.local_update(number + 1)
        server.aggregate(clients, server.receive_client_models(clients, state_dict=False))
        found.append(server.model.w.item())
    return found


plain, momentum = models(Server, 1), models(FedAVGMServer, 2)
print(f"FedAvg after round 1: {plain[0]}; FedAvgM after rounds 1 and 2: {momentum}")
assert plain == [1.875]
assert momentum == [1.0, 1.875], "the first round counts: this finding no longer holds"
PYTHON
cd "$folder" && PYTHONWARNINGS=ignore venv/bin/python try_it.py
