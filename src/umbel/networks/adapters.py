"""Transformers models with adapters of peft, as networks that read token ids."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad as padded

from umbel.checks import UsageError, check, first_line
from umbel.client.constants import same
from umbel.networks.packages import optional
from umbel.networks.tokens import check_padding, padding_id, positions, readable, text_settings
from umbel.settings import argument


class TokenNetwork(nn.Module):
    """A transformers model that finds its attention mask from the ids, and returns its logits."""

    def __init__(self, network: nn.Module, pad: int | None, most: int | None) -> None:
        super().__init__()
        self.network, self.pad, self.most = network, pad, most

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, L) -> logits (B, C), or (B, C, L) for tokens, which are 0 at padding."""
        ids, mask = readable(x, self.pad, self.most)
        outputs = self.network(input_ids=ids, attention_mask=mask.to(ids.dtype))
        logits: Tensor | None = getattr(outputs, "logits", None)
        if logits is None:
            raise UsageError(
                "model: its outputs have no logits: give a model with a head, as "
                "AutoModelForSequenceClassification and similar classes make"
            )
        if logits.dim() == 2:
            return logits
        read = logits.movedim(-1, 1).where(mask[:, None], 0)
        return padded(read, (0, x.shape[1] - mask.shape[1]))


def adapted(
    model: nn.Module, config: Any, *, pad: int | None = None, new_head: bool = False
) -> Callable[[], nn.Module]:
    """A builder for `umbel.Net`: a transformers model with only adapters and the head trained.

    `model` classifies texts or tokens, or predicts the next token (`AutoModelFor...`). `config` is
    a `peft.LoraConfig`; its `task_type` or `modules_to_save` decides whether the head is trained,
    too. The module takes ids x (B, L), int64, padded to the right by the id `pad` (by default, the
    model's own) or by negative ones, and returns logits (B, C), or (B, C, L) for tokens. It finds
    its attention mask from x, and reads no further than the longest example of a mini-batch.

    Every build draws new adapters. All builds share the frozen tensors of `model` in memory, and
    `model` itself is not changed. The head starts from the values in `model`, or with `new_head`
    from new random values. Raises `UsageError` for a model without a head, if nothing would be
    trained, for a `pad` that the model has no row for, and without peft.
    """
    peft = optional("peft", "adapted")
    made_by_transformers = isinstance(model, nn.Module) and hasattr(
        getattr(model, "config", None), "get_text_config"
    )
    check(made_by_transformers, "model", type(model).__name__, "a model of transformers")
    usable = isinstance(config, peft.PeftConfig) and not config.is_prompt_learning
    check(usable, "config", config, "a configuration of peft for layers, such as peft.LoraConfig")
    name, own, settings = type(model).__name__, lent(model), copy.deepcopy(config)
    pad, most = padding_id(own, argument("pad", pad, int | None)), positions(own)
    check_padding(own, pad, "pad")
    for each in (own.config, text_settings(own)):
        each.use_cache = False  # the cache of earlier tokens only helps to generate text
        each.pad_token_id = pad

    def build() -> nn.Module:
        network = with_adapters(own, settings, peft, "config")
        if new_head:
            draw_anew(network, own, peft)
        return TokenNetwork(network, pad, most)

    _check_start(own, settings, peft)
    _try(build, name, own)
    return build


def with_adapters(own: Any, settings: Any, peft: Any, field: str) -> Any:
    """Build a model of peft with the frozen tensors of `own`.

    Raises `UsageError` with the name of the field if peft finds no layers for adapters, and for a
    head that is trained in another precision than the adapters.
    """
    network = _wrapped(lent(own), settings, peft, field)
    kinds = {str(each.dtype) for each in network.parameters() if each.requires_grad}
    if len(kinds) > 1:
        raise UsageError(
            f"{field}: the head would be trained in another precision than the adapters "
            f"({' and '.join(sorted(kinds))}): load the model with dtype=torch.float32, or choose "
            "a task_type that trains no head"
        )
    places = {tensor.data_ptr() for tensor in own.parameters()}
    for tensor in network.parameters():
        if tensor.requires_grad and tensor.data_ptr() in places:
            tensor.data = tensor.data.clone()  # biases, if the adapters train them
    return network


def _wrapped(base: nn.Module, settings: Any, peft: Any, field: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each build would repeat the same warnings
        try:
            return peft.get_peft_model(base, copy.deepcopy(settings))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{field}: {error}") from None


def _check_start(own: nn.Module, settings: Any, peft: Any) -> None:
    """Raise `UsageError` if making adapters would change frozen weights, which all models share."""
    start = getattr(settings, "init_lora_weights", None)
    if start in (True, False, "gaussian"):
        return  # they only draw the adapters' own values, so a large model need not be copied
    # Some starts write into the weights in place, so they are tried on weights of their own.
    apart = copy.deepcopy(own)
    pairs = list(zip(own.parameters(), apart.parameters(), strict=True))
    with torch.random.fork_rng(devices=[]):
        _wrapped(apart, settings, peft, "config")
    kept = all(same(one, other) for one, other in pairs)
    field = "config" if start is None else "config: init_lora_weights"
    expected = "a start that does not change frozen weights: all models share them"
    check(kept, field, type(settings).__name__ if start is None else start, expected)


def lent(model: nn.Module) -> Any:
    """Copy a module with frozen parameters that share the memory of the original."""
    memo = {
        id(tensor): nn.Parameter(tensor.detach(), requires_grad=False)
        for tensor in model.parameters()
        # quantised parameters have another type, and are frozen already
        if type(tensor) is nn.Parameter
    }
    return copy.deepcopy(model, memo)


def draw_anew(network: nn.Module, own: Any, peft: Any) -> None:
    """Draw new initial values for the trained head outside of the base model."""
    heads = list(_heads(network, str(getattr(own, "base_model_prefix", "")), peft))
    expected = "possible: no head is trained; name it in modules_to_save of the configuration"
    check(bool(heads), "new_head", True, expected)
    for head in heads:
        for part in head.modules():
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()


def _heads(network: nn.Module, base: str, peft: Any) -> Iterator[nn.Module]:
    for name, part in network.named_modules():
        inside = name.removeprefix("base_model.model.").partition(".")[0] == base
        if isinstance(part, peft.utils.ModulesToSaveWrapper) and not inside:
            yield part.modules_to_save


def _try(build: Callable[[], nn.Module], name: str, own: nn.Module) -> None:
    """Raise `UsageError` unless a module can be built, accepts ids, and has trained parameters."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        module = build()
        device = next(iter(own.parameters())).device
        try:
            module.eval()(torch.ones((2, 2), dtype=torch.long, device=device))
        except UsageError:
            raise
        # whatever a model raises that does not accept ids and a mask alone
        except Exception as error:
            said = first_line(error)
            raise UsageError(f"model: {name} does not take token ids and a mask: {said}") from None
    trained = any(tensor.requires_grad for tensor in module.parameters())
    if not trained:
        raise UsageError(f"config: trains none of {name}'s values; name other target_modules")
