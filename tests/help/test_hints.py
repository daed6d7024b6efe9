"""First guesses of users of PyTorch, Flower and scikit-learn are answered by what to write."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import umbel
from umbel import UsageError
from umbel.checks import closest

umbel_: Any = umbel
LocalTraining: Any = umbel.LocalTraining
FedAvg: Any = umbel.FedAvg


@cache
def federation() -> umbel.Federation:
    return umbel.scenario("rotated-digits", clients=4)


def run(**named: Any) -> Any:
    net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    kind: Any = umbel.Run
    return kind(umbel.FedAvg(), federation(), net, **named)


GUESSES: list[tuple[Callable[[], object], str]] = [
    (lambda: LocalTraining(optimizer="adam"), "'adam' is not an Optimizer; write umbel.Adam()"),
    (lambda: LocalTraining(optimizer=torch.optim.Adam), "write umbel.Adam()"),
    (lambda: LocalTraining(optimizer=umbel.Adam), "write umbel.Adam()"),
    (lambda: LocalTraining(optimizer="AdamW"), "did you mean umbel.Adam()?"),
    (lambda: LocalTraining(learning_rate=0.1), "did you mean lr?"),
    (lambda: LocalTraining(mu=0.1), "did you mean proximal?"),
    (lambda: LocalTraining(momentum=0.9), "write optimizer=umbel.SGD(momentum=0.9)"),
    (lambda: LocalTraining(device="cuda"), "engine=umbel.EngineSettings(device="),
    (lambda: FedAvg(lr=0.1), "write local=umbel.LocalTraining(lr=0.1)"),
    (lambda: FedAvg(epochs=2), "write local=umbel.LocalTraining(epochs=2)"),
    (lambda: FedAvg(batch_size=8), "write local=umbel.LocalTraining(batch_size=8)"),
    (lambda: FedAvg(momentum=0.9), "local=umbel.LocalTraining(optimizer=umbel.SGD(momentum=0.9))"),
    (lambda: FedAvg(local={"lr": 0.1}), "write umbel.LocalTraining(lr=0.1)"),
    (lambda: FedAvg(local=0.1), "write umbel.LocalTraining()"),
    (lambda: FedAvg(num_rounds=30), "write run.rounds(30)"),
    (lambda: FedAvg(fraction_fit=0.5), "write umbel.Run(..., participation=0.1)"),
    (lambda: umbel_.IFCA(n_clusters=3), "did you mean num_clusters?"),
    (lambda: umbel_.IFCA(k=3), "did you mean num_clusters?"),
    (lambda: umbel_.FLACC(num_clusters=3), "umbel.IFCA(num_clusters=4) has"),
    (lambda: umbel_.FedProx(proximal_mu=0.1), "did you mean mu?"),
    (lambda: umbel_.SGD(0.1), "give values by name: umbel.SGD(momentum=..., weight_decay=...)"),
    (lambda: umbel_.Adam(lr=0.1), "write umbel.LocalTraining(lr=0.1)"),
    (lambda: umbel_.Privacy(max_grad_norm=1.0), "did you mean clip?"),
    (lambda: umbel_.EngineSettings(gpu=True), "did you mean device?"),
    (lambda: run(device="cuda"), "write engine=umbel.EngineSettings(device='cuda')"),
    (lambda: run(engine="cuda"), "write umbel.EngineSettings(device='cuda')"),
    (lambda: run(engine="vectorised"), "write umbel.EngineSettings(name='vectorised')"),
    (lambda: run(n_jobs=2), "write engine=umbel.EngineSettings(workers=2)"),
    (lambda: run(lr=0.1), "write algorithm=umbel.FedAvg(local=umbel.LocalTraining(lr=0.1))"),
    (lambda: run(local=umbel.LocalTraining()), "write algorithm=umbel.FedAvg(local=...)"),
    (lambda: run(rounds=3), "write run.rounds(30), or run.save(folder, 30)"),
    (lambda: run(num_clients=3), 'umbel.scenario("rotated-digits", clients=20)'),
    (lambda: run(random_state=3), "did you mean seed?"),
    (lambda: run(fraction_fit=0.1), "did you mean participation?"),
    (lambda: run(clip=2.0), "write privacy=umbel.Privacy(clip=2.0)"),
    (lambda: run().rounds(epochs=3), "Run.rounds: epochs: unknown; write umbel.LocalTraining("),
    (lambda: run().save("x", num_rounds=3), "Run.save: num_rounds: unknown; did you mean rounds?"),
    (lambda: umbel_.advise(None, None, device="cpu"), "umbel.EngineSettings(device='cpu')"),
    (lambda: umbel_.advise(None, None, lr=0.1), "write local=umbel.LocalTraining(lr=0.1)"),
    (
        lambda: umbel_.Net(torch.nn.Linear, loss="mse"),
        "Net: loss: unknown; did you mean objective?",
    ),
    (lambda: umbel_.Federation.from_arrays([], test_size=0.2), "did you mean test_fraction?"),
    (lambda: umbel_.scenario("rotated-digits", num_partitions=4), "did you mean clients?"),
    (lambda: umbel_.scenario("rotated-digits", random_state=4), "did you mean seed?"),
]


@pytest.mark.parametrize(("guess", "answer"), GUESSES)
def test_a_guess_is_answered_by_what_to_write(guess: Callable[[], object], answer: str) -> None:
    with pytest.raises(UsageError) as refused:
        guess()
    assert answer in str(refused.value)


def test_a_name_that_umbel_lacks_is_answered_by_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"did you mean umbel\.FedAvg\?"):
        _ = umbel_.fedavg
    assert not hasattr(umbel, "qqqq")


def result() -> Any:
    return umbel_.Result(None)


ATTRIBUTES: list[tuple[Callable[[], object], str]] = [
    (lambda: umbel_.fit, "module 'umbel' has no attribute 'fit'; write umbel.Run(method, fed"),
    (lambda: umbel_.seed, "; write umbel.Run(..., seed=1)"),
    (lambda: run().fit, "'Run' object has no attribute 'fit'; write run.save(folder, 30), or for"),
    (
        lambda: run().train(3),
        "; write run.save(folder, 30), or for state, record in run.rounds(30)",
    ),
    (lambda: run().run(3), "; write run.save(folder, 30)"),
    (lambda: umbel_.Federation.from_csv("v.csv"), '; write umbel.scenario("table", path=FILE, cl'),
    (lambda: umbel_.Federation.from_pandas(0), "for name, part in table.groupby(client)})"),
    (lambda: umbel_.Federation.from_numpy(0), "; write umbel.Federation.from_arrays({name: (x, y)"),
    (lambda: result().predict, "; write result.model(cluster), or result.model_for(client)"),
    (lambda: result().models, "; write result.model(cluster), or result.model_for(client)"),
    (lambda: result().history, "; write result.records"),
    (lambda: result().accuracy, "; write result.last.accuracy"),
]


@pytest.mark.parametrize(("guess", "answer"), ATTRIBUTES)
def test_an_attribute_of_other_libraries_is_answered_by_what_to_write(
    guess: Callable[[], object], answer: str
) -> None:
    with pytest.raises(AttributeError) as refused:
        guess()
    assert answer in str(refused.value)


def test_an_error_inside_a_property_stays_as_it_is() -> None:
    with pytest.raises(AttributeError, match=r"^'NoneType' object has no attribute 'finished'$"):
        _ = result().records
    with pytest.raises(AttributeError, match=r"^'Run' object has no attribute 'qqqq'$"):
        _ = run().qqqq


def test_a_scenario_is_found_by_a_part_of_its_name() -> None:
    with pytest.raises(UsageError, match="'mnist' is not known; did you mean rotated-mnist"):
        umbel.scenario("mnist")


@pytest.mark.parametrize("name", ["fedrep", "scaffold", "feddyn", "fedbn", "moon"])
def test_a_method_is_not_taken_for_another_whose_name_begins_alike(name: str) -> None:
    assert closest(name, ["fedavg", "fedem", "fedprox", "fesem", "joint", "fedlease"]) is None


MEANT = {
    "ifka": "ifca",
    "satler": "sattler",
    "cflgp": "cfl-gp",
    "FedAvg": "fedavg",
    "random-clsuters": "random-clusters",
    "wecfl": "fesem",
    "flexcfl": "fedgroup",
    "cfl": "sattler",
    "local": "local-only",
}


@pytest.mark.parametrize("name", MEANT)
def test_a_misspelt_method_and_another_name_of_it_are_answered_by_it(
    name: str, tmp_path: Path
) -> None:
    assert f"did you mean {MEANT[name]}?" in refusal(name, tmp_path)


def test_an_unknown_method_is_answered_by_those_of_all_groups(tmp_path: Path) -> None:
    said = refusal("qfel", tmp_path)
    assert "did you mean" not in said
    for part in ("known are one model: ", "fedavg, ", "; clustered: ", "; soft: ", "; personal: "):
        assert part in said


def refusal(name: str, folder: Path) -> str:
    file = folder / "one.toml"
    scenario = '[scenario]\nname = "rotated-digits"\n'
    file.write_text(f'rounds = 2\n{scenario}[algorithm]\nname = "{name}"\n')
    with pytest.raises(UsageError) as refused:
        umbel.read(file)
    return str(refused.value)


def test_errors_inside_a_function_stay_as_they_are() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        run().rounds()

    def build(wide: int) -> torch.nn.Module:
        return torch.nn.Linear(wide, 2)

    with pytest.raises(TypeError, match="wide"):
        umbel_.Net(build)


PATHS = {
    "lr": "algorithm.local.lr",
    "algorithm.lr": "algorithm.local.lr",
    "local.lr": "algorithm.local",
    "learning_rate": "algorithm.local.lr",
    "epochs": "algorithm.local.epochs",
    "optimizer": "algorithm.local.optimizer.name",
    "momentum": "algorithm.local.optimizer.momentum",
    "num_clients": "scenario.clients",
    "n_clusters": "algorithm.num_clusters",
    "device": "engine.device",
    "algorithm.rounds": "rounds",
    "dataset": "scenario",
}


@pytest.mark.parametrize(("guess", "path"), PATHS.items())
def test_a_key_in_the_wrong_place_is_answered_by_its_path(guess: str, path: str) -> None:
    with pytest.raises(UsageError) as refused:
        umbel.read(umbel.find_experiment("flacc-digits"), [f"{guess}=1"])
    assert f"did you mean {path}?" in str(refused.value)


def test_a_name_in_place_of_a_table_is_answered_by_the_setting_for_names() -> None:
    file = umbel.find_experiment("flacc-digits")
    for table in ("algorithm.local.optimizer", "algorithm", "model"):
        with pytest.raises(UsageError, match=rf"{table}: 'adam' is not a table; set {table}\.name"):
            umbel.read(file, [f"{table}=adam"])
    with pytest.raises(UsageError, match=r"'cuda' is not a table; set engine\.device"):
        umbel.read(file, ["engine=cuda"])


def test_a_table_in_place_of_settings_names_their_class_though_another_extends_it() -> None:
    class Halved(umbel.LocalTraining):
        pass

    with pytest.raises(UsageError, match=r"write umbel\.LocalTraining\(lr=0\.1\)"):
        FedAvg(local={"lr": 0.1})
    assert Halved in umbel.LocalTraining.__subclasses__()
