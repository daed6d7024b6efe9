"""A pretrained, frozen encoder of sentences, with adapters and a linear head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from umbel.checks import UsageError, check, check_least, first_line
from umbel.networks.adapters import draw_anew, lent, with_adapters
from umbel.networks.base import Model
from umbel.networks.encoders import PACKAGED, load_encoder, silent
from umbel.networks.packages import optional
from umbel.networks.tokens import check_padding, padding_id, positions, readable, text_settings


class SentenceClassifier(nn.Module):
    """The mean of an encoder's outputs over the tokens of a text, and a linear layer."""

    base_model_prefix: ClassVar[str] = "encoder"

    def __init__(self, encoder: Any, num_outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.pad = padding_id(encoder)
        self.most = positions(encoder)
        self.head = nn.Linear(text_settings(encoder).hidden_size, num_outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, L), padded to the right -> (B, num_outputs)."""
        ids, read = readable(x, self.pad, self.most)
        states = self.encoder(input_ids=ids, attention_mask=read.to(ids.dtype)).last_hidden_state
        sums = states.to(self.head.weight.dtype).where(read[..., None], 0).sum(1)
        outputs: Tensor = self.head(sums / read.sum(1, keepdim=True))
        return outputs


class AdaptedClassifier(nn.Module):
    """A `SentenceClassifier` with adapters of peft."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, L), padded to the right -> (B, num_outputs)."""
        outputs: Tensor = self.network(x)
        return outputs


@dataclass(frozen=True)
class TextClassifier(Model):
    """A pretrained encoder of sentences, frozen, with adapters of low rank and a linear head.

    Inputs are token ids, as from a table with a `tokenizer`; the network takes the mean over the
    tokens of a text. The encoder is loaded once and never sent. Training changes the head and,
    unless `adapters` is 0, two matrices for each layer in `targets` (LoRA, Hu et al. 2022). It
    needs the extra `umbel[peft]`.
    """

    #: a folder with config.json and weights, or "package:NAME" for one in an installed package
    encoder: str = PACKAGED
    adapters: int = 8  #: rank of the adapters; 0: only the head is trained
    alpha: float = 16.0  #: the outputs of adapters are multiplied by alpha / adapters
    targets: tuple[str, ...] = ("query", "value")  #: ends of the names of layers with adapters

    def __post_init__(self) -> None:
        check(bool(self.encoder), "encoder", self.encoder, "the folder of an encoder")
        check_least(self, 0, "adapters")
        check(self.alpha > 0, "alpha", self.alpha, "more than 0")
        check(bool(self.targets), "targets", self.targets, "a list with at least one name")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check(len(shape) == 1, "model", shape, "the shape of token ids: (length,)")
        # Only builds without values are elsewhere; another default device is not for modules.
        without = torch.get_default_device().type == "meta"
        with torch.device("meta" if without else "cpu"):
            module = self.base(num_outputs)
            if not self.adapters:
                module.head.reset_parameters()
                return module
            module.head.requires_grad_(False)
            return self._with_adapters(module)

    def base(self, num_outputs: int) -> SentenceClassifier:
        """The module without adapters, with a head of zeros, for `PeftModel.from_pretrained`."""
        with torch.device("cpu"):  # builds without values read and share the encoder, too
            encoder = lent(self._encoder)
        return SentenceClassifier(encoder, num_outputs)

    def _with_adapters(self, module: SentenceClassifier) -> nn.Module:
        peft = optional("peft", "text-classifier")
        parts = dict(module.encoder.named_modules())
        linear = (name for name, part in parts.items() if isinstance(part, nn.Linear))
        ends = sorted({name.rpartition(".")[2] for name in linear})
        expected = f"the end of the name of a layer: {', '.join(ends)}"
        for target in self.targets:
            known = any(f".encoder.{name}".endswith(f".{target}") for name in parts if name)
            check(known, "targets", target, expected)
        if wrong := next((name for name in parts if name.endswith("head")), ""):
            raise UsageError(
                f'encoder: peft would train its {wrong} whole, as its name ends in "head": choose '
                "another encoder, or adapters = 0"
            )
        settings = peft.LoraConfig(
            r=self.adapters,
            lora_alpha=self.alpha,
            target_modules=list(self.targets),
            modules_to_save=["head"],
        )
        network: nn.Module = with_adapters(module, settings, peft, "targets")
        draw_anew(network, module, peft)
        return AdaptedClassifier(network)

    @cached_property
    def _encoder(self) -> Any:
        """The encoder, loaded at first use and then kept."""
        encoder = load_encoder(self.encoder)
        _try(lent(encoder))  # a pass may change what an encoder keeps
        check_padding(encoder, padding_id(encoder), "encoder: pad_token_id")
        return encoder


def _try(encoder: Any) -> None:
    """Raise `UsageError` unless the encoder gives outputs for the ids of a short text."""
    quiet = silent(optional("transformers", "text-classifier"))
    with quiet, torch.device("cpu"), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            module = SentenceClassifier(encoder, 1)
            length = min(8, module.most or 8)
            module(torch.full((1, length), int(module.pad == 0)))
        # whatever a model raises that does not accept ids and a mask alone
        except Exception as error:
            kind, said = type(encoder).__name__, first_line(error)
            raise UsageError(
                f"encoder: {kind} gives no output for each token from ids and a mask: {said}"
            ) from None
