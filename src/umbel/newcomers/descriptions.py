"""Descriptions of clients' inputs, and the clusters of newcomers without labels by them.

A run's clients are described when descriptions are first needed, and the descriptions are kept in
the run's folder. After that the run's data are no longer needed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import comb, factorial, prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.work import Description
from umbel.data.splits import typed
from umbel.flow import Flow
from umbel.folder import tensor_files
from umbel.folder.identity import RUN, check_identity, identity
from umbel.run.rounds import Rounds, asked
from umbel.seeds import Stream, seed_of
from umbel.server.ask import Context
from umbel.summary import few, in_short

MODELS = 8
"""Number of untrained models that describe inputs."""

COMPONENTS = 20
"""Largest number of principal components used to tell clusters apart."""

SHUFFLES = 199
"""Number of random clusterings for the permutation test."""

ALPHA = 0.01
"""Largest p-value with which inputs count as telling the clusters apart."""

FEWEST_DIVISIONS = 100
"""Ways to divide clients below which no permutation gives a p-value as small as `ALPHA`."""

FEWEST_INPUTS = 5
"""Fewest inputs of a newcomer that give a meaningful mean and deviation."""

FILE = "descriptions.safetensors"

ROUNDING = 1e-6
"""A deviation that is a smaller share of the largest is a rounding error of float32."""

LABELS = "give newcomers some labels, and leave out --unlabelled (labelled=False)"

HOW_TO_REPAIR = "remove it, and it will be made again from the run's data"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Descriptions:
    """Clients with descriptions of their inputs."""

    clients: Tensor  #: (N,) who answered
    table: Tensor  #: (N, D)

    __repr__ = in_short


def described(run: Rounds, net: Net, seed: int, missing: Tensor | None = None) -> Descriptions:
    """Describe the training inputs of clients of a run, by untrained models of its own seed.

    All clients are asked, or those that are `missing`, of whom some may not answer. A warning names
    those without a usable reply.
    """
    models = torch.stack([net.new(seed_of(seed, Stream.ADVICE, n)) for n in range(MODELS)])
    work = Description(_width(run, net, models[0]))
    context = run.context(0, 1)
    those = context.everyone if missing is None else context.asking(missing, optional=True)
    return asked(run, _ask(models, work, those), "inputs not described")


def _width(run: Rounds, net: Net, theta: Tensor) -> int:
    """The number of outputs of a model, which need not be that of classes or target values."""
    first = run.federation.train.x[:1]
    # A deployed run has zeros in place of an example, which may be of another type.
    for x in (typed(first, net.dtype), first.long()):
        with suppress(Exception):  # whatever a module raises
            return Description.width(net, theta, x)
    return run.federation.num_outputs


def _ask(models: Tensor, work: Description, ctx: Context) -> Flow[Descriptions]:
    replies = yield ctx.request(work, {"models": models})
    table = torch.cat([replies.columns["mean"], replies.columns["deviation"]], 1)
    return Descriptions(clients=replies.clients, table=table)


def save(folder: Path, found: Descriptions) -> None:
    """Keep the descriptions of a run's clients in its folder."""
    tensors = {"clients": found.clients, "table": found.table}
    tensor_files.write(folder / FILE, tensors, {RUN: identity(folder, rounds=False)})


def load(folder: Path) -> Descriptions | None:
    """Read the descriptions of a run. Raises `UsageError` if they are damaged."""
    file = folder / FILE
    if not file.is_file():
        return None
    advice = f"; {HOW_TO_REPAIR}"
    with tensor_files.reading(file, "not the descriptions that were written", advice) as (
        opened,
        header,
    ):
        check_identity(file, header.get(RUN), folder, rounds=False)
        return Descriptions(**tensor_files.tensors_in(opened))


def with_earlier(found: Descriptions, earlier: Descriptions | None) -> Descriptions:
    """The descriptions that were found, and earlier ones of clients who did not answer again.

    Earlier ones of another width, as other versions of umbel make them, are left out.
    """
    if earlier is None or earlier.table.shape[1:] != found.table.shape[1:]:
        return found
    silent = ~torch.isin(earlier.clients, found.clients)
    clients = torch.cat([found.clients, earlier.clients[silent]])
    table = torch.cat([found.table, earlier.table[silent]])
    order = clients.argsort()
    return Descriptions(clients=clients[order], table=table[order])


def placed(known: Floats, clusters: Ints, new: Floats, count: int, seed: int) -> Floats:
    """(N, K) probability of each cluster of the `known` descriptions for each of the `new` ones.

    Clusters are modelled as normal distributions with a common covariance. Raises `UsageError` if
    no client of a cluster is known, if clients of a cluster do not differ, or if inputs do not tell
    the clusters apart: if clusters differ only in labels given inputs, no rule without labels can.
    """
    from scipy.special import softmax
    from sklearn.covariance import ledoit_wolf

    sizes = np.bincount(clusters, minlength=count)
    _check_none_is_empty(sizes)
    if count == 1:
        return np.ones((len(new), 1))
    scores, of_new = _components(known, new)
    chance = _chance(scores, clusters, np.random.default_rng(seed))
    if chance > ALPHA:
        raise UsageError(
            "inputs do not tell this run's clusters apart for sure (a p-value of "
            f"{chance:.2g}, above {ALPHA:g}): clusters that differ in labels given inputs can't be "
            f"found without labels; {LABELS}"
        )
    means = np.stack([scores[clusters == cluster].mean(0) for cluster in range(count)])
    within = scores - means[clusters]
    noise = ledoit_wolf(within, assume_centered=True)[0] * len(known) / (len(known) - count)
    _check_varies(noise, scores)
    gaps = of_new[:, None] - means
    far = np.einsum("nki,ij,nkj->nk", gaps, np.linalg.inv(noise), gaps)
    likely: Floats = softmax(-far / 2 + np.log(sizes), axis=1)
    return likely


def _check_varies(noise: Floats, scores: Floats) -> None:
    """Raise `UsageError` if the variance within clusters is that of rounding errors alone."""
    if np.linalg.eigvalsh(noise)[0] <= ROUNDING**2 * scores.var(0).max():
        raise UsageError(
            "the clients of each cluster have the same inputs, so that nothing tells how far from "
            f"them a newcomer's may be; {LABELS}"
        )


def _check_none_is_empty(sizes: Ints) -> None:
    """Raise `UsageError` unless each cluster has a client with a description."""
    empty = np.flatnonzero(sizes == 0).tolist()
    if empty:
        which = f"cluster{'' if len(empty) == 1 else 's'} {few(list(map(str, empty)))}"
        raise UsageError(
            f"no client of {which} has described its inputs yet, so a newcomer of it would not be "
            "noticed: start the same `flwr run` with describe=true again while such clients are "
            f"connected; or {LABELS}"
        )


def _components(known: Floats, new: Floats) -> tuple[Floats, Floats]:
    """Both in the principal components of the known descriptions, scaled to deviation 1."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    scale = StandardScaler().fit(known)
    most = max(1, min(COMPONENTS, len(known) // 2, known.shape[1]))
    if not known.std(0).any():
        return np.zeros((len(known), most)), np.zeros((len(new), most))
    parts = PCA(most, random_state=0).fit(scale.transform(known))
    inside, outside = (parts.transform(scale.transform(each)) for each in (known, new))
    return inside, outside


def _chance(scores: Floats, clusters: Ints, rng: np.random.Generator) -> float:
    """p-value: the probability that random clusters of these sizes are as far apart as these.

    By permutation, or for few clients by assuming a normal distribution.
    """
    ways = _divisions(np.bincount(clusters))
    if ways < FEWEST_DIVISIONS:
        return _normal_chance(scores, clusters)
    least = _between(scores, clusters) * (1 - 1e-9)
    shuffled = (rng.permutation(clusters) for _ in range(SHUFFLES))
    # Clusterings that differ only in the numbers of the clusters count as equal.
    others = [each for each in shuffled if not _same(each, clusters)]
    further = sum(_between(scores, each) >= least for each in others)
    return max(1 / ways, (1 + further) / (1 + len(others)))


def _divisions(sizes: Ints) -> int:
    """In how many ways clients can be divided into clusters of these sizes."""
    ways, left = 1, int(sizes.sum())
    for size in sizes.tolist():
        ways, left = ways * comb(left, size), left - size
    alike = np.bincount(sizes[sizes > 0])
    return ways // prod(factorial(count) for count in alike.tolist())


def _same(one: Ints, other: Ints) -> bool:
    """Return True if two rows of cluster numbers describe the same clustering."""
    pairs = len(set(zip(one.tolist(), other.tolist(), strict=True)))
    return pairs == len(set(one.tolist())) == len(set(other.tolist()))


def _normal_chance(scores: Floats, clusters: Ints) -> float:
    """The p-value of the ratio of variances between and within clusters, by Box (1954).

    Box's approximation replaces components of unequal variance by fewer components of equal
    variance.
    """
    from scipy.stats import f

    present, index, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    means = np.stack([scores[index == n].mean(0) for n in range(len(present))])
    within = scores - means[index]
    between = float((sizes[:, None] * (means - scores.mean(0)) ** 2).sum())
    inside, freedom = float((within**2).sum()), len(scores) - len(present)
    if freedom < 1 or not inside:
        return float(freedom < 1 or not between)
    cross = within.T @ within
    dims = inside**2 / float((cross**2).sum())
    ratio = between / (len(present) - 1) / (inside / freedom)
    return float(f.sf(ratio, dims * (len(present) - 1), dims * freedom))


def _between(scores: Floats, clusters: Ints) -> float:
    """Sum of squares of the clusters' means, weighted by their numbers of clients."""
    sums = np.zeros((int(clusters.max()) + 1, scores.shape[1]))
    np.add.at(sums, clusters, scores)
    sizes = np.maximum(np.bincount(clusters), 1)
    return float((sums**2 / sizes[:, None]).sum())
