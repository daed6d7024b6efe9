#!/usr/bin/env bash
# fluke-fl 0.8.1 (a package of federated learning, LGPL-2.1): FedDyn's memory has the wrong sign, so that the models run away. A
# client adds alpha (sent - trained) to its memory, where the linear term of its loss and the server's correction, which has
# their sign in the authors' code, need trained - sent. Seen on two clients with losses (w - b)^2 / 2, b = 0 and 4, all present,
# from w = 1, two steps of rate 1/4, alpha 1: round 1 trains right (0.625 and 2.125), then 1.0 is sent instead of 1.75, and after
# 50 rounds the model is below minus a thousand million, where FedDyn is at the optimum of the mean, 2.
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
from fluke.algorithms.feddyn import FedDynClient, FedDynServer


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


clients = [
    FedDynClient(number, examples(target, 1), None, sgd(), loss, 2, alpha=1.0, clipping=0)
    for number, target in enumerate((0.0, 4.0))
]
server = FedDynServer(Weight(1.0), None, clients, weighted=False, alpha=1.0)
for client in clients:
    client.set_channel(server.channel)
    client._send_weight()
server._send_weights(server._receive_weights())
for client in clients:
    client._receive_weights()
sent = []
for number in range(50):
    server.broadcast_model(clients)
    for client in clients:
        client.local_update(number + 1)
    trained = [*server.receive_client_models(clients, state_dict=False)]
    first = [model.w.item() for model in trained] if number == 0 else first
    server.aggregate(clients, trained)
    sent.append(server.cld_mdl.w.item())

w, memory = 1.0, [0.0, 0.0]
for number in range(50):  # Acar et al. 2021, Algorithm 1
    right = []
    for client, target in enumerate((0.0, 4.0)):
        theta = w
        for _ in range(2):
            theta -= 0.25 * (theta - target - memory[client] + theta - w)
        memory[client] -= theta - w
        right.append(theta)
    w = sum(right) / 2 - sum(memory) / 2
print(f"trained in round 1: {first}; sent in round 2: {sent[0]}; after 50 rounds: {sent[-1]:.3g}")
print(f"by the paper's formulas after 50 rounds: {w:.6f}")
assert abs(w - 2) < 1e-6
assert first == [0.625, 2.125]
assert sent[0] == 1.0 and sent[-1] < -1e9, "FedDyn converges: this finding no longer holds"
PYTHON
cd "$folder" && PYTHONWARNINGS=ignore venv/bin/python try_it.py
