"""Client app of every site; `load` is where it reads its own examples."""

from pathlib import Path

from flwr.app import Context

from umbel import Experiment, Federation, Sources
from umbel.data.scenarios.folder import read_clients
from umbel.flower import client_app, slice_of
from umbel.flower.configuration import number_in


def load(context: Context, experiment: Experiment) -> Federation:
    """The clients of this node, each with a name of its own in the whole federation."""
    if "data" in context.node_config:  # a folder with one .npz file a client: arrays x and y
        classes = number_in(context.node_config, "classes", int, 10)
        return read_clients(Path(str(context.node_config["data"])), classes, test_fraction=0.2)
    scenario = experiment.scenario.build(experiment.seed, Sources.default())
    return slice_of(context, scenario)


app = client_app(Path(__file__).parents[1] / "experiment.toml", load)
