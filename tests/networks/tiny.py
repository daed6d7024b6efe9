"""Tiny transformers models and adapters, made on the spot."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
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
        else transformers.RobertaConfig(**{**BERT, **settings})
        if kind.startswith("Roberta")
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


WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *["the", "a", "of", "library", "tools", "for", "fonts", "games", "maps", "sound"],
)


def encoder(folder: Path, **settings: Any) -> Path:
    """A folder with a tiny encoder of sentences and its tokenizer."""
    tokenizers: Any = pytest.importorskip("tokenizers")
    folder.mkdir(parents=True)
    model = made("BertModel", **{"vocab_size": len(WORDS), **settings})
    model.save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def change(file: Path, **settings: Any) -> None:
    """Write other settings into a file of JSON."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}, indent=1))


def permute(folder: Path) -> None:
    """Give two words of the tokenizer each other's ids."""
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    vocabulary = model["vocab"]
    swapped = {"maps": vocabulary["fonts"], "fonts": vocabulary["maps"]}
    change(folder / "tokenizer.json", model={**model, "vocab": {**vocabulary, **swapped}})


def package(folder: Path, name: str) -> None:
    """An importable package with an encoder in it, which must not be imported."""
    encoder(folder / name / "model")
    (folder / name / "__init__.py").write_text("raise SystemError('this was run')\n")
    pooling = folder / name / "model" / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text("{}")
