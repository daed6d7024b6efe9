"""Whether the Hugging Face hub answers: its own library retries for half a minute to find out."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, InvalidURL
from types import ModuleType
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

PATIENCE = 5.0
"""Seconds within which a hub that can be reached answers."""


def answers(url: str, patience: float = PATIENCE) -> bool:
    """Whether anybody answers there in time, whatever the answer is.

    The request has a thread of its own, as the look-up of a name has no time limit.
    """
    answered = threading.Event()

    def ask() -> None:
        try:
            if _answers(url, patience):
                answered.set()
        finally:
            done.set()

    done = threading.Event()
    threading.Thread(target=ask, daemon=True).start()
    done.wait(patience)
    return answered.is_set()


def _answers(url: str, patience: float) -> bool:
    try:
        urlopen(Request(url, method="HEAD"), timeout=patience).close()
    except HTTPError:
        return True
    except URLError as error:  # with certificates of another kind, the library may get through
        return isinstance(error.reason, ssl.SSLError)
    except (OSError, ValueError, InvalidURL):  # the last two: what is no address
        return False
    except HTTPException:  # somebody is there, who speaks otherwise
        return True
    return True


@contextmanager
def offline(datasets: ModuleType) -> Iterator[None]:
    """In here the library asks nobody, and reads only what it has downloaded before."""
    before, datasets.config.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before
