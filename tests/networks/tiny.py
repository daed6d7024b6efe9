"""Tiny transformers models and adapters, made on the spot."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

transformers: Any = pytest.importorskip("transformers")
peft: Any = pytest.importorskip("peft")

IDS, LONGEST = 30, 16

BERT = {
    "vocab_size": IDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": LONGEST,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
GPT2 = {
    "vocab_size": IDS,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": LONGEST,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def made(kind: str, **settings: Any) -> Any:
    """A model of this kind of transformers', always the same."""
    config = (
        transformers.GPT2Config(**{**GPT2, **settings})
        if kind.startswith("GPT2")
        else transformers.BertConfig(**{**BERT, **settings})
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return getattr(transformers, kind)(config)


def lora(task: str | None = "SEQ_CLS", **settings: Any) -> Any:
    """Adapters of rank 2 on query and value."""
    return peft.LoraConfig(
        **{"r": 2, "target_modules": ["query", "value"], "task_type": task, **settings}
    )
