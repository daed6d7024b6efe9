"""The numbers of a run for Prometheus: scraped over HTTP while the run goes on, and parsed."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser

import umbel as package
from tests.flower.deployment import free_port
from tests.flower.small import SMALL, grid_of
from tests.processes import wait_until
from tests.shell import Shell
from umbel.export.openmetrics import COUNTERS, GAUGES, exposed
from umbel.flower import Settings, serve
from umbel.folder.execution import opened
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record

parsed: Callable[[str], Iterator[Metric]] = parser.text_string_to_metric_families
DEPLOY = Path(__file__).parents[2] / "deploy"


@contextmanager
def measured(folder: RunFolder) -> Iterator[tuple[Iterator[Record], str]]:
    """The remaining rounds of a run, and where their numbers are meanwhile."""
    said: list[str] = []
    run, plan = opened(folder, package.Sources.default())
    with folder.locked(), exposed(("127.0.0.1", 0), folder, run, plan, said.append) as rounds:
        yield rounds, said[0].removeprefix("metrics: ")


def created(path: Path, *settings: str) -> RunFolder:
    file = package.find_experiment("flacc-digits")
    small = ("rounds=4", "scenario.clients=8", "algorithm.local.epochs=1")
    return RunFolder.create(path, package.read(file, [*small, *settings]))


def scraped(url: str) -> dict[str, float]:
    """The values at a URL, each under its name without labels; those of one run alone are there."""
    form = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with urlopen(Request(url, headers=form)) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = list(parsed(answer.read().decode()))
    samples = [sample for family in families for sample in family.samples]
    labels = [{k: v for k, v in sample.labels.items() if k != "le"} for sample in samples]
    assert all(each == labels[0] for each in labels)
    assert labels[0].keys() == {"run", "method"}
    return {s.name.removeprefix("umbel_"): s.value for s in samples if "le" not in s.labels}


def test_what_is_scraped_after_a_round_is_what_its_record_says(tmp_path: Path) -> None:
    folder = created(tmp_path / "one", "participation=0.5")
    with measured(folder) as (rounds, url):
        assert scraped(url)["rounds_total"] == 0
        done: list[Record] = []
        for record in rounds:
            done.append(record)
            found = scraped(url)
            assert found["rounds_total"] == found["round_seconds_count"] == len(done)
            assert found["round_seconds_sum"] == pytest.approx(sum(r.seconds for r in done))
            assert found["clients_asked_total"] == found["clients_answered_total"] == 4 * len(done)
            assert found["sent_bytes_total"] == sum(r.bytes_down for r in done)
            assert found["received_bytes_total"] == sum(r.bytes_up for r in done)
            assert (found["accuracy"], found["loss"]) == (record.accuracy, record.loss)
            assert found["clusters"] == record.num_clusters
            assert found["planned_rounds"] == 4
            assert "epsilon" not in found
        assert found["last_round_timestamp_seconds"] > found["rounds_created"]


def test_clients_that_are_missing_refused_or_bounded_are_counted(tmp_path: Path) -> None:
    faults = ("faults.drop=0.2", "faults.huge=0.2", "limits.max_norm_ratio=1")
    folder = created(tmp_path / "one", "limits.quorum=0", *faults)
    with measured(folder) as (rounds, url):
        done = list(rounds)
        found = scraped(url)
    for name in ("missing", "refused", "bounded"):
        assert found[f"clients_{name}_total"] == sum(len(getattr(r, name)) for r in done) > 0
    silent = sum(len(r.missing) for r in done)
    assert found["clients_answered_total"] == found["clients_asked_total"] - silent


def test_clients_in_quarantine_are_those_of_the_last_round(tmp_path: Path) -> None:
    attack = "attack={kind='sign-flip', clients=['2'], strength=10.0}"
    folder = created(tmp_path / "one", "limits.quarantine=3.5", attack)
    with measured(folder) as (rounds, url):
        assert "clients_suspicious" not in scraped(url)
        for record in rounds:
            above = [
                n for n, suspicion in enumerate(record.suspicion or ()) if (suspicion or 0) > 3.5
            ]
            assert scraped(url)["clients_suspicious"] == len(above)
        assert above == [2]


def test_clients_that_move_are_those_of_the_story(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "umbel.run")
    moving = ("algorithm={name='ifca', num_clusters=3, local={epochs=1}}", "rounds=6")
    folder = created(tmp_path / "one", *moving)
    with measured(folder) as (rounds, url):
        list(rounds)
        found = scraped(url)
    told = [m.partition(" models, ")[2] or m for m in caplog.messages if " moved to " in m][1:]
    count = sum(int(m.split(" client")[-2].split()[-1]) for m in told)
    assert found["clients_moved_total"] == count > 0


def test_clients_that_come_and_leave_are_counted(tmp_path: Path) -> None:
    ifca = "algorithm={name='ifca', num_clusters=3, local={epochs=1}}"
    moving = (ifca, "membership.forget_after=0", "rounds=6")
    rates = ("membership.joining=0.2", "membership.leaving=0.2", "membership.share=0.5")
    folder = created(tmp_path / "one", *moving, *rates)
    with measured(folder) as (rounds, url):
        done = list(rounds)
        found = scraped(url)
    for name in ("joined", "left", "moved"):
        assert found[f"clients_{name}_total"] == sum(len(getattr(r, name)) for r in done) > 0


def test_a_resumed_run_counts_on_and_so_does_its_epsilon(tmp_path: Path) -> None:
    private = ("algorithm={name='fedavg', local={epochs=1}}", "privacy={clip=1.0}")
    folder = created(tmp_path / "one", *private)
    with measured(folder) as (rounds, url):
        next(rounds)
        next(rounds)
        privacy = package.Privacy(clip=1.0)
        assert scraped(url)["epsilon"] == privacy.epsilon(2)
    rounds.close()  # type: ignore[attr-defined]
    with measured(folder) as (rounds, url):
        next(rounds)
        found = scraped(url)
        assert (found["rounds_total"], found["epsilon"]) == (3, privacy.epsilon(3))
    rounds.close()  # type: ignore[attr-defined]


def test_the_command_line_says_where_the_numbers_are(umbel: Shell) -> None:
    printed, _ = umbel("run", "both/fedavg.toml", "--metrics", "0")
    assert printed.startswith("metrics: http://127.0.0.1:")
    assert "metrics:" not in umbel("resume", "runs/fedavg-seed0", "--metrics", "0")[0]  # finished


@pytest.mark.parametrize("given", ["soon", "127.0.0.1", ":9464", "127.0.0.1:70000", "-1"])
def test_an_address_that_is_none_is_refused(given: str, umbel: Shell) -> None:
    said = umbel.refused("run", "both/fedavg.toml", "--metrics", given)
    assert f"--metrics: {given!r} is not PORT or HOST:PORT" in said


def test_an_address_that_others_use_is_refused_and_nothing_is_left(umbel: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = umbel.refused("run", "both/fedavg.toml", "--metrics", str(port))
    assert f"metrics: 127.0.0.1:{port}: Address already in use" in said
    assert not (umbel.folder / "runs").exists()


class Scraper(logging.Handler):
    """Scrapes after the second round that the log tells of."""

    url, found = "", dict[str, float]()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith("metrics: "):
            self.url = message.removeprefix("metrics: ")
        if message.startswith("round 2/"):
            self.found = scraped(self.url)


def test_a_server_app_serves_them_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "umbel")
    logger, scraper = logging.getLogger("umbel.flower.server"), Scraper()
    logger.addHandler(scraper)
    settings = Settings(8, runs_dir=str(tmp_path / "runs"), metrics="127.0.0.1:0")
    try:
        serve(grid_of(SMALL, tmp_path), SMALL, settings)
    finally:
        logger.removeHandler(scraper)
    assert scraper.found["rounds_total"] == 2
    assert scraper.found["clients_asked_total"] == 2 * 6
    with pytest.raises(package.UsageError, match="metrics: 'x' is not PORT"):
        Settings.of({"metrics": "x"})


needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus and promtool (Debian's package prometheus) are not here",
)


def promtool(*arguments: str, given: str = "") -> None:
    done = subprocess.run(
        ["promtool", *arguments], input=given, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


@needs_prometheus
@pytest.mark.deployment
def test_prometheus_finds_no_fault_and_shows_the_rounds(tmp_path: Path) -> None:
    with measured(created(tmp_path / "one", "privacy={clip=1.0}")) as (rounds, url):
        list(rounds)
        with urlopen(url) as answer:  # the plain form, for which promtool has its rules
            promtool("check", "metrics", given=answer.read().decode())
        target = url.removeprefix("http://").removesuffix("/metrics")
        with prometheus(tmp_path, target) as query:
            labels = {"run": "one", "method": "flacc"}
            wait_until(lambda: query("umbel_rounds_total"), "Prometheus has no rounds")
            (series,) = query("umbel_rounds_total")
            assert labels.items() <= series["metric"].items()
            assert series["value"][1] == "4"


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Callable[[str], list[Any]]]:
    """Prometheus that scrapes a host and port, with its files in a folder, and how to ask it."""
    jobs = [{"job_name": "umbel", "static_configs": [{"targets": [target]}]}]
    config = {"global": {"scrape_interval": "100ms"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    command = ["prometheus", f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def query(expression: str) -> list[Any]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={expression}") as answer:
                return list(json.load(answer)["data"]["result"])
        except OSError:  # it is still starting
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            return []

    try:
        yield query
    finally:
        process.kill()
        process.wait()


def test_dashboard_and_alarms_name_what_a_run_serves() -> None:
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    named = {t["expr"] for panel in dashboard["panels"] for t in panel["targets"]}
    text = " ".join([*named, (DEPLOY / "alarms.yml").read_text()])
    served = {f"{name}_total" for name in COUNTERS} | {*GAUGES}
    served |= {f"round_seconds_{part}" for part in ("sum", "count")}
    assert set(re.findall(r"umbel_(\w+)", text)) == served


BEHIND = """
rule_files: ["{rules}"]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'umbel_last_round_timestamp_seconds{{run="a"}}', values: '60x60'}}
      - {{series: 'umbel_round_seconds_sum{{run="a"}}', values: '20x60'}}
      - {{series: 'umbel_round_seconds_count{{run="a"}}', values: '2x60'}}
      - {{series: 'umbel_clients_asked_total{{run="a"}}', values: '0+10x60'}}
      - {{series: 'umbel_clients_missing_total{{run="a"}}', values: '0+2x30 60+3x30'}}
    promql_expr_test: []
    alert_rule_test:
      - {{eval_time: 6m, alertname: UmbelNoRound}}
      - eval_time: 8m
        alertname: UmbelNoRound
        exp_alerts:
          - exp_labels: {{run: a, severity: critical}}
            exp_annotations:
              summary: "a: no round for 7m 0s"
              description: {description}
      - {{eval_time: 30m, alertname: UmbelClientsMissing}}
"""


@needs_prometheus
def test_promtool_finds_no_fault_in_the_alarms_which_go_off_when_no_round_comes(
    tmp_path: Path,
) -> None:
    promtool("check", "rules", str(DEPLOY / "alarms.yml"))
    promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    found = re.search("description: (Five times.*)", (DEPLOY / "alarms.yml").read_text())
    assert found is not None
    case = tmp_path / "case.yml"
    case.write_text(BEHIND.format(rules=DEPLOY / "alarms.yml", description=found[1]))
    promtool("test", "rules", str(case))
