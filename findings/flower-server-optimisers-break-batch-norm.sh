#!/usr/bin/env bash
# flwr 1.42.0 (Apache-2.0): the strategies FedAvgM and FedAdam take steps on the running variance of batch normalisation as if it
# were a parameter, so that it becomes negative, and the model answers NaN. Seen with a BatchNorm1d before a linear layer, and two
# nodes whose inputs have a small variance (.01, where PyTorch begins with 1): with server_momentum .9 the lowest variance is -.45
# after 2 rounds, with FedAdam's defaults -.27 after 20; FedAvg ends at .01. Nothing is logged. FedAdam also returns the model in
# float64. (The nodes are functions here; what is sent and aggregated is Flower's own.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip torch==2.13.0 numpy==2.4.6 flwr==1.42.0
cat > "$folder/try_it.py" <<'PYTHON'
import torch
from torch import nn

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from flwr.supercore.task_identity import TaskIdentity

torch.set_num_threads(1)
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
noise = torch.Generator().manual_seed(0)
inputs = {node: 0.1 * torch.randn(200, 4, generator=noise) for node in (1, 2)}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))


class TwoNodes(Grid):
    """Two nodes in this process, which train as they are asked to."""

    run = None

    def set_run(self, run): ...

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id)

    def get_node_ids(self):
        return list(inputs)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        return [self.trained(message) for message in messages]

    def trained(self, message):
        net, x = network(), inputs[message.metadata.dst_node_id]
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for rows in torch.arange(200).split(20):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x[rows]), x[rows].sum(1, keepdim=True)).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": 200})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)


def lowest_variance(strategy, rounds):
    result = strategy.start(TwoNodes(), ArrayRecord(network().state_dict()), num_rounds=rounds)
    net = network().eval()
    state = result.arrays.to_torch_state_dict()
    net.load_state_dict(state)
    lowest, nan = state["0.running_var"].min().item(), net(inputs[1]).isnan().any().item()
    name = type(strategy).__name__
    print(f"{name} after {rounds} rounds: lowest variance {lowest:.3f}, NaN: {nan}, {state['1.bias'].dtype}")
    return lowest, nan


fine, nan = lowest_variance(FedAvg(fraction_evaluate=0.0), 20)
assert 0.005 < fine < 0.02 and not nan
momentum = FedAvgM(fraction_evaluate=0.0, server_momentum=0.9)
for strategy, rounds in ((momentum, 2), (FedAdam(fraction_evaluate=0.0), 20)):
    lowest, nan = lowest_variance(strategy, rounds)
    assert lowest < 0 and nan, "the variance is positive: this finding no longer holds"
PYTHON
cd "$folder" && venv/bin/python try_it.py 2> log.txt || { tail -5 log.txt; exit 1; }
