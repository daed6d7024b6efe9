"""Federations whose clients are on other machines, through Flower (`pip install umbel[flower]`)."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    said = f'{error}: umbel.flower needs an extra: pip install "umbel[flower]"'
    raise ModuleNotFoundError(said, name=error.name) from None

from umbel.flower.client import client_app, site_clients, slice_of
from umbel.flower.engine import FlowerEngine
from umbel.flower.server import Settings, serve, server_app

__all__ = [
    "FlowerEngine",
    "Settings",
    "client_app",
    "serve",
    "server_app",
    "site_clients",
    "slice_of",
]
