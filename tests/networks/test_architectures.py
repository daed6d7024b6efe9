from __future__ import annotations

from math import prod

import pytest
import torch
from torch.testing import assert_close

from umbel.checks import UsageError
from umbel.networks import (
    CNN,
    CNN1D,
    MLP,
    MODELS,
    CNNLin,
    CSIAutoencoder,
    LeNet,
    Linear,
    Model,
    ResNet18,
)

POOLING = (torch.nn.MaxPool1d, torch.nn.MaxPool2d)


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (CNN((3, 4), 3, 5), (1, 9, 8)),
        (LeNet(), (3, 17, 18)),
        (CNNLin(), (2, 8, 9)),
        (CNN1D((3, 4, 5)), (2, 19)),
    ],
)
def test_relu_after_pooling_is_as_before_it(model: Model, shape: tuple[int, ...]) -> None:
    x = torch.randn(6, *shape).round(decimals=1)
    module = model.build(shape, 3)
    assert isinstance(module, torch.nn.Sequential)
    layers = list(module)
    for place, layer in enumerate(module):
        if isinstance(layer, POOLING):
            assert isinstance(layers[place + 1], torch.nn.ReLU)
            layers[place : place + 2] = layers[place + 1], layers[place]
    outputs, as_in_papers = module(x), torch.nn.Sequential(*layers)(x)
    assert torch.equal(outputs, as_in_papers)
    weights = list(module.parameters())
    slopes = torch.autograd.grad(outputs.square().sum(), weights)
    assert_close(slopes, torch.autograd.grad(as_in_papers.square().sum(), weights))


def test_the_residual_network_is_normalised_by_groups_or_as_in_the_paper_by_batches() -> None:
    kinds = {"group": torch.nn.GroupNorm, "batch": torch.nn.BatchNorm2d}
    for norm, kind in kinds.items():
        module = ResNet18(norm=norm).build((3, 8, 8), 10)  # type: ignore[arg-type]
        found = [each for each in module.modules() if isinstance(each, tuple(kinds.values()))]
        assert len(found) == 20
        assert all(isinstance(each, kind) for each in found)
        assert module(torch.zeros(2, 3, 8, 8)).shape == (2, 10)
    # He et al. 2016, with a first convolution of 3x3.
    assert parameters(ResNet18(norm="batch").build((3, 32, 32), 10)) == 11_173_962


def test_the_cnn_is_the_papers() -> None:
    # McMahan et al. 2017, section 3: 1,663,370 parameters for MNIST.
    assert parameters(CNN().build((1, 28, 28), 10)) == 1_663_370


def test_the_mlp_has_the_layers_asked_for() -> None:
    assert parameters(MLP((200,)).build((1, 28, 28), 10)) == 784 * 200 + 200 + 200 * 10 + 10
    assert parameters(MLP(()).build((7,), 3)) == parameters(Linear().build((7,), 3)) == 24


def test_a_linear_model_starts_with_weights_in_the_range_given_and_no_bias() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        weight, bias = Linear(init=0.8).build((2000,), 1).parameters()
    assert 0.79 < weight.abs().max() <= 0.8
    assert weight.mean().abs() < 0.05
    assert weight.std().item() == pytest.approx(1.6 / 12**0.5, abs=0.02)
    assert not bias.any()
    with pytest.raises(UsageError, match=r"init: 0\.0 is not more than 0"):
        Linear(0.0)


def test_the_networks_of_lin_are_those_of_figure_3() -> None:
    hidden = 64 * 12 * 12 * 128 + 128
    convolutions = 32 * 9 + 32 + 64 * 32 * 9 + 64
    assert parameters(CNNLin().build((1, 28, 28), 8)) == convolutions + hidden + 128 * 8 + 8
    wider = 32 * 25 + 32 + 64 * 32 * 9 + 64 + 64 * 11 * 11 * 128 + 128 + 128 * 40 + 40
    assert parameters(CNNLin(kernel=5).build((1, 28, 28), 40)) == wider
    # The layers of LeNet-5 on 32x32 images in colour, as in PyTorch's tutorial: 62,006 with 10.
    assert parameters(LeNet().build((3, 32, 32), 10)) == 62_006
    emnist = (25 + 1) * 6 + (6 * 25 + 1) * 16 + 257 * 120 + 121 * 84 + 85 * 62
    assert parameters(LeNet().build((1, 28, 28), 62)) == emnist


def test_the_network_for_signals_has_the_papers_layers() -> None:
    convolutions = 5 * 64 + 64 + 5 * 64 * 128 + 128 + 5 * 128 * 256 + 256
    dense = 32 * 256 * 128 + 128 + 128 * 64 + 64 + 64 * 12 + 12
    assert parameters(CNN1D().build((1, 256), 12)) == convolutions + dense


def test_the_autoencoder_has_the_papers_parameters_and_a_part_to_share() -> None:
    large = CSIAutoencoder().build((2, 32, 32), 2048)
    small = CSIAutoencoder(code=16).build((2, 32, 32), 2048)
    assert parameters(large) == pytest.approx(4.2e6, rel=0.01)
    assert parameters(small) == pytest.approx(72e3, rel=0.01)
    names = {name.partition(".")[0] for name, _ in small.named_parameters()}
    assert names == {"encoder", "decoder"}
    x = torch.randn(3, 2, 32, 32, generator=torch.manual_seed(0))
    code = small.get_submodule("encoder")(x)
    assert code.shape == (3, 16)
    assert small.get_submodule("decoder")(code).shape == x.shape


def test_the_autoencoder_starts_with_xavier_weights_and_neutral_norms() -> None:
    for norm in ("batch", "group"):
        module = CSIAutoencoder(code=64, norm=norm).build((2, 32, 32), 2048)
        for part in module.modules():
            if isinstance(part, torch.nn.Linear):
                bound = (6 / (part.in_features + part.out_features)) ** 0.5
                assert 0.99 * bound < part.weight.abs().max() <= bound
            elif isinstance(part, torch.nn.BatchNorm2d | torch.nn.GroupNorm):
                assert part.weight.eq(1).all()
                assert part.bias.eq(0).all()


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "cnn-1d": [(1, 256), (3, 21)],
    "lenet": [(1, 16, 16), (3, 21, 18)],
}


@pytest.mark.parametrize(
    "name", [name for name in MODELS if not name.startswith(("char-", "text-"))]
)
@pytest.mark.parametrize("number", [0, 1])
def test_every_model_maps_inputs_to_outputs(name: str, number: int) -> None:
    shape = SHAPES.get(name, [(1, 8, 8), (3, 13, 10)])[number]
    outputs = prod(shape) if name == "csi-autoencoder" else 4
    module = MODELS[name]().build(shape, outputs)
    assert module(torch.zeros(2, *shape)).flatten(1).shape == (2, outputs)


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"model: \(64,\) is not the shape of an image"):
        CNN().build((64,), 10)
    with pytest.raises(UsageError, match=r"model: \(1, 3, 8\) is not at least 4 pixels"):
        CNN().build((1, 3, 8), 10)
    with pytest.raises(UsageError, match=r"model: \(1, 15, 20\) is not at least 16 pixels"):
        LeNet().build((1, 15, 20), 10)
    with pytest.raises(UsageError, match=r"model: \(1, 5, 8\) is not at least 6 pixels"):
        CNNLin().build((1, 5, 8), 10)
    with pytest.raises(UsageError, match=r"model: \(1, 8, 8\) is not the shape of a signal"):
        CNN1D().build((1, 8, 8), 10)
    with pytest.raises(UsageError, match=r"model: \(1, 7\) is not at least 8 long"):
        CNN1D().build((1, 7), 10)


def test_images_with_their_channels_last_are_told_apart() -> None:
    with pytest.raises(UsageError, match="channels come first"):
        MODELS["cnn"]().build((12, 12, 3), 10)


@pytest.mark.parametrize(
    "settings",
    [{"channels": ()}, {"channels": (0,)}, {"kernel": 4}, {"kernel": -1}, {"hidden": 0}],
)
def test_settings_out_of_range_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(settings))}: .* is not"):
        CNN(**settings)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="hidden"):
        MLP((0,))
    with pytest.raises(UsageError, match="kernel: 0 is not 1 or more"):
        CNNLin(kernel=0)
    with pytest.raises(UsageError, match="code: 0 is not 1 or more"):
        CSIAutoencoder(code=0)
    with pytest.raises(UsageError, match="norm: 'layer' is not \"batch\" or"):
        CSIAutoencoder(norm="layer")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"model: \(2, 4, 4\) is not a shape of 10 values, the"):
        CSIAutoencoder().build((2, 4, 4), 10)
