#!/usr/bin/env bash
# torch.onnx.export (torch 2.13.0, onnxscript 0.7.2, onnx 1.23.2): a buffer that `forward` changes becomes a constant of the exported
# model, without a warning or a second output. A module that counts its calls answers 1, 2, 3 times its layer in PyTorch; the ONNX
# model gives the first answer for ever (onnxruntime 1.31.1).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 numpy==2.4.6
cat > "$folder/try_it.py" <<'PYTHON'
import warnings

import onnxruntime
import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, inputs):
        self.calls += 1
        return self.layer(inputs) * self.calls


torch.manual_seed(0)
inputs = torch.ones(1, 3)
module = Counter().eval()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.onnx.export(module, (inputs,), dynamo=True, verbose=False).save("counter.onnx")
session = onnxruntime.InferenceSession("counter.onnx")
feed = {session.get_inputs()[0].name: inputs.numpy()}
exported = [session.run(None, feed)[0].item() for _ in range(3)]
module.calls.zero_()
own = [module(inputs).item() for _ in range(3)]
print("PyTorch:", [round(value / own[0], 3) for value in own])
print("ONNX:   ", [round(value / own[0], 3) for value in exported], "outputs:", len(session.get_outputs()))
print("warnings about state:", [str(w.message) for w in told if "calls" in str(w.message) or "mutat" in str(w.message)])
assert abs(own[2] / own[0] - 3) < 1e-4
assert len(session.get_outputs()) == 1
assert max(exported) - min(exported) < 1e-6, "the exported model keeps state: this finding no longer holds"
PYTHON
cd "$folder" && OMP_NUM_THREADS=1 venv/bin/python try_it.py 2> errors.txt || { cat errors.txt; exit 1; }
