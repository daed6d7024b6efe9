from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.experiment.library import find_experiment
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.report.clustering_evidence import cluster_count
from umbel.report.figures.drawing import draw
from umbel.result.run import load, read
from umbel.server.cluster_count import ClusterCount, count_clusters, largest_gap, singular_values
from umbel.server.cluster_test import LEVEL, judge


@pytest.fixture(scope="module")
def three() -> ClusterCount:
    """What is found among three groups."""
    return count_clusters(grouped(3))


def grouped(num_groups: int, size: int = 8, noise: float = 0.05) -> Tensor:
    """Clients whose vectors scatter around one direction a group, each orthogonal to the others."""
    draw = torch.manual_seed(num_groups)
    centres = torch.linalg.qr(torch.randn(200, num_groups, generator=draw))[0].T
    scatter = torch.randn(num_groups * size, 200, generator=draw) * noise / 200**0.5
    clients: Tensor = centres.repeat_interleave(size, 0) + scatter
    return clients


def test_the_number_of_groups_is_found_in_three_ways(three: ClusterCount) -> None:
    assert (three.rank, three.elbow, three.gap_statistic) == (3, 3, 3)


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("num_groups", [1, 2, 3, 4, 5, 6])
def test_the_verdict_is_the_number_of_planted_groups(num_groups: int, noise: float) -> None:
    clients = grouped(num_groups, 24 if num_groups == 1 else 6, noise)
    assert judge(clients, 20, 0)[0] == num_groups


def test_the_verdict_is_a_sentence_that_says_how_sure_it_is(three: ClusterCount) -> None:
    assert three.verdict == (
        "3 clusters (sure): by chance, 0.5% of clients without groups look as grouped as "
        "these. Other estimates that agree: the largest gap, the elbow, the gap statistic."
    )
    unsure = replace(three, chance=0.03, rank=1, elbow=4)
    assert unsure.verdict.startswith("3 clusters (unsure): by chance, 3.0% of clients")
    assert unsure.verdict.endswith("agree: the gap statistic.")
    assert replace(unsure, gap_statistic=9).agreeing == ()


def test_groups_along_a_line_are_told_apart() -> None:
    """Their vectors span one dimension, so that a gap of singular values can't count them."""
    places = torch.tensor([-1.0, 0.0, 1.0]).repeat_interleave(8)
    rows = places[:, None] * torch.ones(1, 30)
    rows += 0.1 * torch.randn(rows.shape, generator=torch.manual_seed(0))
    assert judge(rows, 20, 0)[0] == 3
    assert largest_gap(singular_values(rows)) == 1


def test_groups_are_not_split_for_a_gap_that_is_hardly_wider() -> None:
    """The gap of one more cluster than there are groups is the widest."""
    assert judge(grouped(4, size=20), 20, 0)[0] == 4


@pytest.mark.thorough
def test_without_groups_several_clusters_are_found_as_rarely_as_promised() -> None:
    draw = torch.manual_seed(1)
    spread = torch.linspace(3, 0.1, 40)  # longer along some axes than along others
    verdicts = [judge(torch.randn(16, 40, generator=draw) * spread, 20, seed) for seed in range(15)]
    assert sum(number > 1 for number, _ in verdicts) <= 2
    assert all((number > 1) == (chance < LEVEL) for number, chance in verdicts)


def test_groups_that_drown_in_noise_are_one_cluster_and_it_says_so() -> None:
    found = count_clusters(grouped(3, noise=10.0))
    assert found.clusters == 1
    assert "can't be told from chance" in found.verdict


def test_the_verdict_does_not_depend_on_scale_order_or_a_common_part() -> None:
    rows = grouped(4, noise=0.5)
    shuffled = rows[torch.randperm(len(rows), generator=torch.manual_seed(0))]
    for other in (1e-6 * rows, 1e6 * rows, rows + 100, shuffled, rows.float()):
        assert judge(other, 20, 0)[0] == 4


def test_of_many_clients_a_sample_is_judged() -> None:
    assert judge(grouped(3, size=120), 20, 0)[0] == 3


@pytest.mark.parametrize(("angles", "wanted"), [((0.0,), 1), ((0.0, 180.0), 2)])
def test_the_verdict_of_a_run_is_the_number_of_its_groups(
    angles: tuple[float, ...], wanted: int, tmp_path: Path, sources: Sources
) -> None:
    shift = f"scenario.shift={{name='rotate', angles={list(angles)}}}"
    experiment = read(find_experiment("cfl-gp-digits"), ["rounds=6", shift])
    folder = RunFolder.begin(tmp_path, experiment)
    assert len(list(execute(folder, sources))) == 6
    assert judge(load(folder.path).profile, 20, 0)[0] == wanted


def test_clients_without_a_vector_are_left_out(three: ClusterCount) -> None:
    rows = grouped(3)
    silent = torch.full((9, rows.shape[1]), torch.nan)
    count = count_clusters(torch.cat([silent, rows]))
    assert count.summary() == three.summary()
    np.testing.assert_array_equal(singular_values(torch.cat([rows, silent])), count.singular_values)
    with pytest.raises(UsageError, match="clients: 2 is not 3 or more"):
        count_clusters(torch.cat([silent, rows[:2]]))


def test_singular_values_are_those_of_a_dense_svd() -> None:
    rows = torch.randn(7, 30, generator=torch.manual_seed(0))
    found = count_clusters(rows).singular_values
    np.testing.assert_allclose(found, torch.linalg.svdvals(rows.double()).numpy(), rtol=1e-6)


def test_clients_that_are_all_alike_are_one_cluster() -> None:
    found = count_clusters(torch.ones(6, 5))
    assert (found.rank, found.elbow, found.gap_statistic) == (1, 1, 1)
    assert (found.clusters, found.chance, found.certainty) == (1, 1.0, "likely")
    assert found.summary()["clusters"] == 1


def test_there_is_nothing_to_count_among_two() -> None:
    with pytest.raises(UsageError, match="clients: 2 is not 3 or more"):
        count_clusters(torch.ones(2, 5))


def test_the_figure_is_drawn_and_other_files_are_refused(
    three: ClusterCount, tmp_path: Path
) -> None:
    draw(cluster_count(three), tmp_path / "count.png")
    assert (tmp_path / "count.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"--plot: .* is not a file that ends in \.png"):
        draw(cluster_count(three), tmp_path / "count.txt")


def test_equal_vectors_have_no_elbow_however_their_mean_is_rounded() -> None:
    vectors = torch.randn(12, 40, generator=torch.manual_seed(0))[:1].repeat(12, 1)
    assert count_clusters(vectors).elbow == 1
    # Rows of which no two are the same in their last bits.
    noise = 1e-15 * torch.randn(12, 40, generator=torch.manual_seed(1), dtype=torch.double)
    found = count_clusters(vectors.double() * (1 + noise))
    assert (found.clusters, found.elbow) == (1, 1)
