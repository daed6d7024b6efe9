"""A part of each model stays with its client: one matrix of the adapters, or a head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from umbel.algorithms.base import KeptState
from umbel.client.batches import Batch
from umbel.client.work import joined, parted
from umbel.experiment.toml_file import plain, structured
from umbel.method import Context, Flow, Rows, mixture_weights, one_model
from umbel.result.run import Experiment
from umbel.testing import blobs, check_method, mlp

WHOLE = umbel.LocalTraining(lr=0.1, epochs=2, batch_size="all")


class LowRank(nn.Module):
    """A frozen layer beside which two matrices of rank 2 are trained."""

    def __init__(self, num_inputs: int = 6, num_outputs: int = 3) -> None:
        super().__init__()
        self.base = nn.Linear(num_inputs, num_outputs).requires_grad_(False)
        self.lora_A = nn.Linear(num_inputs, 2, bias=False)
        self.lora_B = nn.Linear(2, num_outputs, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B(self.lora_A(x))  # type: ignore[no-any-return]


NET = umbel.Net(LowRank)
A, B = NET.layout.mask(["*lora_A*"]), NET.layout.mask(["*lora_B*"])


def product(theta: Tensor) -> Tensor:
    """What the adapters of a model add to the frozen weights: B A."""
    own = NET.layout.tensors(theta)
    return own["lora_B.weight"] @ own["lora_A.weight"]


def descended(theta: Tensor, client: int, federation: umbel.Federation) -> Tensor:
    """A model after two steps on all of a client's examples, by autograd alone."""
    x, y = federation.train.of(client)
    for _ in range(2):
        theta = theta - 0.1 * NET.gradient(theta, Batch(x, y))[0]
    return theta


@pytest.mark.parametrize(("share", "shared"), [("A", A), ("B", B)])
def test_what_is_not_shared_goes_on_where_the_client_left_it(share: Any, shared: Tensor) -> None:
    federation = blobs((20, 10, 30))
    method = umbel.Sharing(umbel.FedAvg(local=WHOLE), share=share)
    run = umbel.Run(method, federation, NET, seed=0)
    start = run.start(2)
    assert isinstance(start, KeptState)
    model, own = start.models[0], [start.models[0].clone() for _ in range(3)]
    for state, record in run.rounds(2):
        trained = [
            descended(torch.where(shared, model, own[client]), client, federation)
            for client in range(3)
        ]
        mean = (20 * trained[0] + 10 * trained[1] + 30 * trained[2]) / 60
        model, own = torch.where(shared, mean, model), trained
        assert isinstance(state, KeptState)
        torch.testing.assert_close(state.models[0], model)
        torch.testing.assert_close(state.kept, torch.stack(own)[:, ~shared])
        assert record.bytes_down == 3 * 4 * int(shared.sum())
        assert record.bytes_up == 3 * (4 * int(shared.sum()) + 8)


def test_each_client_is_served_its_own_part(tmp_path: Any) -> None:
    federation = blobs((20, 10, 30))
    method = umbel.Sharing(umbel.FedAvg(local=WHOLE), share="A")
    result = umbel.Run(method, federation, NET, seed=0).save(tmp_path / "run", 2)
    tensors = [dict(result.model_for(client).named_parameters()) for client in range(3)]
    for other in tensors[1:]:
        assert torch.equal(other["lora_A.weight"], tensors[0]["lora_A.weight"])
        assert not torch.equal(other["lora_B.weight"], tensors[0]["lora_B.weight"])


def test_sharing_both_is_the_method_itself() -> None:
    federation = blobs((20, 10, 30))
    plainly, wrapped = (
        [record.untimed() for _, record in umbel.Run(method, federation, NET).rounds(2)]
        for method in (umbel.FedAvg(local=WHOLE), umbel.Sharing(umbel.FedAvg(local=WHOLE)))
    )
    assert [record.loss for record in plainly] == [record.loss for record in wrapped]


def test_the_mean_of_products_is_not_the_product_of_means() -> None:
    federation = blobs((20, 20))
    x = federation.train.x
    start = NET.new(0)
    trained = torch.stack([descended(start, client, federation) for client in range(2)])
    mean_of_products = torch.stack([product(theta) for theta in trained]).mean(0)
    averaged = product(trained.mean(0))
    assert (averaged - mean_of_products).norm() > 0.01 * mean_of_products.norm()
    halves = product((trained[0] - trained[1]) / 2)
    # mean(B A) - mean(B) mean(A) = (B1 - B2)(A1 - A2) / 4
    torch.testing.assert_close(mean_of_products - averaged, halves)
    outputs = torch.stack([NET.outputs(theta, x) for theta in trained]).mean(0)
    assert not torch.allclose(NET.outputs(trained.mean(0), x), outputs, atol=1e-4)


def test_with_one_matrix_frozen_averages_are_exact() -> None:
    frozen = umbel.Net(LowRank, trained=["lora_B.*"])
    assert [entry.name for entry in frozen.layout.weights] == ["lora_B.weight"]
    federation = blobs((20, 20))
    thetas = []
    for client in range(2):
        x, y = federation.train.of(client)
        theta = frozen.new(0)
        thetas.append(theta - 0.1 * frozen.gradient(theta, Batch(x, y))[0])
    mean = torch.stack(thetas).mean(0)
    x = federation.train.x
    outputs = torch.stack([frozen.outputs(theta, x) for theta in thetas]).mean(0)
    torch.testing.assert_close(frozen.outputs(mean, x), outputs)


def test_clustered_methods_cluster_by_what_is_shared() -> None:
    local = umbel.LocalTraining(lr=0.1, epochs=3, batch_size=8)
    method = umbel.Sharing(umbel.FLHC(num_clusters=2, cluster_round=2, local=local), share="B")
    *_, (state, record) = umbel.Run(method, blobs(), NET, seed=0).rounds(8)
    assert record.ari == 1.0
    assert isinstance(state, KeptState)
    assert state.kept.shape == (8, int(A.sum()))


def test_what_is_trained_only_to_find_clusters_is_not_kept() -> None:
    inner = umbel.FLHC(num_clusters=2, cluster_round=1, local=WHOLE)
    run = umbel.Run(umbel.Sharing(inner, kept=("3.*",)), blobs(), mlp())
    (before, _), (clustered, _) = run.rounds(2)
    assert isinstance(before, KeptState)
    assert isinstance(clustered, KeptState)
    assert len(clustered.models) == 2
    assert torch.equal(clustered.models[0], before.models[0])
    assert torch.equal(clustered.kept, before.kept)


@pytest.mark.long
def test_the_contract_is_kept() -> None:
    local = umbel.LocalTraining(lr=0.1, epochs=2, batch_size=8)
    check_method(umbel.Sharing(umbel.FedAvg(local=local), kept=("1.*",)))
    assert mlp().layout.mask(["1.*"]).any()


def test_a_table_of_any_method_says_what_is_shared() -> None:
    table: dict[str, Any] = {
        "scenario": {"name": "rotated-digits"},
        "model": {"name": "linear"},
        "algorithm": {"name": "fedprox", "share": "A", "kept": ["*head*"], "mu": 0.5},
    }
    experiment = structured(table, Experiment)
    assert experiment.algorithm == umbel.Sharing(umbel.FedProx(mu=0.5), "A", ("*head*",))
    assert structured(plain(experiment), Experiment) == experiment
    both = structured({**table, "algorithm": {"name": "fedavg", "share": "both"}}, Experiment)
    assert both.algorithm == umbel.FedAvg()


def test_what_can_not_be_shared_in_part_is_refused() -> None:
    federation = blobs((20, 10, 30))
    with pytest.raises(umbel.UsageError, match="share: 'FedEM' is not a method whose clients use"):
        umbel.Sharing(umbel.FedEM(), share="A")
    with pytest.raises(umbel.UsageError, match=r"share = 'A': '\*lora_B\*' is not a pattern for"):
        umbel.Run(umbel.Sharing(umbel.FedAvg(), share="A"), blobs(), mlp())
    with pytest.raises(umbel.UsageError, match=r"kept: .* leaves values to share"):
        umbel.Run(umbel.Sharing(umbel.FedAvg(), kept=("*",)), federation, NET)


@dataclass(frozen=True)
class Asking(umbel.Algorithm[umbel.State]):
    """A method of one's own, which does not say that it asks for weights of a mixture."""

    def init(self, setup: umbel.Setup) -> umbel.State:
        return one_model(setup)

    def round(self, state: umbel.State, ctx: Context) -> Flow[umbel.State]:
        weights = torch.ones(len(ctx.cohort), 1)
        yield from mixture_weights(state.models, Rows(weights, torch.arange(len(weights))), ctx)
        return state


def test_a_method_of_ones_own_is_found_out_in_the_round_in_which_it_asks() -> None:
    run = umbel.Run(umbel.Sharing(Asking(), kept=("3.*",)), blobs(), mlp())
    with pytest.raises(umbel.UsageError, match="clients of Asking are asked for MixtureWeights"):
        next(run.rounds(1))


def test_models_are_parted_and_joined() -> None:
    places, own = parted(NET.layout, ("*lora_A*",))
    theta = torch.arange(NET.layout.num_values)
    assert torch.equal(joined(theta[places], theta[own], places, own), theta)
