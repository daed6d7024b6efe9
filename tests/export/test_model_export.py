"""Models as files for other programs, read back there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import umbel
from tests.federations import blobs
from tests.folder.saved import LOCAL, Masked, build, make_run
from tests.shell import Shell
from umbel import FedEM, PFedMe, UsageError

FORMATS = (pytest.param("onnx", marks=pytest.mark.long), "torch", "safetensors")


class Reader(nn.Module):
    """Reads sequences of words with an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 4)
        self.lstm = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.lstm(self.words(x))
        return self.head(outputs[:, -1])  # type: ignore[no-any-return]


class Picky(nn.Module):
    """Looks at values, which no exporter can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else self.layer(-x)  # type: ignore[no-any-return]


def words() -> umbel.Federation:
    generator = torch.Generator().manual_seed(0)
    x = [torch.randint(12, (20, 7), generator=generator) for _ in range(4)]
    return umbel.Federation.from_arrays([(each, each[:, 0] % 3) for each in x], num_classes=3)


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> umbel.Result:
    """A run in which every client has a model of its own."""
    federation = replace(blobs(), names=tuple(f"site-{n}" for n in range(6)))
    run = make_run(algorithm=PFedMe(local=replace(LOCAL, lr=0.05)), federation=federation)
    return run.save(tmp_path_factory.mktemp("runs") / "mine", 2)


def read(to: str, file: Path) -> Any:
    """What another program makes of the file."""
    if to == "torch":
        return torch.export.load(file).module()
    if to == "safetensors":
        module = build()
        module.load_state_dict(load_file(file))
        return module
    runtime: Any = pytest.importorskip("onnxruntime", reason="umbel[onnx] is not installed")
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


@pytest.mark.parametrize("to", FORMATS)
def test_the_model_of_a_client_gives_the_same_outputs_elsewhere(
    to: Any, personal: umbel.Result
) -> None:
    if to == "onnx":
        pytest.importorskip("onnxscript", reason="umbel[onnx] is not installed")
    done = personal.export(to, client="site-3")
    assert done.file.parent == personal.folder.file("exported")
    assert done.file.stem == "client-site-3"
    assert done.largest_difference < 1e-5
    x = torch.randn(9, 6)
    other = read(to, done.file)
    with torch.no_grad():
        torch.testing.assert_close(other(x), personal.model_for("site-3")(x))
        assert not torch.allclose(other(x), personal.model_for("site-2")(x))


@pytest.mark.parametrize("to", [pytest.param("onnx", marks=pytest.mark.thorough), "torch"])
def test_sequences_of_words_and_mixtures_are_exported(to: Any, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxscript", reason="umbel[onnx] is not installed")
    reader = umbel.Run(umbel.FedAvg(LOCAL), words(), umbel.Net(Reader))
    for name, run in [("words", reader), ("mixture", make_run(algorithm=FedEM(2, LOCAL)))]:
        done = run.save(tmp_path / name, 1).export(to, client=2, out=tmp_path / f"{name}.model")
        assert done.file == tmp_path / f"{name}.model"
        assert done.largest_difference < 1e-5


def test_constants_of_a_module_are_among_its_tensors(tmp_path: Path) -> None:
    result = make_run(net=umbel.Net(lambda: Masked(1))).save(tmp_path / "mine", 1)
    done = result.export("safetensors", client=0)
    assert set(load_file(done.file)) == {"layer.weight", "layer.bias", "mask"}


def test_what_can_not_be_exported_is_refused_in_one_line(
    tmp_path: Path, personal: umbel.Result
) -> None:
    with pytest.raises(UsageError, match="client: 'site-33' is not known; did you mean site-3"):
        personal.export("torch", client="site-33")
    with pytest.raises(UsageError, match="cluster: 7 is not a cluster of this run: 0 to 0"):
        personal.export("torch", cluster=7)
    with pytest.raises(UsageError, match="cluster: 0 is not allowed together with a client"):
        personal.export("torch", cluster=0, client="site-3")
    with pytest.raises(UsageError, match="to: 'onx' is not known; did you mean onnx"):
        personal.export("onx", cluster=0)  # type: ignore[arg-type]
    several = make_run(algorithm=umbel.LocalOnly(LOCAL), net=umbel.Net(Picky))
    result = several.save(tmp_path / "mine", 1)
    with pytest.raises(UsageError, match="cluster: one of 0 to 5 is needed, or the name of"):
        result.export("torch")
    with pytest.raises(UsageError, match=r"to: torch\.export can't capture Picky") as refused:
        result.export("torch", cluster=1)
    assert "\n" not in str(refused.value)


def test_the_command_line_exports_models(umbel: Shell, personal: umbel.Result) -> None:
    path = str(personal.folder.path)
    printed, _ = umbel("export", path, "--to", "torch", "--cluster", "0", "--out", "some/model.pt2")
    assert "some/model.pt2: its outputs differ from the model's by" in printed
    assert "on 10 random examples" in printed
    given = ("--net", "tests.export.test_model_export:NET")
    assert (
        "client-site-1" in umbel("export", path, "--to", "torch", "--client", "site-1", *given)[0]
    )
    missing = f"{__name__}:no"
    message = umbel.refused("export", path, "--to", "torch", "--net", missing)
    assert f"net: {missing!r} can't be imported" in message
    message = umbel.refused(
        "export", path, "--to", "torch", "--net", "tests.folder.test_saving:build"
    )
    assert "is not an umbel.Net, but a function" in message
    message = umbel.refused("export", path, "--to", "mlflow", "--client", "site-1")
    assert "--client: 'site-1' is not for --to mlflow: a model goes to onnx, torch" in message


NET = umbel.Net(build)


def test_without_the_library_the_extra_is_named(
    personal: umbel.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "onnxruntime", missing)
    with pytest.raises(UsageError, match=r'"onnx" needs an extra: pip install "umbel\[onnx\]"'):
        personal.export("onnx", client="site-1")
