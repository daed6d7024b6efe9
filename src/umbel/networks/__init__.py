"""Networks by name."""

from umbel.help.field_docs import explain_all
from umbel.networks.adapters import adapted
from umbel.networks.autoencoder import CSIAutoencoder
from umbel.networks.base import Model
from umbel.networks.convolutional import CNN, CNN1D, CNNLin, LeNet
from umbel.networks.dense import MLP, Linear
from umbel.networks.lora import LoRA
from umbel.networks.recurrent import CharLSTM
from umbel.networks.residual import ResNet18
from umbel.networks.text_classifier import TextClassifier
from umbel.networks.transformer import CharTransformer

MODELS: dict[str, type[Model]] = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "cnn-lin": CNNLin,
    "cnn-1d": CNN1D,
    "lenet": LeNet,
    "csi-autoencoder": CSIAutoencoder,
    "resnet18": ResNet18,
    "char-lstm": CharLSTM,
    "char-transformer": CharTransformer,
    "text-classifier": TextClassifier,
}
"""Networks by their names in the `[model]` table of experiments."""

__all__ = [
    "CNN",
    "CNN1D",
    "MLP",
    "MODELS",
    "CNNLin",
    "CSIAutoencoder",
    "CharLSTM",
    "CharTransformer",
    "LeNet",
    "Linear",
    "LoRA",
    "Model",
    "ResNet18",
    "TextClassifier",
    "adapted",
]

explain_all(globals())
