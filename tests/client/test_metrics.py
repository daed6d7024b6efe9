"""Metrics are as scikit-learn has them, of the outputs of a model, and NaN where there is none."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn import metrics as sklearn_metrics
from torch import Tensor, nn

from umbel.checks import UsageError
from umbel.client.batches import IGNORED
from umbel.client.metrics import METRICS, check_metrics, measured, metric, predictions, short
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective

OF_CLASSES = ("log-loss", "perplexity", "macro-f1", "auroc")
OWN = Objective(lambda outputs, y: (outputs - y) ** 2, lambda outputs, y: outputs == y)


def found(objective: Objective, outputs: Tensor, y: Tensor, *names: str) -> dict[str, float]:
    values = measured(names, predictions(objective, outputs, y))
    return {name: float(value) for name, value in values.items()}


def shares(outputs: Tensor) -> NDArray[np.float64]:
    return outputs.double().softmax(1).numpy()


def test_of_two_classes_they_are_computed_by_hand() -> None:
    # Probabilities of class 1: 0.9, 0.6, 0.3, 0.2; only the second is on the wrong side.
    yes = torch.tensor([0.9, 0.6, 0.3, 0.2], dtype=torch.double)
    outputs = torch.stack([torch.zeros(4), (yes / (1 - yes)).log()], dim=1)
    values = found(CLASSIFICATION, outputs, torch.tensor([1, 0, 0, 0]), *OF_CLASSES)
    assert values["log-loss"] == pytest.approx(-np.log([0.9, 0.4, 0.7, 0.8]).mean())
    # Class 0: 2 of 3 found, all of them right; class 1: found, and half of those right.
    assert values["macro-f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert values["auroc"] == 1.0


def test_of_more_classes_auroc_is_the_mean_of_each_present_class_against_the_rest() -> None:
    rng = torch.Generator().manual_seed(0)
    outputs, y = torch.randn(60, 5, generator=rng), torch.randint(0, 4, (60,), generator=rng)
    values = found(CLASSIFICATION, outputs, y, *OF_CLASSES)
    expected = [sklearn_metrics.roc_auc_score(y == c, shares(outputs)[:, c]) for c in range(4)]
    assert values["auroc"] == pytest.approx(np.mean(expected))
    loss = torch.nn.functional.cross_entropy(outputs.double(), y)
    assert values["log-loss"] == pytest.approx(float(loss))
    f1 = sklearn_metrics.f1_score(y, outputs.argmax(1), average="macro")
    assert values["macro-f1"] == pytest.approx(f1)


def test_perplexity_is_that_of_the_labels_that_count_each_alike() -> None:
    rng = torch.Generator().manual_seed(5)
    outputs, y = torch.randn(9, 4, 6, generator=rng), torch.randint(0, 4, (9, 6), generator=rng)
    beyond = torch.arange(6) >= torch.randint(1, 7, (9, 1), generator=rng)
    y[beyond] = IGNORED
    loss = nn.CrossEntropyLoss()(outputs.double(), y)  # its mean is over labels that count
    assert found(CLASSIFICATION, outputs, y, "perplexity")["perplexity"] == pytest.approx(
        float(loss.exp())
    )


def test_perplexity_is_how_many_symbols_a_model_hesitates_between() -> None:
    y = torch.tensor([[0, 1, IGNORED], [3, 2, 1]])
    guesses = torch.zeros(2, 4, 3)
    assert found(CLASSIFICATION, guesses, y, "perplexity")["perplexity"] == pytest.approx(4.0)
    knows = 50 * torch.nn.functional.one_hot(y.clamp(min=0), 4).movedim(-1, 1).float()
    assert found(CLASSIFICATION, knows, y, "perplexity")["perplexity"] == pytest.approx(1.0)
    errs = found(CLASSIFICATION, 1e3 * -knows, y, "perplexity")["perplexity"]
    assert errs <= METRICS["perplexity"].high


@pytest.mark.parametrize("objective", [CLASSIFICATION, BINARY])
def test_of_very_confident_models_they_are_as_precise(objective: Objective) -> None:
    yes = torch.tensor([40.0, 41, 50, 60, 300])
    y = torch.tensor([0, 0, 1, 1, 0])
    outputs = torch.stack([torch.zeros(5), yes], dim=1) if objective == CLASSIFICATION else yes
    y = y if objective == CLASSIFICATION else y.float()
    values = found(objective, outputs, y, "log-loss", "auroc", "perplexity")
    assert values["log-loss"] == pytest.approx((40 + 41 + 300) / 5)
    assert values["auroc"] == pytest.approx(4 / 6)  # only the last is above those of yes
    assert values["perplexity"] == pytest.approx(1e12)
    values = found(objective, outputs[:4], y[:4], "auroc", "perplexity")
    assert values == {"auroc": 1.0, "perplexity": pytest.approx(math.exp(81 / 4))}


def test_auroc_of_ties_is_that_of_the_curve() -> None:
    rng = np.random.default_rng(4)
    values = torch.from_numpy(rng.integers(0, 3, (30, 2)).astype(float))
    y = torch.from_numpy(rng.integers(0, 2, 30))
    expected = sklearn_metrics.roc_auc_score(y, shares(values)[:, 1].round(9))
    rounded = torch.from_numpy(np.log(shares(values).round(9)))
    assert found(CLASSIFICATION, rounded, y, "auroc")["auroc"] == pytest.approx(expected, abs=1e-6)


def test_labels_of_padding_do_not_count() -> None:
    rng = torch.Generator().manual_seed(1)
    outputs, y = torch.randn(6, 3, 4, generator=rng), torch.randint(0, 3, (6, 4), generator=rng)
    y[:, 2:] = IGNORED
    rows, labels = outputs[:, :, :2].movedim(1, 2).reshape(-1, 3), y[:, :2].flatten()
    expected = found(CLASSIFICATION, rows, labels, *OF_CLASSES)
    assert found(CLASSIFICATION, outputs, y, *OF_CLASSES) == pytest.approx(expected)


def test_yes_or_no_is_two_classes_and_several_answers_are_averaged() -> None:
    rng = torch.Generator().manual_seed(2)
    outputs, y = torch.randn(40, 3, generator=rng), torch.randint(0, 2, (40, 3), generator=rng)
    y[:, 2] = 1  # of this answer, which is always yes, there is no area
    whole = found(BINARY, outputs, y.float(), *OF_CLASSES)
    parts = []
    for answer in range(3):
        both = torch.stack([torch.zeros(40), outputs[:, answer]], dim=1)
        parts.append(found(CLASSIFICATION, both, y[:, answer], *OF_CLASSES))
    assert math.isnan(parts[2]["auroc"])
    for name in OF_CLASSES:
        assert whole[name] == pytest.approx(np.nanmean([part[name] for part in parts]))
    one = found(BINARY, outputs[:, :1], y[:, :1].float(), *OF_CLASSES)
    assert one == pytest.approx(parts[0])
    assert found(BINARY, outputs[:, :1], y[:, 0], *OF_CLASSES) == pytest.approx(parts[0])


def test_of_numbers_they_are_computed_by_hand() -> None:
    outputs, y = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([1.0, 3.0, 2.0])
    values = found(REGRESSION, outputs, y, "mae", "r2")
    assert values["mae"] == pytest.approx(4 / 3)
    assert values["r2"] == pytest.approx(1 - 10 / 2)
    two = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    assert found(REGRESSION, two + 1, two, "mae")["mae"] == 1.0


@pytest.mark.parametrize(
    ("outputs", "y", "name"),
    [
        (torch.randn(5, 2), torch.ones(5, dtype=torch.long), "auroc"),
        (torch.full((5, 2), torch.nan), torch.tensor([0, 1, 0, 1, 1]), "log-loss"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "macro-f1"),
        (torch.ones(1, 1), torch.ones(1), "r2"),
        (torch.arange(4.0), torch.ones(4), "r2"),
        (torch.full((4,), torch.inf), torch.ones(4), "mae"),
    ],
)
def test_what_is_not_defined_is_nan(outputs: Tensor, y: Tensor, name: str) -> None:
    objective = REGRESSION if y.is_floating_point() else CLASSIFICATION
    assert math.isnan(found(objective, outputs, y, name)[name])


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with metrics of one's own."""
    (tmp_path / "own_metrics.py").write_text(
        "import numpy as np\n"
        "def cost(targets, predictions):\n"
        "    return float(10 * np.mean(predictions.argmax(1) != targets))\n"
        "def shape(targets, predictions):\n"
        "    return 100 * predictions.ndim + targets.ndim\n"
        "def fails(targets, predictions):\n"
        "    raise KeyError('secret')\n"
        "def words(targets, predictions):\n"
        "    return 'secret'\n"
        "def nothing(targets, predictions):\n"
        "    pass\n"
        "def deep(targets, predictions):\n"
        "    return fails(targets, predictions) if len(targets) else np.ones('secret')\n"
        "def within(targets, predictions):\n"
        "    return np.loadtxt(['secret'])\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own_metrics", None)
    return "own_metrics"


def test_ones_own_gets_targets_and_probabilities(own: str) -> None:
    outputs, y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
    name = f"{own}:cost"
    assert found(CLASSIFICATION, outputs, y, name) == {name: pytest.approx(10 / 3)}
    assert short(name) == "cost"
    name = f"{own}:shape"
    assert found(CLASSIFICATION, outputs, y, name)[name] == 201
    assert found(BINARY, outputs, y[:, None].expand(3, 2), name)[name] == 202
    assert found(OWN, outputs, outputs, name)[name] == 202


def test_ones_own_that_fails_is_named_without_what_it_says(own: str) -> None:
    outputs, y = torch.zeros(2, 2), torch.tensor([0, 1])
    for name, fault in (
        ("fails", "raised KeyError at own_metrics.py:7"),
        ("deep", "raised KeyError at own_metrics.py:7"),
        ("within", "raised ValueError at own_metrics.py:15"),  # not where NumPy raised it
        ("words", "gave a str, which is no number"),
        ("nothing", "gave None, which is no number"),
    ):
        with pytest.raises(UsageError) as refused:
            found(CLASSIFICATION, outputs, y, f"{own}:{name}")
        assert str(refused.value) == f"metrics: '{own}:{name}' {fault}"
    with pytest.raises(UsageError, match=r"'math:sqrt' does not take \(targets, predictions\)"):
        found(CLASSIFICATION, outputs, y, "math:sqrt")


def test_metrics_must_fit_what_models_are_trained_for(own: str) -> None:
    check_metrics([*OF_CLASSES, f"{own}:cost"], CLASSIFICATION)
    check_metrics(OF_CLASSES, BINARY)
    check_metrics(["mae", "r2"], REGRESSION)
    check_metrics([f"{own}:cost"], OWN)
    with pytest.raises(UsageError, match="metrics: 'mae' is not one for these models: \"log-loss"):
        check_metrics(["mae"], CLASSIFICATION)
    with pytest.raises(UsageError, match="metrics: 'auroc' is not one for these models: \"mae"):
        check_metrics(["auroc"], REGRESSION)
    with pytest.raises(UsageError, match="metrics: 'auroc' is not one for these models: your own"):
        check_metrics(["auroc"], OWN)
    with pytest.raises(UsageError, match="'own_metrics:number' is not the name of a function"):
        check_metrics([f"{own}:number"], CLASSIFICATION)
    with pytest.raises(UsageError, match="'own_metrics:none' can't be imported"):
        check_metrics([f"{own}:none"], CLASSIFICATION)
    with pytest.raises(
        UsageError,
        match="'macrof1' is not a known metric or \"module:function\"; did you mean macro-f1",
    ):
        metric("macrof1")
