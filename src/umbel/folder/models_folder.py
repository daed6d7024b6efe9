"""The models of a finished run on disk: one for each cluster, and clients' own models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from umbel.checks import UsageError, check
from umbel.client.mixture import Mixture
from umbel.client.net import Net
from umbel.data.form import Form
from umbel.experiment.toml_file import structured
from umbel.files.atomic import PARTIAL, link, remove_partial, settle
from umbel.folder.how_to_continue import putting_right
from umbel.folder.identity import RUN, check_identity, identity
from umbel.folder.tensor_files import Header, reading, tensors_in, write
from umbel.run.rounds import Rounds
from umbel.run.scores import ClientScores
from umbel.summary import counted

OwnModels = Literal["cluster", "personal", "mixture", "experts"]
"""The kind of model that a client uses.

It is its cluster's model, a personal one, a mixture of several models, or a model whose adapters
are mixtures of experts.
"""

MIXING = ("mixture", "experts")
"""Kinds of models that are made of several clusters' models."""

CLIENTS = "clients.safetensors"

CLUSTERS = "clusters"
"""Key of the clusters whose model a file holds, in its header."""


@dataclass(frozen=True, kw_only=True)
class MadeFor(Form):
    """The header of a cluster's file: the form of examples that the model fits, and its clients."""

    label: int  # the cluster as the method's state calls it
    input_type: str = "float32"
    largest: int | None = None  # input, where inputs are whole numbers
    clients_use: OwnModels
    frozen: str = ""  # digest of what the network has besides, in no model
    withheld: str = ""  # why the model is not in the file; "": it is


@dataclass(frozen=True)
class ModelsFolder:
    """The folder `models` of one run."""

    path: Path

    def write(self, run: Rounds, scores: ClientScores) -> None:
        """The model of every cluster; personal models and mixtures in one table of their own.

        Clusters that share a model share a file, which has a name for each of them.

        The model saved for a cluster is the heaviest component if clients use mixtures, the model
        before adaptation if they use personal models, and the cluster's own expert alone if they
        mix experts. The file of a model of fewer than `limits.min_release` clients has a header
        that says so, and no tensors.
        """
        self.path.mkdir(exist_ok=True)
        # Replaced one by one: of a run until stopped, another process may serve the models.
        old = {*self.path.glob("*.safetensors"), *self.path.glob(PARTIAL)}
        firsts = _firsts(scores)
        rows = scores.models.index[firsts].tolist()
        labels = scores.labels[firsts].tolist()
        own, used = _own_models(scores)
        withheld = _withheld(scores, rows, run.limits.min_release, used)
        if own and withheld:
            gone = [cluster for cluster, row in enumerate(rows) if row in withheld]
            own = {} if used in MIXING else _without(own, np.isin(scores.clusters, gone))
        run_of = identity(self.path.parent)
        fits = made_for(run, labels[0], used)  # once, as it goes through all inputs
        # One file for each model: many clusters may share one, as before FLACC separates them.
        for row, (cluster, *others) in _sharing(rows).items():
            tensors = run.net.layout.tensors(run.net.settled(scores.models.table[row]))
            tensors = {} if row in withheld else tensors
            header = asdict(replace(fits, label=labels[cluster], withheld=withheld.get(row, "")))
            header = {n: v for n, v in header.items() if v or n not in ("frozen", "withheld")}
            header |= {RUN: run_of, CLUSTERS: [cluster, *others]}
            if others:
                header["labels"] = {str(each): labels[each] for each in (cluster, *others)}
            whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
            write(self.file(cluster), whole, header, settled=False)
            for each in others:
                link(self.file(cluster), self.file(each))
        if own:
            said: Header = {RUN: run_of}
            said |= {"experts": scores.served.experts} if used == "experts" else {}
            write(self.path / CLIENTS, own, said, settled=False)
            old.discard(self.path / CLIENTS)
        for left in old.difference(map(self.file, range(len(labels)))):
            remove_partial(left)
        settle(self.path)

    def file(self, cluster: int) -> Path:
        """Return the path of a cluster's model."""
        return self.path / f"cluster-{cluster}.safetensors"

    def made_for(self, cluster: int) -> MadeFor:
        """Read the form of examples that a cluster's model fits, without the model itself."""
        with self._opened(cluster) as (_, header):
            own = header.pop("labels", {}).get(str(cluster))  # of clusters that share the file
            header = header if own is None else {**header, "label": own}
            found: MadeFor = structured(header, MadeFor)
            if min(*found.input_shape, found.num_outputs, found.num_classes or 1, 1) < 1:
                raise ValueError("a size that is not positive")
            if not isinstance(getattr(torch, found.input_type, None), torch.dtype):
                raise ValueError("inputs of a type that tensors do not have")
            return found

    def model(self, cluster: int) -> dict[str, Tensor]:
        """The tensors of a cluster's model by name."""
        with self._opened(cluster) as (opened, _):
            return tensors_in(opened)

    def theta(self, cluster: int, net: Net) -> Tensor:
        """Read a cluster's model as one vector (P,), in the order of the network's layout."""
        tensors = self.model(cluster)
        self.check_frozen(net)
        entries = net.layout.weights + net.layout.rest
        for entry in entries:
            there = tensors.get(entry.name)
            shape = "no such tensor" if there is None else tuple(there.shape)
            expected = f"{tuple(entry.shape)}, as the network has it"
            what = f"{self.file(cluster)}: {entry.name}"
            check(shape == tuple(entry.shape), what, shape, expected)
        return torch.cat([tensors[entry.name].flatten() for entry in entries])

    def check_frozen(self, net: Net) -> None:
        """Raise `UsageError` if the models were trained with other frozen values than a net's.

        Only the first cluster's file is checked, as all have the same.
        """
        with self._opened(0) as (_, header):
            digest = header.get("frozen", "")
        if digest != net.frozen_digest:
            raise UsageError(
                f"{self.path.parent}: the frozen values of the network are not those that the "
                "run was trained with"
            )

    def personal(self, client: int) -> Tensor:
        """The personal model (P,) of the client of this number."""
        with self._opened() as (opened, _):
            row = int(opened.get_slice("index")[client])
            # Only this client's row is read: the table may be far larger than memory.
            model: Tensor = opened.get_slice("models")[row]
            return model

    def module(self, net: Net, client: int, used: OwnModels) -> nn.Module:
        """Build the model that a client uses in place of its cluster's: `used` is its kind."""
        if used == "mixture":
            models, weights = self.mixture(client)
            self._check_size(models.shape[1:], net)
            return Mixture(net.modules_of(models), weights, net.objective).eval()
        with self._opened() as (_, header):
            experts = 1 if used == "personal" else int(header["experts"])
        routed = net if used == "personal" else net.routed(experts)
        theta = self.personal(client)
        self._check_size(theta.shape, routed)
        return routed.module(theta)

    def _check_size(self, shape: torch.Size, net: Net) -> None:
        expected = f"({net.layout.num_values},), the shape of the network's models"
        fine = shape == (net.layout.num_values,)
        check(fine, f"{self.path / CLIENTS}: a model", tuple(shape), expected)

    def mixture(self, client: int) -> tuple[Tensor, Tensor]:
        """The models (K, P) that all clients mix, and this client's weight (K,) of each."""
        with self._opened() as (opened, _):
            return opened.get_tensor("models"), opened.get_slice("weights")[client]

    @contextmanager
    def _opened(self, cluster: int | None = None) -> Iterator[tuple[Any, Header]]:
        """The open file of a cluster, or of the clients' own models, and its header.

        Raises `UsageError` if it is missing, not what it should be, or in another file's place.
        """
        file = self.path / CLIENTS if cluster is None else self.file(cluster)
        with putting_right(self.path.parent):
            if not file.is_file():
                raise UsageError(f"{file}: missing")
            with reading(file, "not a readable model of this version") as (opened, header):
                check_identity(file, header.pop(RUN, None), self.path.parent)
                clusters = header.pop(CLUSTERS, [cluster])
                if cluster is not None and cluster not in clusters:
                    whose = ", ".join(map(str, clusters))
                    raise UsageError(f"{file}: holds the model of cluster {whose}")
                yield opened, header


def _sharing(rows: Sequence[int]) -> dict[int, list[int]]:
    """Return the clusters that share each row of a table of models; `rows` (K,) are their rows."""
    clusters: dict[int, list[int]] = {}
    for cluster, row in enumerate(rows):
        clusters.setdefault(row, []).append(cluster)
    return clusters


def _withheld(
    scores: ClientScores, rows: Sequence[int], least: int, used: OwnModels
) -> dict[int, str]:
    """Return the rows of models of fewer than `least` clients, and the reason for each.

    `rows` (K,) are those of the clusters' models. Where clients mix, each mixture holds all models:
    one that is withheld withholds all.
    """
    sizes = np.bincount(scores.clusters[scores.clusters >= 0])
    counts = {row: int(sizes[clusters].sum()) for row, clusters in _sharing(rows).items()}
    where = ""
    if used in MIXING:
        where, counts = "clients mix models, one of ", dict.fromkeys(counts, min(counts.values()))
    few = {row: counted(count, "client") for row, count in counts.items() if count < least}
    why = f"fewer than limits.min_release = {least}"
    return {row: f"{where}{clients}, {why}" for row, clients in few.items()}


def _without(own: Mapping[str, Tensor], gone: NDArray[np.bool_]) -> dict[str, Tensor]:
    """Personal models without those of the clients that are `gone` (M,), whose row is -1."""
    index, kept = own["index"], torch.from_numpy(~gone)
    rows, of_kept = torch.unique(index[kept], return_inverse=True)
    return {
        "models": own["models"][rows],
        "index": torch.full_like(index, -1).masked_scatter(kept, of_kept),
    }


def made_for(run: Rounds, label: int, used: OwnModels) -> MadeFor:
    """Return the form of examples that the models of this run fit."""
    x = run.divided.train.x
    whole = not x.is_floating_point()
    return MadeFor(
        **vars(run.divided.form(run.net.objective)),
        label=label,
        input_type=str(x.dtype if whole else run.net.dtype).removeprefix("torch."),
        largest=int(x.max()) if whole and x.numel() else None,
        clients_use=used,
        frozen=run.net.frozen_digest,
    )


def _firsts(scores: ClientScores) -> NDArray[np.int64]:
    """(K,) the first client of each cluster; clients that are no members are in none."""
    clusters, firsts = np.unique(scores.clusters, return_index=True)
    return firsts[clusters >= 0]


def _own_models(scores: ClientScores) -> tuple[dict[str, Tensor], OwnModels]:
    """Return the tensors of clients' own models, if they have such, and the kind in use."""
    served = scores.served
    if served.weights is not None:
        models, weights = served.models.table.contiguous(), served.weights.contiguous()
        return {"models": models, "weights": weights}, "mixture"
    # (M,) the row that each client would be served if its cluster's members all had one model.
    members = np.flatnonzero(scores.clusters >= 0)
    common = scores.models.index[torch.from_numpy(_firsts(scores)[scores.clusters[members]])]
    if served.adapted_from is None and torch.equal(served.models.index[members], common):
        return {}, "cluster"
    rows, index = torch.unique(served.models.index, return_inverse=True)
    own = {"models": served.models.table[rows], "index": index}
    return own, "personal" if served.experts == 1 else "experts"
