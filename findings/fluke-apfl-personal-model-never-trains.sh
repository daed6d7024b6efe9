#!/usr/bin/env bash
# fluke-fl 0.8.1 (a package of federated learning, LGPL-2.1): APFL's personal models get no gradient. The mixture of a client's
# two models is made of detached copies, so that the loss of the mixture reaches neither; the personal model is then overwritten
# by the mixture: it is a running mean of global models, and never trained on the client's data. Seen on one client with loss
# w^2 / 2, w = 1, v = 2, lam 1/2, one step of rate 1/4: the gradient of v is None, and v becomes 1.375, the mean of the trained w,
# .75, and the untrained v, 2.
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
from fluke.algorithms.apfl import APFLClient, APFLServer


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


client = APFLClient(0, Weight(2.0), examples(0.0, 1), None, sgd(), loss, local_epochs=1, lam=0.5)
server = APFLServer(Weight(1.0), None, [client], tau=1)
client.set_channel(server.channel)
personal = client.personalized_model
server.broadcast_model([client])
client.local_update(1)
trained, mixture = client.model.w.item(), client.personalized_model.w.item()
print(f"gradient of v: {personal.w.grad}; v before the mixture: {personal.w.item()}; after: {mixture}")
assert trained == 0.75
assert personal.w.grad is None and personal.w.item() == 2.0, "v trains: this finding no longer holds"
assert mixture == (trained + 2.0) / 2
PYTHON
cd "$folder" && PYTHONWARNINGS=ignore venv/bin/python try_it.py
