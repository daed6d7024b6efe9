"""The message for a request that needs too much memory: its needs, and settings that help."""

from __future__ import annotations

from math import prod

from umbel.client.net import Net
from umbel.engines.replies.validation import models_type, promises
from umbel.engines.storage import Storage
from umbel.flow import Request
from umbel.summary import counted

MEBIBYTE = 2**20


def shortage(
    request: Request, net: Net, storage: Storage, per_example: int, at_once: int, processes: int
) -> str:
    """Describe the memory for a request, with clients computed `at_once`, and what to change.

    `per_example` is the number of values that one pass of an example keeps in the network.
    """
    size, clients = net.dtype.itemsize, len(request.clients)
    sizes = storage.split(request).sizes[request.clients.numpy()]
    largest = int(sizes.max()) if len(sizes) else 0
    footprint, (_, width) = (
        request.work.footprint(request.shapes),
        request.work.batching.size(largest),
    )
    # the received model, the trained one, its gradient and the step between them
    models = 4 * net.layout.num_values * footprint.models * size
    examples = footprint.examples(largest, width)
    examples = min(examples, net.way.micro_batch or examples)
    passes = 2 * examples * per_example * size
    rows = sum(prod(promise.shape) for promise in promises(request).values())
    replies = rows * models_type(request).itemsize * clients
    helps = []
    if at_once > 1:
        fewer = max(1, at_once // 2) * (models + passes) / MEBIBYTE
        helps.append(f"engine.memory_mb = {max(1, round(fewer))} (fewer clients at once)")
    if processes > 1:
        helps.append(f"engine.workers = 1 (now {processes})")
    if passes > models and examples > 1:
        helps.append(f"engine.micro_batch_size = {max(1, examples // 2)} (fewer examples at once)")
    if clients > 1 and replies > processes * at_once * (models + passes):
        helps.append("fewer clients a round (participation), or more nodes")
    helps.append("a smaller model")
    return (
        f"the models of one client take {_size(models)} in this request, and its examples "
        f"{_size(passes)}, for {counted(at_once, 'client')} at once"
        + (f" in each of {processes} processes" if processes > 1 else "")
        + f"; the replies take {_size(replies)}; what helps: {' or '.join(helps)}"
    )


def _size(count: int) -> str:
    return f"{count / MEBIBYTE:,.1f} MiB"
