"""Quick test whether the Hugging Face hub answers; its library retries for half a minute."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, InvalidURL
from types import ModuleType
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

PATIENCE = 5.0
"""Time limit for an answer of the hub, in seconds."""


def answers(url: str, patience: float = PATIENCE) -> bool:
    """Whether a server answers at this address in time, with any answer."""
    try:
        urlopen(Request(url, method="HEAD"), timeout=patience).close()
    except URLError as error:  # the library may succeed with other certificates
        return isinstance(error, HTTPError) or isinstance(error.reason, ssl.SSLError)
    except (OSError, ValueError):  # the last one: invalid addresses
        return False
    except HTTPException as error:  # a server answers, in another protocol
        return not isinstance(error, InvalidURL)
    return True


@contextmanager
def offline(datasets: ModuleType) -> Iterator[None]:
    """Inside the block, the library makes no requests, and reads only its own cache."""
    before, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
