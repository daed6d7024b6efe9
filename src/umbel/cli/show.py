"""Commands that look at the results of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from umbel.checks import UsageError, check, command
from umbel.cli.catalogue import complete_runs
from umbel.cli.loading import loading
from umbel.cli.options import (
    FilePath,
    data_dir_option,
    form_options,
    judge_option,
    no_import_option,
    only_option,
    without_option,
)
from umbel.cli.printing import RowFormat, how_far, print_rows, print_tables, say, say_lines
from umbel.result.table import Table
from umbel.summary import counted, few

if TYPE_CHECKING:
    from umbel.experiment.experiment import ExperimentSettings
    from umbel.folder.run_folder import RunFolder

PLOT_HELP = "Also draw a figure, to a file that ends in .png, .svg, .pdf."

run_argument = click.argument("run", type=FilePath(), shell_complete=complete_runs)


@click.command()
@run_argument
@click.option("--at", help="Rounds, such as 5,10,30: show the accuracy after each.")
@click.option("--reach", help="Show how many rounds it took to reach this, such as purity=0.9.")
@click.option("--config", is_flag=True, help="Print the settings of the run as TOML.")
@click.option("--latex", is_flag=True, help="Print the table of methods in LaTeX, for booktabs.")
@click.option(
    "--rows",
    "kind",
    type=click.Choice(["runs", "rounds", "clients", "differences"]),
    default="runs",
    show_default=True,
    help="What a row of --json or --csv is about.",
)
@only_option
@without_option
@judge_option
@form_options
def show(
    run: Path,
    at: str | None,
    reach: str | None,
    config: bool,
    latex: bool,
    kind: Literal["runs", "rounds", "clients", "differences"],
    only: tuple[str, ...],
    without: tuple[str, ...],
    judge: str | None,
    form: RowFormat | None,
) -> None:
    """Show a RUN, finished or not; the comparison in a folder of finished runs; or advice.

    With --json or --csv every run counts, finished or not, in RUN and in folders in it.
    """
    with loading():
        from umbel.folder.run_folder import RunFolder
        from umbel.result.outcomes import chosen
        from umbel.result.run import Result
        from umbel.result.tables import results_of, run_folders

    _check_together(at or reach, config, kind, judge, form)
    if latex:
        from umbel.report.comparison import sheet
        from umbel.result.outcomes import by_method

        check(form is None and not (at or reach), "--latex", True, "allowed with other formats")
        runs = chosen(list(map(Result, run_folders(run))), only, without)
        say_lines(sheet(by_method([each for each in runs if each.records])).latex)
    elif config:
        say_lines(RunFolder.open(run).toml)
    elif form is not None:
        runs = chosen(list(map(Result, run_folders(run))), only, without)
        folders = [each.folder for each in runs]
        results = results_of(folders)
        differ = kind == "differences"
        table: Table = results.differences(judge) if differ else getattr(results, kind)
        if at is not None or reach is not None:
            from umbel.cli.show_by_round import course_rows, goal_of

            goal = None if reach is None else goal_of(reach, (f.experiment for f in folders))
            table = course_rows(results, at, goal)
        print_rows(table, form)
    else:
        _print_results(run, at, reach, judge, only, without)


def _check_together(
    course: str | None, config: bool, kind: str, judge: str | None, form: RowFormat | None
) -> None:
    """Raise `UsageError` for options of which one would not count beside another."""
    if config and (course, judge, form) != (None, None, None):
        raise UsageError("--config: prints only the settings; leave the other options out")
    if judge is not None and course is not None:
        raise UsageError("--judge: leave it out with --at and --reach, which compare no methods")
    if form is None and kind != "runs":
        raise UsageError(f"--rows {kind}: says what --json and --csv print; give one of these")
    if form is not None and judge is not None and kind != "differences":
        raise UsageError("--judge: needs --rows differences with --json or --csv")
    if course is not None and kind not in ("runs", "rounds"):
        raise UsageError(f"--rows {kind}: leave it out with --at and --reach, which print rounds")


def _print_results(
    run: Path,
    at: str | None,
    reach: str | None,
    judge: str | None,
    only: Sequence[str],
    without: Sequence[str],
) -> None:
    """One run in detail, a table of several, or advice."""
    from umbel.cli.show_by_round import goal_of, rounds_of
    from umbel.folder.how_to_continue import holds_advice
    from umbel.folder.run_folder import RunFolder, runs_in
    from umbel.report.terminal import by_round as course_tables
    from umbel.report.terminal import comparison as standing_tables
    from umbel.report.terminal import results as terminal
    from umbel.result.outcomes import chosen
    from umbel.result.run import Result

    folders = runs_in(run)
    if not folders:
        check(not only and not without, "--only, --without", str(run), "a folder of several runs")
        advised = at is None and reach is None and holds_advice(run) and not RunFolder(run).begun
        folder = RunFolder(run) if advised else RunFolder.open(run)
        if judge is not None:
            what = "advice" if advised else "a single run"
            raise UsageError(f"--judge: compares methods, and {run} is {what}")
        if advised:  # the room of advice takes a while to import
            from umbel.advice.advice_folder import read_summary
            from umbel.cli.advise import print_advice

            print_advice(read_summary(run))
            return
        if at is None and reach is None:
            print_run(folder)
            return
        folders = [folder]
    finished = [folder for folder in folders if folder.finished]
    check(bool(finished), "run", str(run), "a folder with a finished run in it")
    runs = chosen(list(map(Result, finished)), only, without)
    wanted = []
    if at is None and reach is None:
        wanted = [*terminal.results(runs), *standing_tables.statistics(runs, judge)]
    if at is not None:
        most = max(len(each.records) for each in runs)
        wanted += course_tables.course(runs, rounds_of(at, most))
    if reach is not None:
        goal = goal_of(reach, (each.experiment for each in runs))
        wanted.append(course_tables.reached(runs, *goal))
    print_tables(*wanted, sep="\n" if at is None and reach is None else "")
    left = [folder.path.name for folder in folders if not folder.finished]
    if left:
        say(f"not finished: {few(left)}; `{command('show', run)} --csv` has rows for them, too")


@click.command()
@run_argument
@click.argument("data", type=FilePath())
@click.option(
    "--unlabelled",
    is_flag=True,
    help="Use inputs alone; needs the run's own data once. Refused if inputs tell too little.",
)
@data_dir_option
@no_import_option
@form_options
def assign(
    run: Path,
    data: Path,
    unlabelled: bool,
    data_dir: Path | None,
    no_import: bool,
    form: RowFormat | None,
) -> None:
    """Give newcomers their cluster of a finished RUN, by its method's own rule.

    DATA is a .npz file with arrays x and y, or a folder with one such file a client; or for a RUN
    of a table, one with the same columns (.csv, .parquet). With --unlabelled y, or the target, may
    be left out.
    """
    from umbel.cli.options import allow, allow_parts
    from umbel.report.terminal import results as terminal
    from umbel.result.run import load

    result = load(run)
    if unlabelled:  # the run's own data are made again
        allow(result.experiment, no_import)
    else:
        allow_parts(result.experiment, ["model", "algorithm"], no_import)
    assigned = result.assign(data, labelled=not unlabelled, data_dir=data_dir)
    if form is None:
        print_tables(terminal.assignment(assigned))
        if assigned.unlike:
            say(terminal.unlike(assigned))
        return
    sure = None if assigned.confidence is None else assigned.confidence.tolist()
    rows = [
        {"client": name, "cluster": cluster}
        | ({} if sure is None else {"confidence": sure[n]})
        | ({} if assigned.run_losses is None else {"unlike_the_run": name in assigned.unlike})
        | {f"score_{k}": score for k, score in enumerate(assigned.scores[n].tolist())}
        for n, (name, cluster) in enumerate(assigned.clusters.items())
    ]
    print_rows(Table.of(rows), form)


@click.command(name="estimate-clusters")
@run_argument
@click.option("--plot", type=FilePath(), help=PLOT_HELP)
@no_import_option
@form_options
def estimate_clusters(
    run: Path, plot: Path | None, no_import: bool, form: RowFormat | None
) -> None:
    """Estimate how many clusters there are from what a finished RUN clustered its clients by.

    One cluster is among the answers: then the clients do not seem to form groups.
    """
    from umbel.cli.options import allow_parts
    from umbel.files.reading import check_place
    from umbel.report.clustering_evidence import cluster_count
    from umbel.report.figures.drawing import check_format, draw
    from umbel.report.terminal import results as terminal
    from umbel.result.run import load
    from umbel.server.cluster_count import count_clusters, known

    if plot is not None:
        check_format(plot)
        check_place(plot, "--plot")
    result = load(run)
    allow_parts(result.experiment, ["model", "algorithm"], no_import)
    profile = result.profile
    count = count_clusters(profile, result.experiment.seed)
    unknown = len(profile) - len(known(profile))
    if form is None:
        print_tables(terminal.cluster_count(count))
        say(count.verdict)
        if unknown:
            say(f"Left out: {counted(unknown, 'client')} whose answers are not complete.")
    else:
        print_rows(Table.of([{"folder": str(run), **count.summary()}]), form)
    if plot is not None:
        draw(cluster_count(count), plot)
        say(f"drawn: {plot}", err=form is not None)


def print_run(folder: RunFolder) -> None:
    """The results of a run so far, and its clusters if it is finished.

    After a kill the records may be ahead of the checkpoint: `resume` repeats those rounds.
    """
    from umbel.folder.how_to_continue import names_on_the_roll
    from umbel.report.evenness import of_clients
    from umbel.report.terminal import results as terminal
    from umbel.result.run import Result
    from umbel.run.metrics import names_of

    run = Result(folder)
    records, clients = run.records, run.clients if run.finished else []
    stopped = f": stopped after {how_far(folder)}" if folder.stop else ""
    say(f"{folder.path}{stopped}" + ("" if clients else " (not finished)"))
    say(_what(run.experiment))
    if records:
        shown = names_of(run.experiment), of_clients(run), clients, len(records)
        print_tables(terminal.run_table(run.so_far, *shown))
    if run.drift.changes:
        print_tables(terminal.steps(run))
    if clients:
        print_tables(terminal.clusters(clients))
        for cluster, why in run.withheld.items():
            who = few([client.name for client in clients if client.cluster == cluster])
            say(f"cluster {cluster}: the model is not released: {why} ({who})")
    names = [client.name for client in clients] or names_on_the_roll(folder.path)
    absences = terminal.absences(records, names)
    if absences is not None:
        print_tables(absences)


def _what(experiment: ExperimentSettings) -> str:
    """Describe the experiment in short; --config has the rest."""
    from umbel.experiment.toml_file import plain

    method, network = (plain(part)["name"] for part in (experiment.algorithm, experiment.model))
    network = "of a module made in Python" if ":Own" in network else network
    return f"method {method}, network {network}"
