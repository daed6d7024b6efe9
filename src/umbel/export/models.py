"""Export the model of a cluster or a client to a file for other programs, and compare outputs."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import BytesIO, StringIO
from math import nan
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from umbel.checks import UsageError, check, first_line, nearest
from umbel.export.adapters import to_peft
from umbel.files.atomic import write_bytes
from umbel.files.reading import check_folder, check_no_link, check_place
from umbel.folder import encoding_file
from umbel.folder.identity import RUN, identity
from umbel.folder.models_folder import MadeFor
from umbel.folder.saved_run import SavedRun
from umbel.folder.tensor_files import write_plain
from umbel.run.digests import digest

Format = Literal["onnx", "torch", "safetensors", "peft"]

SUFFIXES: dict[Format, str] = {
    "onnx": ".onnx",
    "torch": ".pt2",
    "safetensors": ".safetensors",
    "peft": "-adapters",
}

OF_MODELS = (*SUFFIXES.values(), ".pt", ".pth")
"""Ends of the names of files of models, which the names of their encodings are without."""

BATCHES = (1, 2, 7)
"""Sizes of the batches on which the file and the model are compared."""

LONGEST_QUOTED = 200
"""Characters of a client's name in a file's; the suffix, and that of its encoding, have room."""

Run = Callable[[Tensor], Tensor]

Said = Mapping[str, str]
"""The header of a file: the identity of its run, and whose model it holds."""


@dataclass(frozen=True)
class Exported:
    """A model in a file, or for peft in a folder."""

    file: Path
    largest_difference: float  # of its outputs from those of the model; nan if none is compared
    num_examples: int  # number of random examples used for the comparison; 0 if it accepts none
    encoding: Path | None = None  # what rows of a table become inputs by, where the run is of one


def export_model(
    result: SavedRun,
    to: Format,
    *,
    client: str | int | None = None,
    cluster: int | None = None,
    out: Path | str | None = None,
) -> Exported:
    """Write the model of a client or a cluster, read it back, and compare outputs.

    "torch" is a program of `torch.export`, "onnx" needs an extra, "safetensors" holds the tensors
    of the module by name, its constants among them, and nothing else that `get_extra_state`
    returns. "peft" is a folder of adapters that
    `PeftModel.from_pretrained` reads. Batches may have any size. Raises `UsageError` where the
    module can't be exported, or the client or cluster is not known.
    """
    kinds = get_args(Format)
    if to not in kinds:
        raise UsageError(f"to: {to!r} is not known; {nearest(str(to), kinds)}")
    check(client is None or cluster is None, "cluster", cluster, "allowed together with a client")
    if client is None and cluster is None:
        last = result.num_clusters - 1
        if last:
            raise UsageError(f"cluster: one of 0 to {last} is needed, or the name of a client")
        cluster = 0
    name = f"cluster-{cluster}" if client is None else f"client-{_as_file(str(client))}"
    module = result.model(cluster or 0) if client is None else result.model_for(client)
    examples = [_examples(result.made_for[0], size) for size in BATCHES]
    encoding = encoding_file.read(result.folder.path)
    file = _place(result, to, out, name)
    beside = None if encoding is None else _place_beside(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    moved = [entry.name for entry in result.net.layout.rest]
    writer = partial(to_peft, moved=moved) if to == "peft" else WRITERS[to]
    said = {RUN: identity(result.folder.path), "model": name}
    with _quietly(), torch.no_grad():
        written = writer(module, examples[1], file, said)
        expected = [(x, _outputs(module, x)) for x in examples]
        compared = {len(x): _difference(written(x), y) for x, y in expected if y is not None}
    if beside is not None:  # the run's inputs came from a table or channels
        encoding_file.write(beside, encoding, said)
    return Exported(file, max(compared.values(), default=nan), sum(compared), beside)


def _place(result: SavedRun, to: Format, out: Path | str | None, name: str) -> Path:
    """Return the path of the model: `out`, or its name in the run's folder.

    Raises `UsageError`.
    """
    file = result.folder.file("exported") / (name + SUFFIXES[to]) if out is None else Path(out)
    if out is None:
        check_no_link(file.parent, file)
    if to == "peft":
        check_folder(file, "out")
    else:
        check_place(file, "out")
    return file


def _place_beside(file: Path) -> Path:
    """Return the path of the encoding of the model's inputs. Raises `UsageError`."""
    # The end of another name, as of "model v1.0", tells models apart.
    name = file.stem if file.suffix.lower() in OF_MODELS else file.name
    beside = file.with_name(f"{name}-{encoding_file.FILE}")
    check_no_link(beside)
    check_place(beside, "out")
    return beside


def _as_file(name: str) -> str:
    """A client's name as part of a file's; the end of a long one is replaced by its digest."""
    quoted = quote(name, safe=" ")
    if len(quoted) <= LONGEST_QUOTED:
        return quoted
    kept = quoted[:LONGEST_QUOTED]
    kept = kept.rpartition("%")[0] if "%" in kept[-2:] else kept  # no half of a %D0
    return f"{kept}-{digest([name.encode(errors='surrogateescape')])[:8]}"


def _to_torch(module: nn.Module, x: Tensor, file: Path, said: Said) -> Run:
    program, data = _captured(module, x), BytesIO()
    try:
        torch.export.save(program, data, extra_files={"umbel.json": json.dumps(dict(said))})
    except Exception as error:  # what can be captured need not have a form on disk
        raise UsageError(f"to: 'torch' is not possible: {first_line(error)}") from None
    write_bytes(file, data.getvalue())
    run: Run = torch.export.load(file).module()
    return run


def _to_onnx(module: nn.Module, x: Tensor, file: Path, said: Said) -> Run:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise UsageError('to: "onnx" needs an extra: pip install "umbel[onnx]"') from None
    program = _captured(module, x)
    try:
        exported: Any = torch.onnx.export(
            program,
            (),
            dynamo=True,
            input_names=["x"],
            output_names=["y"],
            verbose=False,
        )
        proto = exported.model_proto
        for key, value in said.items():
            proto.metadata_props.add(key=f"umbel.{key}", value=value)
        data: bytes = proto.SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # whatever ONNX lacks for this module
        raise UsageError(f"to: 'onnx' is not possible: {first_line(error)}") from None
    write_bytes(file, data)
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def _to_safetensors(module: nn.Module, x: Tensor, file: Path, said: Said) -> Run:  # noqa: ARG001
    tensors = _tensors(module)
    whole = {name: t.detach().clone().contiguous() for name, t in tensors.items()}
    write_plain(file, whole, {"umbel": json.dumps(dict(said))})
    again = copy.deepcopy(module)
    for buffer in again.buffers():
        buffer.data = buffer.detach().clone(memory_format=torch.contiguous_format)
    mine = _tensors(again)
    for tensor in mine.values():
        tensor.detach().zero_()
    for name, values in load_file(file).items():
        mine[name].detach().copy_(values)
    return again


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """All tensors by name, constants too, but nothing else that `get_extra_state` returns."""
    entries = [*module.named_buffers(), *module.state_dict().items()]
    return {name: value for name, value in entries if isinstance(value, Tensor)}


WRITERS: dict[Format, Callable[[nn.Module, Tensor, Path, Said], Run]] = {
    "onnx": _to_onnx,
    "torch": _to_torch,
    "safetensors": _to_safetensors,
    "peft": to_peft,
}


def _captured(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    """The exported program of the module, for batches of any size."""
    try:
        return torch.export.export(
            module, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},)
        )
    except Exception as error:  # whatever the module does that can't be captured
        why = first_line(error)
        raise UsageError(
            f"to: torch.export can't capture {type(module).__name__} for batches of any size: {why}"
        ) from None


def _examples(fits: MadeFor, size: int) -> Tensor:
    """Random inputs of the right shape and type."""
    generator = torch.Generator().manual_seed(size)
    shape, kind = (size, *fits.input_shape), getattr(torch, fits.input_type)
    if not kind.is_floating_point:
        return torch.randint(max(fits.largest or 0, 0) + 1, shape, generator=generator, dtype=kind)
    return torch.randn(shape, generator=generator, dtype=kind)


def _outputs(module: nn.Module, x: Tensor) -> Tensor | None:
    """The outputs of the model, or None if it does not accept random inputs.

    For example, its columns may be categories of different numbers.
    """
    try:
        outputs: Tensor = module(x)
    except Exception:  # whatever a module raises
        return None
    return outputs


def _difference(outputs: Tensor, expected: Tensor) -> float:
    check(outputs.shape == expected.shape, "shape", outputs.shape, f"that of {expected.shape}")
    # Masked logits are infinite in both, and their difference would be nan.
    gaps = (outputs - expected).abs().where(outputs != expected, 0)
    return float(gaps.max()) if gaps.numel() else 0.0


@contextmanager
def _quietly() -> Iterator[None]:
    """Inside, messages of the exporters are suppressed."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
