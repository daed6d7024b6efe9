"""The server app."""

from pathlib import Path

from umbel.flower import server_app

app = server_app(Path(__file__).parents[1] / "experiment.toml")
