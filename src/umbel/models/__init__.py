"""Networks by name."""

from umbel.models.autoencoder import CSIAutoencoder
from umbel.models.base import Model
from umbel.models.convolutional import CNN, CNN1D, CNNLin, LeNet
from umbel.models.dense import MLP, Linear
from umbel.models.residual import ResNet18

MODELS: dict[str, type[Model]] = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "cnn-lin": CNNLin,
    "cnn-1d": CNN1D,
    "lenet": LeNet,
    "csi-autoencoder": CSIAutoencoder,
    "resnet18": ResNet18,
}

__all__ = [
    "CNN",
    "CNN1D",
    "MLP",
    "MODELS",
    "CNNLin",
    "CSIAutoencoder",
    "LeNet",
    "Linear",
    "Model",
    "ResNet18",
]
