"""The `ClientApp` of a node with one or more clients, which does the work that is requested."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs
import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.client.net import Net
from umbel.client.work import MEMORY, Work
from umbel.data.conventions import SAMPLED, Written, written
from umbel.data.federation import Federation
from umbel.data.npz import client_files
from umbel.data.scenarios.folder import read_clients, unreadable
from umbel.data.splits import Split
from umbel.data.tables.encoding import meaning_of
from umbel.engines import make_engine
from umbel.engines.clipping_and_noise import Private
from umbel.engines.replies.validation import OF_MODELS
from umbel.experiment.toml_file import plain
from umbel.flow import Engine, Request, Rows
from umbel.flower import messages
from umbel.flower.admission import check_work, count
from umbel.flower.errors import IN_THE_LOG, ForgottenError, RefusedError, reason, told
from umbel.flower.expected_form import check_frozen, model_name
from umbel.flower.handshake import (
    VERSIONS,
    Site,
    SiteForm,
    called,
    check_greeting,
    introduce,
    own_versions,
    versions_in,
)
from umbel.flower.ledger import OF_A_SITE, Ledger
from umbel.flower.limits import NodeLimits, engine_here, number_in, truth_in
from umbel.flower.memory import memorise, recall
from umbel.result.run import Experiment, read
from umbel.settings import argument, whole_path
from umbel.version import ONE_RELEASE, differing

log = logging.getLogger(__name__)

Load = Callable[[Context, Experiment], Federation]
"""A function that a site writes, and that returns the examples of the site's own clients."""

DESCRIBE = "describe"
"""The node's setting that lets clients describe their inputs, for newcomers without labels."""

GONE = "its data are no longer at this node, or can't be read there"
"""Reason for a client that the node had announced and no longer has."""


@dataclass(frozen=True)
class Node:
    """A node at work."""

    experiment: Experiment
    federation: Federation
    net: Net
    engine: Engine
    memory: Path

    @classmethod
    def of(
        cls, experiment: Experiment, federation: Federation, memory: Path, greeted: bool = False
    ) -> Node:
        """Build the node for these clients; the network was tried if the node was `greeted`."""
        federation = experiment.with_validation(federation)
        # other nodes may have validation examples, and all get the same requests
        if federation.validation is None:
            federation = replace(federation, validation=federation.train.without_examples())
        net = experiment.net(federation)
        poisoned = experiment.attack.poisoned(federation, experiment.seed, part=True)
        engine: Engine = make_engine(net, poisoned, experiment.engine, greeted)
        if experiment.privacy.clip is not None:
            place, names = memory.with_suffix(""), federation.names
            # A name that changes with the network, its frozen values, its objective and precision.
            said = {name: plain(experiment)[name] for name in ("model", "objective")}
            what = [said, experiment.engine.precision, model_name(net), net.frozen_digest]
            trained = hashlib.sha256(json.dumps(what).encode()).hexdigest()
            ledger = Ledger(place, names, experiment.privacy, federation.train, trained)
            engine = Private(engine, experiment.privacy, ledger.grant)
        return cls(experiment, federation, net, engine, memory)

    def has(self, step: int) -> bool:
        """True unless the site's examples of this step of time are to be loaded."""
        steps = self.federation.train.steps
        return steps is None or step < steps.shape[1]

    @property
    def private(self) -> bool:
        """True if noise protects the updates of this node's clients."""
        return self.experiment.privacy.clip is not None

    def site(self) -> Site:
        """Describe this site to the server; under privacy, numbers of examples are left out."""
        federation = self.federation
        groups, validation = federation.groups, federation.validation
        timed = federation.train.steps is not None

        def told(split: Split) -> list[int]:
            sizes = split.sizes
            counts: list[int] = (sizes.clip(max=1) if self.private else sizes).tolist()
            return counts

        return Site(
            federation.names,
            # A client may have no examples before a later step of time.
            [1] * federation.num_clients if self.private or timed else told(federation.train),
            told(federation.test),
            # The server could not follow concepts that change.
            None if groups is None or timed else groups.tolist(),
            SiteForm(
                **vars(federation.form(self.net.objective)),
                model=model_name(self.net),
                frozen=self.net.frozen_digest,
            ),
            told(validation) if validation is not None and len(validation.x) else None,
            # Short lists of categories could be guessed from it.
            "" if self.private else meaning_of(federation.encoding),
            self._largest_input(),
            self._written(),
            self.facts(range(federation.num_clients)),
        )

    def facts(self, clients: Iterable[int]) -> list[str]:
        """Return a text for each client that changes with its examples; none under privacy."""
        train, test = self.federation.train, self.federation.test
        new = train.steps is not None  # examples come in every step
        return [] if self.private or new else [_facts(train, test, client) for client in clients]

    def _largest_input(self) -> int | None:
        """Return the largest input if inputs are whole numbers, else None; 0 under privacy."""
        x = self.federation.train.x
        if x.is_floating_point():
            return None
        return 0 if self.private or not x.numel() else max(0, int(x.max()))

    def _written(self) -> Written | None:
        """Return the type and scale of inputs, in round numbers; None under privacy."""
        x = self.federation.train.x
        stored = "float" if x.is_floating_point() else "whole"
        return None if self.private else written(x, stored, SAMPLED)

    def work(self, asked: messages.Asked, limits: NodeLimits) -> RecordDict:
        """Do the work. Raises `RefusedError` if it can't be done, or would take too much."""
        try:
            return self._done(asked, limits)
        except RefusedError:
            raise
        except Exception as error:
            log.warning("a request failed at this node: %s", reason(error))
            raise RefusedError(told(error, self.private)) from error

    def _done(self, asked: messages.Asked, limits: NodeLimits) -> RecordDict:
        check_frozen(asked.frozen, self.net.frozen_digest, "this node's")
        number = {name: n for n, name in enumerate(self.federation.names)}
        if twice := [name for name, count in Counter(asked.clients).items() if count > 1]:
            raise RefusedError(f"client {twice[0]!r} is asked for twice")
        gone = [name for name in asked.clients if name not in number]
        if len(gone) == len(asked.clients) > 0:
            raise RefusedError(f"client {gone[0]!r}: {GONE}")
        # Clients that have left the site's data are refused; its other clients work.
        asked = asked.pick([n for n, name in enumerate(asked.clients) if name in number])
        # Before any computation: a wrong size or type would fail inside the network.
        for name, tensor in {**asked.shared, **asked.tables}.items():
            self._check_model(name, tensor, asked.work)
        clients = torch.tensor([number[name] for name in asked.clients], dtype=torch.long)
        each = {n: Rows(table, torch.tensor(asked.index[n])) for n, table in asked.tables.items()}
        if asked.remembered:
            each[MEMORY] = Rows(self._recalled(asked), torch.arange(len(clients)))
        request = Request(asked.work, clients, asked.seeds, asked.shared, each)
        small = limits.refused(request, self.federation, exact=not self.private)
        # Clients with too few examples for a step are refused; the others work.
        if small:
            if len(small) == len(clients):
                raise RefusedError(next(iter(small.values())))
            able = [n for n, client in enumerate(clients.tolist()) if client not in small]
            request = request.pick(torch.tensor(able))
        limits.check(request, self.federation, exact=not self.private)
        with limits.in_time():
            replies = self.engine.send(request)
        names = [self.federation.names[number] for number in replies.clients.tolist()]
        # Written before the answer is sent: the server asks later by the digests of these rows.
        if MEMORY in replies.columns:
            memorise(self.memory, dict(zip(names, replies.columns[MEMORY], strict=True)))
        unable = {**small, **replies.refused}
        refused = {self.federation.names[n]: why for n, why in unable.items()}
        refused |= dict.fromkeys(gone, GONE)
        facts = self.facts(replies.clients.tolist())
        return messages.answer(names, replies.columns, refused, facts)

    def _check_model(self, name: str, tensor: Tensor, work: Work) -> None:
        if name not in OF_MODELS:
            return
        sizes, dtype = work.widths(self.net.layout), self.net.dtype
        if tensor.dim() == 0 or tensor.shape[-1] not in sizes or tensor.dtype != dtype:
            found, size = f"{tuple(tensor.shape)} of {tensor.dtype}", " or ".join(map(str, sizes))
            raise RefusedError(f"{name}: {found}, but a model has {size} values of {dtype}")

    def _recalled(self, asked: messages.Asked) -> Tensor:
        rows, kept = [], recall(self.memory, asked.clients)
        for client, wanted in zip(asked.clients, asked.remembered, strict=True):
            if wanted not in kept[client]:
                raise ForgottenError(f"client {client!r}: its memory is not kept here")
            rows.append(kept[client][wanted])
        return torch.stack(rows)


def client_app(experiment: Path | str, load: Load, own_works: Collection[str] = ()) -> ClientApp:
    """An app for SuperNodes. `load` returns the clients of the node that it is called on.

    `experiment` is the TOML file that the server has, too: its model and its engine are used, and
    only works that its method declares are done (`Algorithm.sends`). Of works outside the package
    only those in `own_works`, as "module:Name", are done, and of metrics only those of the
    experiment.
    """
    app, nodes = ClientApp(), dict[int, Node]()

    def node(context: Context, step: int = 0, greeted: bool = True) -> Node:
        # A deployed node starts a process for each message; simulated nodes share one process.
        if context.node_id not in nodes or not nodes[context.node_id].has(step):
            settings = read(Path(experiment))
            engine = engine_here(context.node_config, settings.engine)
            settings = replace(settings, engine=engine)
            federation = _loaded(load, context, settings)
            memory = _memory(context, settings)
            nodes[context.node_id] = Node.of(settings, federation, memory, greeted)
        return nodes[context.node_id]

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        def introduced() -> RecordDict:
            check_greeting(message.content)
            if unlike := differing(versions_in(message.content)):
                log.warning("the server has %s: %s", unlike, ONE_RELEASE)
            # A wrong setting is refused before examples are read, and not in the first round.
            called(context.node_config)
            NodeLimits.of(context.node_config)
            truth_in(context.node_config, DESCRIBE, False)
            return introduce(node(context, greeted=False).site())

        reply = _named(_answered(message, introduced, Path(experiment)), context)
        reply.content[VERSIONS] = own_versions()  # refusals have them, too
        return reply

    @app.query("work")
    def work(message: Message, context: Context) -> Message:
        def done() -> RecordDict:
            limits = NodeLimits.of(context.node_config)
            allowed = {*own_works, *(node(context).experiment.metrics or ())}
            # All checks come before the work, and a request that fails later is counted, too.
            asked = messages.asked_in(message.content, limits.max_bytes, allowed)
            here = node(context, asked.step)
            check_work(asked.work, here.experiment, truth_in(context.node_config, DESCRIBE, False))
            most, clients = limits.max_requests, asked.clients
            count(context.state, clients, asked.seeds, most, here.experiment)
            return here.work(asked, limits)

        return _answered(message, done, Path(experiment))

    return app


def _answered(message: Message, content: Callable[[], RecordDict], experiment: Path) -> Message:
    """Return the reply with this content, or with the reason why there is none."""
    try:
        found = content()
    except RefusedError as error:
        log.warning("refused: %s", reason(error))
        found = messages.refusal(error)
    except Exception as error:  # a fault of the site, which the server is told
        log.exception("this node does not work")
        found = messages.refusal(error, _is_private(experiment))
    return Message(found, reply_to=message)


def _named(reply: Message, context: Context) -> Message:
    """Add the site's name, if it has a valid one, to a reply; refusals have it, too."""
    with suppress(RefusedError):
        reply.content.update(called(context.node_config))
    return reply


def _loaded(load: Load, context: Context, experiment: Experiment) -> Federation:
    """Load a site's examples. Raises `RefusedError`, whose text does not reveal their content."""
    try:
        return load(context, experiment)
    except Exception as error:
        log.exception("the examples of this node's clients can't be read")
        kind = type(error).__name__
        raise RefusedError(f"its examples can't be read: {kind}{IN_THE_LOG}") from error


def _is_private(experiment: Path) -> bool:
    """Return True if the file asks for privacy, or can't be read: then nothing is revealed."""
    try:
        return read(experiment).privacy.clip is not None
    except (UsageError, OSError):
        return True


def site_clients(context: Context, test_fraction: float = 0.2) -> Federation:
    """The clients of the folder that the node's setting `data` names: a `.npz` file for each.

    Where files have no test examples, a random `test_fraction` of each is set apart, which depends
    on its name alone: files that come or go while a run lasts change no other's. Labels are of as
    many classes as the setting `classes` says; without it, of one more than the largest label
    there. A file that can't be read costs its own client only: the log names it. Raises
    `UsageError` if that is true of all files, or if they do not fit each other.
    """
    config = context.node_config
    classes = number_in(config, "classes", int) if "classes" in config else None
    fraction = argument("test_fraction", test_fraction, float)
    path = whole_path(str(config["data"]))
    try:
        return read_clients(path, classes, fraction, drawn_by_name=True)
    except UsageError:
        bad = unreadable(path, classes) if path.is_dir() else {}
        if not 0 < len(bad) < len(client_files(path) if path.is_dir() else ()):
            raise
    for file, why in bad.items():
        said = "client %r is left out, as its file can't be read: %s"
        log.error(said, file.stem, why)
    return read_clients(path, classes, fraction, drawn_by_name=True, without=bad)


def slice_of(context: Context, federation: Federation) -> Federation:
    """This node's part of a simulated federation: every n-th client, of n nodes.

    The node's settings `partition-id` and `num-partitions` say which, as Flower's simulation and
    `flower-supernode --node-config` set them.
    """
    config = context.node_config
    part, of = (number_in(config, key, int) for key in ("partition-id", "num-partitions"))
    check(of >= 1, "num-partitions", of, "1 or more")
    check(0 <= part < of, "partition-id", part, f"in 0 to {of - 1}, as num-partitions is {of}")
    return federation.pick(list(range(part, federation.num_clients, of)))


def _facts(train: Split, test: Split, client: int) -> str:
    """Numbers of examples, and a digest of how often each label occurs."""
    labels = [split.of(client)[1] for split in (train, test)]
    said = f"{len(labels[0])} training and {len(labels[1])} test examples"
    if train.y.is_floating_point():
        return said
    counts = [torch.unique(y, return_counts=True) for y in labels]
    what = repr([each.tolist() for pair in counts for each in pair])
    return f"{said}, label counts {hashlib.sha256(what.encode()).hexdigest()[:8]}"


def _memory(context: Context, experiment: Experiment) -> Path:
    config = context.node_config
    given, part = config.get("memory-dir"), config.get("partition-id")
    # A node's number changes with each start, and would begin a new ledger each time.
    known = given is not None or part is not None or experiment.privacy.clip is None
    if not known:
        expected = "a folder of this node alone, in which [privacy] keeps its ledger and secret"
        raise RefusedError(f"memory-dir: None is not {expected}")
    place = platformdirs.user_state_path("umbel") / "flower" if given is None else given
    folder = whole_path(str(place))
    end = OF_A_SITE if part is None else f"-{part}"
    return folder / f"{experiment.name}-seed{experiment.seed}{end}.safetensors"
