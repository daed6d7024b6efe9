"""The client app of every site; `load` reads the site's own examples."""

from pathlib import Path

from flwr.app import Context

from umbel import Experiment, Federation, Sources
from umbel.flower import client_app, site_clients, slice_of


def load(context: Context, experiment: Experiment) -> Federation:
    """The clients of this node, each with a name of its own in the whole federation."""
    if "data" in context.node_config:  # a folder with one .npz file a client: arrays x and y
        return site_clients(context)
    scenario = experiment.scenario.build(experiment.seed, Sources.default())
    return slice_of(context, scenario)


app = client_app(Path(__file__).parents[1] / "experiment.toml", load)
