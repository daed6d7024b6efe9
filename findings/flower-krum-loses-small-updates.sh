#!/usr/bin/env bash
# flwr 1.42.0 (Apache-2.0): Krum and MultiKrum of flwr.serverapp.strategy compute squared distances between whole models as
# |x|^2 + |y|^2 - 2 x y in the models' own precision, float32. If updates are small beside the model, as in fine-tuning, rounding
# decides who is kept. Seen with 4 million weights of deviation .1 (norm 200) and ten nodes whose updates have a norm of .07, of
# whom two have other data and move the other way: the mean of the 8 that MultiKrum keeps has .50 of the common step in four of
# five draws (in which ones, and .75 or 1.00 in the fifth, depends on NumPy's kernels), where eight nodes that agree have 1.00. Krum
# of flwr.server.strategy, which keeps 8 too but subtracts before it squares, has 1.00 in each, and so has MultiKrum if an integer
# is among the arrays, with which all become float64. Nothing is logged. (The nodes are functions here; the rest is Flower's own.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip numpy==2.4.6 flwr==1.42.0
cat > "$folder/try_it.py" <<'PYTHON'
import numpy as np

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import Krum as OlderKrum
from flwr.serverapp import Grid
from flwr.serverapp.strategy import MultiKrum
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


def draw(seed):
    """A model, the step that eight of ten nodes have in common, and the models of all."""
    noise = np.random.default_rng(seed)

    def normal(deviation):
        return np.float32(deviation) * noise.standard_normal(4_000_000, dtype=np.float32)

    model, step = normal(0.1), normal(2.5e-5)
    return model, step, [model + (-step if node < 2 else step) + normal(2.5e-5) for node in range(10)]


class TenNodes(Grid):
    """Ten nodes in this process, which answer with these models."""

    run = None

    def __init__(self, models, others):
        self.models, self.others = models, others

    def set_run(self, run): ...

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, group_id=group_id)

    def get_node_ids(self):
        return list(range(10))

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        return [self.reply(message) for message in messages]

    def reply(self, message):
        arrays = {"model": Array(self.models[message.metadata.dst_node_id])} | self.others
        content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)


def newer(model, models, **others):
    strategy = MultiKrum(fraction_evaluate=0.0, num_malicious_nodes=2, num_nodes_to_select=8)
    others = {name: Array(np.array(value)) for name, value in others.items()}
    start = ArrayRecord({"model": Array(model)} | others)
    result = strategy.start(TenNodes(models, others), start, num_rounds=1)
    return result.arrays["model"].numpy()


def older(model, models):
    strategy = OlderKrum(num_malicious_clients=2, num_clients_to_keep=8)
    replies = [FitRes(Status(Code.OK, ""), ndarrays_to_parameters([each]), 1, {}) for each in models]
    return parameters_to_ndarrays(strategy.aggregate_fit(1, [(None, each) for each in replies], [])[0])[0]


lines = {"MultiKrum": [], "MultiKrum, with an integer": [], "Krum of flwr.server": []}
for seed in range(5):
    model, step, models = draw(seed)
    after = newer(model, models), newer(model, models, counter=20), older(model, models)
    for line, mean in zip(lines.values(), after):
        line.append(float((mean - model) @ step / (step @ step)))
for name, line in lines.items():
    print(f"{name}:", ", ".join(f"{share:.2f}" for share in line), "of the common step")
new, counted, old = lines.values()
assert all(abs(share - 1) < 0.05 for share in counted + old)
assert np.mean(new) < 0.8, "the two are left out: this finding no longer holds"
PYTHON
cd "$folder" && venv/bin/python try_it.py 2> log.txt || { tail -5 log.txt; exit 1; }
