"""Advice in place of torch's errors about a network and its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from umbel.checks import UsageError, first_line, lacks_memory

ALONE = "Expected more than 1 value per channel when training"
"""Words of batch normalisation about a mini-batch of one example."""

FAILURES = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""Exceptions that modules and objectives raise for inputs that they do not accept."""


ELSEWHERE = ("same device", "CUDA enabled", "initialize CUDA")
"""Words in torch's message if a network moves tensors to devices itself."""

OF_CODE = (KeyError, AttributeError, AssertionError)
"""Python's own errors, which tell nothing about the shape of inputs."""


@contextmanager
def explained(x: Tensor, whose: str = "") -> Iterator[None]:
    """Turn errors of torch about a network and its inputs x into `UsageError`s with advice."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{whose}{error}") from error
    except torch.OutOfMemoryError:  # which says nothing of the network
        raise
    except FAILURES as error:
        if lacks_memory(error):
            raise MemoryError("two examples are too many for the network") from error
        bare = isinstance(error, KeyError | AssertionError)
        said = in_a_line(error, named=bare)
        raise UsageError(f"{whose}{_sentence(said, x, isinstance(error, OF_CODE))}") from error


def in_a_line(error: Exception, *, named: bool) -> str:
    """The first line of an error's message; the type first if `named` or if there is no message."""
    said, kind = first_line(error), type(error).__name__
    return f"{kind}: {said}" if named and said != kind else said


def _sentence(said: str, x: Tensor, of_code: bool) -> str:
    shape, whole = tuple(x.shape[1:]), not x.is_floating_point()
    if ALONE in said:
        return (
            "a mini-batch of one example, but batch normalisation needs two: set drop_last = true "
            "or another batch_size in the method's local training"
        )
    if "index out of range in self" in said:
        return (
            "x: an input is not a row of the network's embedding; the network is given inputs from "
            f"{int(x.min())} to {int(x.max())}: make num_embeddings larger, or number what is "
            "embedded from 0"
        )
    if "indices" in said and "Long" in said and not whole:
        return (
            "x: inputs are floating-point numbers, but the network's embedding takes whole "
            f"numbers: give x as integers ({said})"
        )
    if whole and any(word in said for word in ("dtype", "scalar type", "Input type")):
        return (
            "x: inputs are whole numbers, but the network takes floating-point ones: give x as "
            f"floats, for example x.astype('float32') ({said})"
        )
    if any(words in said for words in ELSEWHERE):
        return (
            f"Net: forward failed ({said}): leave .cuda() and .to(...) out of it, as "
            "engine.device says where everything is computed; make new tensors on x.device"
        )
    if "does not require grad" in said:
        return (
            f"Net: forward differentiates, and evaluations turn gradients off ({said}): wrap what "
            "it differentiates in `with torch.enable_grad():`, and begin that with "
            "x = x.requires_grad_()"
        )
    if of_code:  # which may as well be a slip in forward
        return f"Net: forward failed for inputs of shape {shape} ({said})"
    flat = "; begin it with nn.Flatten()" if "mat1 and mat2" in said and x.dim() > 2 else ""
    return f"the network does not take inputs of shape {shape}{flat} ({said})"
