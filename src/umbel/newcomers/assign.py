"""Clusters of clients that took no part in a run: by the method's rule, or without labels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from umbel.checks import UsageError, check
from umbel.client.batches import SLICE, Batch
from umbel.client.objectives import BINARY, CLASSIFICATION
from umbel.data.channel_scale import ChannelScale
from umbel.data.federation import Federation
from umbel.data.scenarios.folder import read_clients, read_inputs
from umbel.data.scenarios.watch import Watch
from umbel.data.scenarios.windows import RecordedWindows
from umbel.data.splits import Split, typed
from umbel.data.tables.encoding import Encoding, meaning_of
from umbel.data.tables.newcomers import read_newcomers
from umbel.data.tables.reading import holds_tables
from umbel.engines.choice import EngineSettings
from umbel.experiment.places import sources_of, whole
from umbel.folder import checkpoint, encoding_file
from umbel.folder.execution import opened
from umbel.folder.how_to_continue import NOT_HERE, inputs_on_the_roll, over_flower, way_on
from umbel.folder.identity import check_origin, origin
from umbel.folder.saved_run import SavedRun
from umbel.newcomers import descriptions
from umbel.newcomers.assignment import Assignment
from umbel.newcomers.confidence import Losses, confidences, example_losses
from umbel.newcomers.descriptions import Descriptions
from umbel.run.returned_values import check_columns
from umbel.run.rounds import Rounds
from umbel.settings import argument
from umbel.summary import few

log = logging.getLogger(__name__)

UNLABELLED = "1 - how likely by its inputs"
"""Meaning of a score for newcomers without labels."""

BY_LOSS = "no other cluster's model fits it better, by loss"
BY_INPUTS = "its inputs are of the cluster"


def federation_of(
    result: SavedRun, newcomers: Federation | Path | str, labelled: bool
) -> Federation:
    """The newcomers, read from files if necessary; tables and channels are encoded as in the run.

    Raises `UsageError` for examples that were encoded from a table in another way than the run's.
    """
    if not isinstance(newcomers, Path | str):
        newcomers = argument("newcomers", newcomers, Federation)
    path = result.folder.path
    encoding = encoding_file.read(path)
    scale = encoding if isinstance(encoding, ChannelScale) else None
    if isinstance(newcomers, Federation):
        own = whole(newcomers.encoding)
        if isinstance(own, ChannelScale):
            return _scaled(newcomers, scale, result)
        if own is not None and isinstance(encoding, Encoding) and not own.is_like(encoding):
            raise UsageError(f"newcomers: {_unlike(own, encoding, path)}")
        _check_like_the_sites(newcomers, path)
        return newcomers
    data = Path(newcomers)
    if not holds_tables(data):
        classes = result.made_for[0].num_classes
        if labelled:
            found = read_clients(data, classes if result.net.objective == CLASSIFICATION else None)
        else:
            found = _with_targets_that_fit(read_inputs(data, classes), result)
        return _scaled(found, scale, result)
    if not isinstance(encoding, Encoding):
        if over_flower(path):
            how = "give arrays in .npz files, encoded as the sites encode their rows"
            raise UsageError(f"{path}: {NOT_HERE} how sites encode their tables; {how}")
        how = f"give arrays in .npz files, or else remove clusters.csv and run {way_on(path)}"
        raise UsageError(f"{path}: lacks {encoding_file.FILE}: the run is not of a table; {how}")
    return read_newcomers(data, encoding, labelled)


def _unlike(own: Encoding, encoding: Encoding, path: Path) -> str:
    """Describe the difference of newcomers' encoding from the run's, with advice."""
    how = f'give the table itself: load("{path}").assign("new.csv")'
    if not own.has_tokenizer_of(encoding):
        if own.tokenizer == encoding.tokenizer:
            return (
                f"the tokenizer in {own.tokenizer} has changed since the run: bring the run's back"
            )
        mine, other = (each.tokenizer or "none" for each in (own, encoding))
        return f"the tokenizer of their texts is {mine}, and the run's {other}; {how}"
    if own.tokens != encoding.tokens:
        both = f"{own.tokens} token ids each, and the run's {encoding.tokens}"
        return f"their texts have {both}; {how}"
    return f"their table was scaled, and its classes numbered, by its own rows; {how}"


def _scaled(federation: Federation, scale: ChannelScale | None, result: SavedRun) -> Federation:
    """Scale inputs as the run's were scaled, if the newcomers have its channels.

    Raises `UsageError` where the run scaled its own, and nothing says how.
    """
    before = federation.encoding if isinstance(federation.encoding, ChannelScale) else None
    if scale is None:
        _check_scale_is_kept(result, before is not None)
    known = scale or before
    if known is None or federation.input_shape[:1] != (len(known.mean),):
        # examples that do not fit are refused later, together with the other checks of newcomers
        return federation

    def as_the_run(split: Split) -> Split:
        if before == scale:
            return split
        plain = split.x if before is None else before.undone(split.x)
        return replace(split, x=plain.float() if scale is None else scale(plain))

    train, test = as_the_run(federation.train), as_the_run(federation.test)
    return replace(federation, train=train, test=test, encoding=scale)


def _check_scale_is_kept(result: SavedRun, scaled_apart: bool) -> None:
    """Raise `UsageError` for a run of scaled recordings without the scale in its folder.

    The server of a run over Flower has none: it takes newcomers as they are, unless they were
    `scaled_apart`, by a scale of their own.
    """
    scenario, path = result.experiment.scenario, result.folder.path
    scaled = isinstance(scenario, Watch) or getattr(scenario, "scale", False)
    scaled = isinstance(scenario, Watch | RecordedWindows) and scaled
    if over_flower(path):
        how = "arrays that are scaled as the sites' are, without a scale of their own"
        if scaled_apart:
            raise UsageError(f"{path}: {NOT_HERE} how sites scaled their channels; give {how}")
        if scaled:
            log.warning("%s: newcomers are taken as %s", path, how)
    elif scaled:
        how = f"remove clusters.csv, and {way_on(path)} writes it"
        raise UsageError(f"{path}: lacks {encoding_file.FILE}, the scale of its channels; {how}")


def _check_like_the_sites(newcomers: Federation, path: Path) -> None:
    """Raise `UsageError` for a table unlike those of a run's sites, as far as its server knows."""
    own, sites = meaning_of(newcomers.encoding), inputs_on_the_roll(path)
    if own and sites and own != sites:
        raise UsageError(
            "newcomers: the columns of their table, their categories, the classes or the tokenizer "
            "are not those of the sites' tables: the same position of an example would mean "
            "different things; give arrays in .npz files, encoded as the sites encode their rows"
        )


def _with_targets_that_fit(federation: Federation, result: SavedRun) -> Federation:
    """Set targets to zeros, in the form of the run's: one or many per example."""
    made_for, net = result.made_for[0], result.net
    answered = net.objective == CLASSIFICATION and made_for.num_classes is not None
    try:
        outputs = net.outputs(net.new(seed=0), typed(federation.train.x[:1], net.dtype))
    except Exception:  # modules raise anything; what does not fit is refused with all newcomers
        return federation
    train, test = (
        replace(split, y=split.y.new_zeros(len(split.x), *outputs.shape[2 if answered else 1 :]))
        for split in (federation.train, federation.test)
    )
    return replace(federation, train=train, test=test)


def assign(result: SavedRun, newcomers: Federation) -> Assignment:
    """Find the cluster of each newcomer by the method's own rule."""
    run = _run_of(result, newcomers)
    assigned = run.assign(result.state, len(result.records))
    labels = torch.tensor([entry.label for entry in result.made_for])
    check_columns(assigned.scores, labels)  # clients may be served others than those of the state
    scores, clients = assigned.scores[:, labels], assigned.clients.tolist()
    names = tuple(newcomers.names[client] for client in clients)
    losses, chosen = _losses(result, newcomers, clients), scores.argmin(1).tolist()
    means = [float(mine[:, best].mean()) for mine, best in zip(losses, chosen, strict=True)]
    placed = Assignment(
        names,
        scores,
        assigned.meaning,
        losses=torch.tensor(means, dtype=torch.float64),
        run_losses=_losses_of_the_run(result),
    )
    if "loss" not in assigned.meaning:
        return placed
    sure = torch.tensor(confidences(losses, chosen), dtype=torch.float64)
    return replace(placed, confidence=sure, sure_of=BY_LOSS)


def _losses_of_the_run(result: SavedRun) -> tuple[float, float] | None:
    """The lowest and the highest test loss of the run's clients with their clusters' models.

    None if clients use other models, or if no client was evaluated.
    """
    if result.made_for[0].clients_use != "cluster":
        return None
    known = [client.loss for client in result.clients if client.loss is not None]
    return (min(known), max(known)) if known else None


def assign_unlabelled(
    result: SavedRun,
    newcomers: Federation,
    clients: Federation | None,
    data_dir: Path | str | None,
) -> Assignment:
    """Find the cluster of each newcomer by the description of its inputs.

    With very few inputs a description is mostly chance, and the confidence is that of a guess.
    """
    run = _run_of(result, newcomers)
    known = _of_the_run(result, clients, data_dir)
    new = _described(result, run)
    clusters = np.array(list(result.clusters.values()))[known.clients.numpy()]
    likely = torch.from_numpy(
        descriptions.placed(
            known.table.numpy(),
            clusters,
            new.table.numpy(),
            result.num_clusters,
            result.experiment.seed,
        )
    )
    names = tuple(newcomers.names[client] for client in new.clients.tolist())
    sizes = torch.from_numpy(newcomers.train.sizes)[new.clients]
    # The covariance is that of the run's clients, and says nothing of such a small sample.
    unsure = torch.full_like(likely[:, 0], 1 / result.num_clusters)
    sure = torch.where(sizes < descriptions.FEWEST_INPUTS, unsure, likely.max(1).values)
    return Assignment(names, 1 - likely, UNLABELLED, sure, BY_INPUTS)


def _of_the_run(
    result: SavedRun, clients: Federation | None, data_dir: Path | str | None
) -> Descriptions:
    """The descriptions of the run's own clients, as kept in the folder or made from their data."""
    folder = result.folder.path
    kept = descriptions.load(folder)
    if kept is not None:
        return kept
    if clients is None:
        try:
            clients = opened(result.folder, sources_of(folder, data_dir))[0].federation
        except UsageError as error:
            how = "give the run's federation: result.assign(..., labelled=False, clients=...)"
            raise UsageError(f"the run's own inputs are needed once: {error}; or {how}") from None
    names = list(result.clusters)
    if list(clients.names) != names:
        given, needed = few(clients.names), few(names)
        raise UsageError(f"clients: {given}, but the run's own are needed: {needed}")
    _check_own(result, clients)
    found = _described(result, _run_of(result, clients))
    try:
        descriptions.save(folder, found)
    except OSError as error:  # as of a run that nobody may change
        log.warning("descriptions of the run's clients could not be saved: %s", error)
    return found


def _check_own(result: SavedRun, clients: Federation) -> None:
    """Raise `UsageError` if examples differ from the run's, as far as it knows its own."""
    experiment, file = result.experiment, result.folder.file("checkpoint.safetensors")
    if over_flower(result.folder.path) or not file.is_file():
        return
    apart = experiment.personal
    divided = clients if apart is None else apart.set_apart(clients, experiment.seed)
    check_origin(file, checkpoint.header(file)["made"], origin(experiment, divided, result.net))


def _described(result: SavedRun, run: Rounds) -> Descriptions:
    return descriptions.described(run, result.net, result.experiment.seed)


def _run_of(result: SavedRun, federation: Federation) -> Rounds:
    """Make a run of these clients with the models of the result."""
    federation = alike(result, federation)
    made, given = result.experiment, result.experiment.engine
    # The run may be from another machine, so that only what bounds memory is taken over.
    engine = EngineSettings(memory_mb=given.memory_mb, micro_batch_size=given.micro_batch_size)
    method, net, seed = result.algorithm, result.net, made.seed
    run: Rounds = Rounds(method, federation, net, seed=seed, engine=engine, limits=made.limits)
    return run


def _losses(result: SavedRun, newcomers: Federation, clients: Sequence[int]) -> Losses:
    """The loss of each cluster's model on each of these newcomers' examples with labels."""
    net, kept = result.net, result.folder.models
    models = [kept.theta(cluster, net) for cluster in range(result.num_clusters)]
    width = min(SLICE, result.experiment.engine.micro_batch_size or SLICE)
    batches = (Batch(*newcomers.train.typed(client, net.dtype)) for client in clients)
    return [example_losses(net, models, batch, width) for batch in batches]


def alike(result: SavedRun, newcomers: Federation) -> Federation:
    """The newcomers with the run's number of classes, as labels of some may not occur among them.

    Raises `UsageError` where their examples are not of the run's kind.
    """
    made_for = result.made_for[0]
    # All newcomers have one form, so that only the first is checked.
    first, shape = f"client {newcomers.names[0]}", newcomers.input_shape
    expected = f"{made_for.input_shape}, the run's"
    check(shape == made_for.input_shape, f"{first}: shape of an input", shape, expected)
    if result.net.objective == BINARY:
        # Answers may be of either kind, and are checked where the model is tried on them.
        return newcomers
    kinds = ("whole numbers, as class labels are", "floating-point numbers")
    given, wanted = (kinds[n is None] for n in (newcomers.num_classes, made_for.num_classes))
    check(given == wanted, f"{first}: y", given, f"{wanted}, as in the run")
    if result.net.objective != CLASSIFICATION:  # other whole numbers may be amounts
        return newcomers
    fine = (newcomers.num_classes or 0) <= (made_for.num_classes or 0)
    expected = f"at most {made_for.num_outputs}, as in the run"
    check(fine, "number of classes", newcomers.num_classes, expected)
    return replace(newcomers, num_classes=made_for.num_classes)
