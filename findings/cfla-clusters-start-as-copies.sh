#!/usr/bin/env bash
# cfla 1.0.4 (a package of clustered federated learning, MIT): IFCA, FeSEM and CGPFL begin with K copies of one model.
# All clusters tie in the first round, argmin and argmax answer a tie by the first, only that cluster moves, and every client
# stays there: the three methods are FedAvg, whatever num_clusters is. Seen on two planted groups with opposite labels, ten
# clients, all present, eight rounds: all clients in cluster 0, adjusted Rand index 0, accuracies .51, .51 and .47, where each
# group alone is separable. (The package pins torch 2.0.1; what is tried here uses plain layers, and torch 2.13.0.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --disable-pip-version-check"
$pip torch==2.13.0 numpy==2.4.6 scikit-learn==1.9.1
$pip --no-deps cfla==1.0.4
cat > "$folder/try_it.py" <<'PYTHON'
import tempfile

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score
from torch import nn
from torch.utils.data import TensorDataset

from cfla.framework.client.client_cgpfl import ClientCGPFL
from cfla.framework.client.client_fesem import ClientFeSEM
from cfla.framework.client.client_ifca import ClientIFCA
from cfla.framework.server.server_cgpfl import ServerCGPFL
from cfla.framework.server.server_fesem import ServerFeSEM
from cfla.framework.server.server_ifca import ServerIFCA

torch.set_num_threads(1)
groups = [client % 2 for client in range(10)]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 2)

    def forward(self, inputs):
        return self.layer(inputs)


def examples(client, group):
    inputs = torch.randn(200, 8, generator=torch.Generator().manual_seed(client))
    labels = (inputs[:, 0] > 0).long()
    return TensorDataset(inputs, labels if group == 0 else 1 - labels)


methods = [(ClientIFCA, ServerIFCA), (ClientFeSEM, ServerFeSEM), (ClientCGPFL, ServerCGPFL)]
for client_class, server_class in methods:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        common = {"device": "cpu", "output_dir": folder, "seed": 0}
        training = {"local_epochs": 2, "learning_rate": 0.1, "batch_size": 20, "mu": 0.1}
        clients = [
            client_class(client_id=i, dataset=examples(i, g), output_dir=folder, args=common | training)
            for i, g in enumerate(groups)
        ]
        settings = common | {"fraction": 1.0, "rounds": 8, "num_clusters": 2}
        server = server_class(global_model=Model(), test_dataloader=None, args=settings)
        server.set_clients(clients)
        models, labels = server.train(verbose=False)
        accuracies = []
        for client in clients:
            model = Model()
            model.load_state_dict(models[labels[client.client_id]])
            accuracies.append(client.evaluate(model)[0])
    rand = adjusted_rand_score(groups, labels)
    print(f"{server_class.__name__}: clusters {labels}, ARI {rand:.2f}, accuracy {np.mean(accuracies):.2f}")
    assert set(labels) == {0}, "the clients are in several clusters: this finding no longer holds"
    assert np.mean(accuracies) < 0.7, "the clients are served well: this finding no longer holds"
PYTHON
cd "$folder" && venv/bin/python try_it.py
