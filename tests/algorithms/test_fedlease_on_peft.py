"""FedLEASE on a network of transformers with adapters of peft."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import umbel
from tests.networks.tiny import IDS, lora, made
from umbel.checks import UsageError
from umbel.networks import adapted


def federation() -> umbel.Federation:
    """Texts that are sorted by their first token, in another way by every second client."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(1, IDS, (20, 6), generator=generator) for _ in range(4)]
    y = [(x[:, 0] + client % 2) % 2 for client, x in enumerate(ids)]
    return umbel.Federation.from_arrays(list(zip(ids, y, strict=True)), num_classes=2)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> umbel.Result:
    model = made("BertForSequenceClassification", num_labels=2)
    net = umbel.Net(adapted(model, lora(), new_head=True))
    algorithm = umbel.FedLEASE(
        warm_up=1, num_clusters=2, local=umbel.LocalTraining(lr=0.3, epochs=3, batch_size=5)
    )
    run = umbel.Run(algorithm, federation(), net)
    return run.save(tmp_path_factory.mktemp("runs") / "mine", 3)


def test_a_client_is_served_a_mixture_with_a_router_beside_each_adapter(
    result: umbel.Result,
) -> None:
    clients = federation()
    for client in range(4):
        x, y = clients.test.of(client)
        mine = result.model_for(client)
        accuracy = float((mine(x).argmax(1) == y).double().mean())
        assert accuracy == result.clients[client].accuracy
        routers = [p for name, p in mine.named_parameters() if name.endswith("default.router")]
        assert [tuple(router.shape) for router in routers] == [(3, 16)] * 4


def test_a_clusters_expert_is_an_adapter_of_peft_and_a_mixture_is_none(
    result: umbel.Result, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = result.export("peft", cluster=1, out=tmp_path / "expert")
        assert exported.largest_difference < 1e-5
        with pytest.raises(UsageError, match="to: 'peft' has no place for a mixture of experts"):
            result.export("peft", client=0, out=tmp_path / "mixture")
    assert not (tmp_path / "mixture").exists()
