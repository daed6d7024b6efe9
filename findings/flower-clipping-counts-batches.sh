#!/usr/bin/env bash
# flwr 1.42.0 (Apache-2.0): the clipping of updates counts batches. BatchNorm's counter of batches is part of the norm, as if it
# were a weight, so that a model with batch normalisation is clipped by how many batches its nodes have taken. Seen with
# BatchNorm1d before a linear layer and 20 batches: an update of norm 7.14, which DifferentialPrivacyServerSideFixedClipping should
# leave alone at a clipping norm of 10, becomes one of 3.36, the share 10 / |(7.14, 20)|. Nothing is logged. (The nodes are
# functions here; what clips is Flower's own.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip torch==2.13.0 flwr==1.42.0
cat > "$folder/try_it.py" <<'PYTHON'
import torch
from torch import nn

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

torch.set_num_threads(1)
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
y = 10 * x.sum(1, keepdim=True)


def start():
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))


def trained(message):
    net = start()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for rows in torch.arange(200).split(10):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x[rows]), y[rows]).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": 200})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


class TwoNodes(Grid):
    """Two nodes in this process, which train alike."""

    run = None

    def set_run(self, run): ...

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id)

    def get_node_ids(self):
        return [1, 2]

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        return [trained(message) for message in messages]


def moved(clipping_norm=None):
    """The norm of a round's change, without counters of batches."""
    strategy = FedAvg(fraction_evaluate=0.0)
    if clipping_norm:
        strategy = DifferentialPrivacyServerSideFixedClipping(strategy, 0.0, clipping_norm, 2)
    before = start().state_dict()
    result = strategy.start(TwoNodes(), ArrayRecord(before), num_rounds=1)
    after = result.arrays.to_torch_state_dict()
    steps = [after[name] - before[name] for name in before if before[name].is_floating_point()]
    return torch.cat([step.flatten() for step in steps]).norm().item()


plain, clipped = moved(), moved(10.0)
print(f"BatchNorm1d: change {plain:.3f}, clipped to 10: {clipped:.3f}")
assert plain < 10 and clipped < 0.6 * plain, "counters don't count: this finding no longer holds"
PYTHON
cd "$folder" && venv/bin/python try_it.py 2> log.txt || { tail -5 log.txt; exit 1; }
