from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

import umbel
from tests.federations import blobs
from umbel import (
    IFCA,
    Adam,
    Averaging,
    EngineSettings,
    Experiment,
    Faults,
    FedAvg,
    Limits,
    LocalTraining,
    Net,
    Run,
    Sattler,
    UsageError,
)
from umbel.algorithms import FLHC
from umbel.algorithms.base import Algorithm, Setup, State
from umbel.checks import shown
from umbel.client.work import Gradient
from umbel.data.shifts import Rotate
from umbel.engines.privacy import Privacy
from umbel.experiment.toml_file import REGISTRIES, structured
from umbel.flow import Flow
from umbel.networks import CNN, MLP
from umbel.server.ask import Context
from umbel.settings import Settings


def kinds(base: type[Any] = Settings) -> Iterator[type[Any]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: EngineSettings(precision="bf61"),  # type: ignore[arg-type]
            'EngineSettings: precision: \'bf61\' is not "full" or "bf16"; did you mean bf16?',
        ),
        (
            lambda: EngineSettings(name="vectorized"),  # type: ignore[arg-type]
            (
                'EngineSettings: name: \'vectorized\' is not "auto" or "sequential" '
                'or "vectorised" or "ray"; did you mean vectorised?'
            ),
        ),
        (
            lambda: Sattler(linkage="average"),  # type: ignore[arg-type]
            'Sattler: linkage: \'average\' is not "complete" or "single"',
        ),
        (
            lambda: LocalTraining(epochs=2.5),  # type: ignore[arg-type]
            "LocalTraining: epochs: 2.5 is not a whole number",
        ),
        (
            lambda: LocalTraining(epochs=True),
            "LocalTraining: epochs: True is not a whole number",
        ),
        (
            lambda: LocalTraining(lr="0.1"),  # type: ignore[arg-type]
            "LocalTraining: lr: '0.1' is not a number",
        ),
        (
            lambda: LocalTraining(batch_size="some"),  # type: ignore[arg-type]
            "LocalTraining: batch_size: 'some' is not a whole number or \"all\"",
        ),
        (
            lambda: LocalTraining(drop_last=1),  # type: ignore[arg-type]
            "LocalTraining: drop_last: 1 is not true or false",
        ),
        (
            lambda: LocalTraining(optimizer=Adam),  # type: ignore[arg-type]
            f"LocalTraining: optimizer: {Adam!r} is not an Optimizer; write umbel.Adam()",
        ),
        (
            lambda: Averaging(shared="trunk.*"),  # type: ignore[arg-type]
            "Averaging: shared: 'trunk.*' is not a list; write ['trunk.*']",
        ),
        (
            lambda: Averaging(shared=("trunk.*", 3)),  # type: ignore[arg-type]
            "Averaging: shared[1]: 3 is not a string",
        ),
        (
            lambda: MLP(hidden=64),  # type: ignore[arg-type]
            "MLP: hidden: 64 is not a list; write [64]",
        ),
        (
            lambda: IFCA(local=None),  # type: ignore[arg-type]
            "IFCA: local: None is not a LocalTraining; write umbel.LocalTraining()",
        ),
        (
            lambda: Run(IFCA, blobs(), net()),  # type: ignore[arg-type]
            f"Run: algorithm: {IFCA!r} is not an Algorithm; write umbel.IFCA()",
        ),
        (
            lambda: Run(IFCA(), blobs(), net(), engine="vectorised"),  # type: ignore[arg-type]
            (
                "Run: engine: 'vectorised' is not an EngineSettings or an Engine; "
                "write umbel.EngineSettings(name='vectorised')"
            ),
        ),
    ],
)
def test_what_toml_refuses_constructors_refuse(build: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        build()
    assert str(refusal.value) == message


def net() -> Net:
    return Net(lambda: MLP().build((6,), 3))


def test_names_that_are_not_known_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^IFCA: num_cluster: unknown; did you mean num_clusters"):
        IFCA(num_cluster=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"^Plain: modes: unknown; did you mean mode"):
        Plain(modes="a")  # type: ignore[call-arg]
    assert copy.deepcopy(IFCA(3)) == copy.copy(IFCA(3)) == IFCA(3)


def test_a_subclass_that_is_no_dataclass_loses_no_field_without_a_word() -> None:
    class MyAvg(FedAvg):
        scale: float = 1.0
        told: ClassVar[str] = "yes"

    said = r"^MyAvg: scale: is not a field: write @dataclass\(frozen=True\) above class MyAvg$"
    for _ in range(2):  # what is cached refuses again
        with pytest.raises(UsageError, match=said):
            MyAvg()

    @dataclass(frozen=True)
    class Child(MyAvg):
        more: float = 1.0

    with pytest.raises(UsageError, match=r"^MyAvg: scale: is not a field"):
        Child(more=2.0)

    class Eager(FedAvg):
        local: LocalTraining = LocalTraining(epochs=5)

    with pytest.raises(UsageError, match=r"^Eager: local: this default is ignored: write"):
        Eager()


def top2(targets: Any, predictions: Any) -> float:  # noqa: ARG001
    return 0.0


def test_functions_are_named_where_a_text_is_needed() -> None:
    given: Any = top2
    named = r'write "tests\.test_settings:top2"$'
    with pytest.raises(UsageError, match=rf"^Run: metrics\[0\]: <.*> is not a string; {named}"):
        Run(FedAvg(), blobs(), net(), metrics=(given,))
    with pytest.raises(UsageError, match=rf"^Run: metrics: <.*> is not a list; {named}"):
        Run(FedAvg(), blobs(), net(), metrics=given)
    nowhere: Any = lambda targets, predictions: 0.0  # noqa: ARG005, E731
    with pytest.raises(UsageError, match=r'a file, such as mymetrics.py, and name it: "mymetrics:'):
        Run(FedAvg(), blobs(), net(), metrics=(nowhere,))


def test_every_dataclass_of_settings_is_checked() -> None:
    known = set(kinds())
    assert {EngineSettings, Averaging, Limits, Faults, Privacy, Experiment, Run} <= known
    assert set(REGISTRIES) <= known
    for registry in REGISTRIES.values():
        for entry in registry.values():
            assert (entry if isinstance(entry, type) else type(entry)) in known


def test_numbers_of_numpy_and_torch_become_plain_ones() -> None:
    local = LocalTraining(
        lr=np.float32(0.5),  # type: ignore[arg-type]
        epochs=np.int64(3),  # type: ignore[arg-type]
        batch_size=torch.tensor(4),  # type: ignore[arg-type]
        drop_last=np.bool_(True),  # type: ignore[arg-type]
        proximal=torch.tensor(0.25),  # type: ignore[arg-type]
    )
    assert local == LocalTraining(0.5, 3, 4, drop_last=True, proximal=0.25)
    found = [type(getattr(local, f.name)) for f in fields(local)][:5]
    assert found == [float, int, int, type(None), bool]
    with pytest.raises(UsageError, match=r"epochs: .*2\.5.* is not a whole number"):
        LocalTraining(epochs=np.float64(2.5))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"epochs: tensor\(True\) is not a whole number"):
        LocalTraining(epochs=torch.tensor(True))  # type: ignore[arg-type]


def test_lists_and_arrays_become_tuples_and_whole_numbers_stand_for_floats() -> None:
    assert MLP(hidden=[64, 32]) == MLP((64, 32))  # type: ignore[arg-type]
    assert MLP(hidden=np.array([64, 32])) == MLP((64, 32))  # type: ignore[arg-type]
    assert CNN(channels=range(1, 3)) == CNN((1, 2))  # type: ignore[arg-type]
    assert hash(MLP(hidden=[64])) == hash(MLP((64,)))  # type: ignore[arg-type]
    assert Rotate((0, 90)) == Rotate((0.0, 90.0))
    assert LocalTraining(lr=1) == LocalTraining(lr=1.0)
    assert Gradient("all").batch_size == "all"
    assert FLHC(num_clusters=None, threshold=1).threshold == 1


@dataclass(frozen=True)
class Plain(Algorithm[State]):
    """A method of a user, without a `__post_init__`."""

    mode: Literal["a", "b"] = "a"
    sizes: tuple[tuple[int, ...], ...] = ()
    pair: tuple[int, str] = (1, "x")
    limit: int | tuple[int, ...] | None = None
    rate: Literal[1, "fast"] = 1
    any_thing: Any = None
    table: Tensor | None = None
    function: Callable[[int], int] | None = None

    def init(self, setup: Setup) -> State:
        return State(setup.new_models(1), torch.zeros(setup.num_clients, dtype=torch.long))

    def round(self, state: State, ctx: Context) -> Flow[State]:  # noqa: ARG002
        yield from ()
        return state


@dataclass(frozen=True)
class Careful(Plain):
    """One with its own checks, which see what the types say."""

    most: int = 3

    def __post_init__(self) -> None:
        umbel.checks.check(self.most > 2, "most", self.most, "more than 2")


def test_methods_of_users_are_checked_without_a_word_of_theirs() -> None:
    with pytest.raises(UsageError, match="Plain: mode: 'c' is not"):
        Plain(mode="c")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Plain: sizes\[0\]\[1\]: 'x' is not a whole number"):
        Plain(sizes=((1, "x"),))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Plain: pair: \(1,\) is not a list of 2"):
        Plain(pair=(1,))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Plain: pair\[1\]: 2 is not a string"):
        Plain(pair=(1, 2))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Plain: limit: 'x' is not a whole number or a list"):
        Plain(limit="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match='Plain: rate: True is not 1 or "fast"'):
        Plain(rate=True)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Careful: most: '4' is not a whole number"):
        Careful(most="4")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Careful: mode: 'c' is not"):
        Careful(mode="c")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^most: 2 is not more than 2"):
        Careful(most=2)


def test_tables_take_settings_that_are_built_already() -> None:
    table = {"name": "ifca", "local": LocalTraining(lr=0.5), "num_clusters": np.int64(3)}
    assert structured(table, Algorithm) == IFCA(3, LocalTraining(lr=0.5))
    federation = umbel.scenario("rotated-digits", clients=np.int64(4), shift=Rotate((0, 90)))
    assert federation.num_clients == 4


X, Y = np.full((4, 2), 1234.5), np.arange(4) % 2


@pytest.mark.parametrize("given", [[(X, Y)], {"Ava": (X, Y)}, [(X.tolist(), Y.tolist())], X])
def test_what_is_no_federation_is_refused_by_its_type_without_its_examples(given: Any) -> None:
    net = umbel.Net(lambda: torch.nn.Linear(2, 2))
    said = r"^Run: federation: an? \w+ is not a Federation; write umbel.Federation.from_arrays\("
    with pytest.raises(UsageError, match=said) as refused:
        umbel.Run(umbel.FedAvg(), given, net)
    assert "1234" not in str(refused.value)


@pytest.mark.parametrize("value", [X, torch.tensor(X), [1, (X, Y)], {"x": [X]}])
def test_messages_show_no_arrays(value: Any) -> None:
    assert "1234" not in shown(value)
    assert type(value).__name__ in shown(value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"validation_fraction": "a"}, "validation_fraction: 'a' is not a number"),
        ({"test_fraction": None}, "test_fraction: None is not a number"),
        ({"num_classes": "2"}, "num_classes: '2' is not a whole number"),
        ({"num_classes": -1}, "num_classes: -1 is not 1 or more"),
        ({"seed": "a"}, "seed: 'a' is not a whole number"),
        ({"seed": -1}, "seed: -1 is not 0 or more"),
    ],
)
def test_arguments_of_from_arrays_are_checked_by_name(setting: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        umbel.Federation.from_arrays([(X, Y)], **setting)


def test_what_is_advised_on_and_built_is_checked_by_name() -> None:
    wrong: Any = [(X, Y)]
    net = umbel.Net(lambda: torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match=r"^federation: a list is not a Federation; write"):
        umbel.advise(wrong, net)
    mistaken: Any = "mlp"
    with pytest.raises(UsageError, match=r"^build: 'mlp' is not a function that builds a module"):
        umbel.Net(mistaken)
    with pytest.raises(UsageError, match=r"^net: 'mlp' is not a Net; write"):
        umbel.advise(umbel.Federation.from_arrays([(X, Y)]), mistaken)
