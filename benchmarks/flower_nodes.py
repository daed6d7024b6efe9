"""1,000 clients at 4 nodes, and in one process: `python -m benchmarks.flower_nodes`.

Needs `pip install "umbel[flower]"` and MNIST in `UMBEL_DATA_DIR`. A real SuperLink, and all
processes on this machine; bytes are those that went through the loopback.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.flower.deployment import Deployment

from benchmarks.flower_times import PARTS, parts
from umbel.algorithms import FLACC
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.sources import Sources
from umbel.experiment.library import find_experiment
from umbel.experiment.toml_file import write
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Experiment, read

NODES, CLIENTS, ROUNDS = 4, 1000, 6


SERVER = """
from pathlib import Path

from flwr.serverapp import ServerApp

from umbel.flower.server import Settings, serve
from umbel.result.run import read

{here}
from benchmarks.flower_times import TimedGrid

app = ServerApp()


@app.main()
def main(grid, context):
    file = Path(__file__).parents[1] / "experiment.toml"
    serve(TimedGrid(grid, Path({file!r})), read(file), Settings.of(context.run_config))
"""


def experiment() -> Experiment:
    """FLACC on rotated MNIST, a tenth of the clients a round."""
    shipped = read(find_experiment("flacc-mnist"))
    return replace(
        shipped,
        scenario=replace(shipped.scenario, clients=CLIENTS, examples=(60,)),  # type: ignore[call-arg]
        algorithm=FLACC(LocalTraining(epochs=1, batch_size=32)),
        name="app",
        rounds=ROUNDS,
        participation=0.1,
        evaluate_every=ROUNDS,
    )


def main() -> None:
    """Run both, and print their times and traffic."""
    asked = experiment()
    run = asked.open(Sources.default())
    records = [record for _, record in run.rounds(ROUNDS)]
    alone = statistics.median(record.seconds for record in records)
    with tempfile.TemporaryDirectory() as place, Deployment(Path(place)) as deployed:
        for n in range(NODES):
            site = Path(place) / f"site{n}"
            write_site(site, run.federation, range(n, CLIENTS, NODES))
            deployed.start_node(f"node{n}", data=str(site), classes=10, memory_dir=f"{place}/{n}")
        app, times = deployed.app("app", write(asked)), Path(place) / "times.jsonl"
        time_messages(app, times)
        deployed.run(app, clients=CLIENTS)
        folder = RunFolder(app.parent / "runs" / "app-seed0")
        bytes_at: dict[int, int] = {}
        while not folder.finished:
            done = len(folder.records()) if folder.file("records.jsonl").is_file() else 0
            bytes_at.setdefault(done, loopback_bytes())
            time.sleep(0.1)
        over_flower, taken = folder.records(), parts(times)
    seconds = statistics.median(record.seconds for record in over_flower[1:])
    moved = [bytes_at[n + 1] - bytes_at[n] for n in range(1, ROUNDS - 1)]
    tensors = statistics.median(r.bytes_down + r.bytes_up for r in over_flower[1:])
    clusters = [r.num_clusters for r in (records[-1], over_flower[-1])]
    assert clusters[0] == clusters[1]
    sys.stdout.write(
        f"{CLIENTS} clients, {NODES} nodes, {run.net.layout.num_values} parameters, FLACC, "
        f"100 clients a round: Flower {seconds:.1f} s a round, one process {alone:.2f} s; "
        f"tensors {tensors / 1e6:.1f} MB a round, through the loopback "
        f"{statistics.median(moved) / 1e6:.1f} MB\n"
    )
    for name, what in PARTS.items():
        sys.stdout.write(f"{taken[name]:7.2f} s  {what}\n")


def time_messages(app: Path, file: Path) -> None:
    """Change an app, so that it writes to this file when its messages come and go."""
    here = f"import sys\n\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    first = f"{here}from benchmarks.flower_times import TimedApp\n\n"
    last = f"app = TimedApp(app, Path({str(file)!r}))\n"
    client, server = app / "app" / "client.py", app / "app" / "server.py"
    client.write_text(first + client.read_text() + last)
    server.write_text(SERVER.format(here=here, file=str(file)))


def write_site(folder: Path, federation: Federation, clients: Iterable[int]) -> None:
    """A file for each of these clients, as at a site."""
    folder.mkdir()
    for client in clients:
        (x, y), (x_test, y_test) = federation.train.of(client), federation.test.of(client)
        arrays = {"x": x, "y": y, "x_test": x_test, "y_test": y_test}
        np.savez(folder / f"{client}.npz", **{name: a.numpy() for name, a in arrays.items()})  # type: ignore[arg-type]


def loopback_bytes() -> int:
    """Bytes sent through the loopback interface since this machine started."""
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


if __name__ == "__main__":
    main()
