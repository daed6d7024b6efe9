"""Channel state information: responses of radio channels, by antenna and delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data.sources import DATA_DIR_VARIABLE, Sources

Channels = NDArray[np.float32]  # (n, 2, 32, 32): real and imaginary part, delay, angle

SIDE = 32  # number of delays that are kept, and of antennas
BAND = 1024  # number of subcarriers, and of delays before the first 32 are selected

FILES: Mapping[str, str] = {"indoor": "DATA_Htrainin.mat", "outdoor": "DATA_Htrainout.mat"}
"""COST2100's files, in the folder `cost2100` of the data directory."""


@dataclass(frozen=True)
class Environment:
    """Distribution of the paths from sender to receiver; delays in taps, angles in 32 beams."""

    paths: tuple[int, int]  # range of the number of paths
    onset: tuple[float, float]  # range of the first path's delay
    delay_spread: float  # mean additional delay of other paths; also the decay constant of power
    sector: tuple[float, float]  # range of the mean angle
    angle_spread: float  # standard deviation around the mean angle


ENVIRONMENTS: Mapping[str, Environment] = {
    "indoor": Environment((2, 5), (0.0, 1.0), 1.0, (8.0, 24.0), 3.0),
    "outdoor": Environment((10, 20), (2.0, 8.0), 5.0, (0.0, 32.0), 6.0),
    "hall": Environment((8, 16), (0.0, 2.0), 2.5, (0.0, 32.0), 8.0),
    "street": Environment((4, 8), (1.0, 4.0), 4.0, (2.0, 10.0), 2.0),
    "rural": Environment((1, 3), (6.0, 16.0), 1.5, (20.0, 30.0), 1.0),
}
"""Environments by name, for example few paths and short delays indoors."""


def generated(environment: Environment, count: int, rng: np.random.Generator) -> Channels:
    """Channels with random paths, each with a mean square of 1.

    A channel is a sum over paths of gain times delay response times angular response. The gain is
    complex normal, its power decays exponentially with the delay; the responses are those of an
    array of 32 antennas and a band of 1,024 subcarriers to a plane wave, so that a path between
    two grid points leaks into their neighbours.
    """
    low, high = environment.paths
    shape = (count, high)
    present = np.arange(high) < rng.integers(low, high + 1, count)[:, None]
    further = rng.exponential(environment.delay_spread, shape)
    further[:, 0] = 0.0
    delays = rng.uniform(*environment.onset, (count, 1)) + further
    angles = rng.uniform(*environment.sector, (count, 1))
    angles = angles + rng.normal(0.0, environment.angle_spread, shape)
    power = present * np.exp(-further / environment.delay_spread)
    gains = np.sqrt(power) * (rng.normal(size=shape) + 1j * rng.normal(size=shape))
    grid = np.arange(SIDE)
    of_delay = gains[..., None] * _response(delays[..., None] - grid, BAND)
    channel = of_delay.swapaxes(1, 2) @ _response(angles[..., None] - grid, SIDE)
    return normalised(np.stack([channel.real, channel.imag], axis=1))


def _response(offset: NDArray[np.float64], size: int) -> NDArray[np.complex128]:
    """Dirichlet kernel: response of a grid point to a wave that is `offset` points away."""
    phase = np.exp(1j * np.pi * offset * (size - 1) / size)
    response: NDArray[np.complex128] = phase * np.sinc(offset) / np.sinc(offset / size)
    return response


def normalised(channels: NDArray[np.floating]) -> Channels:
    """The matrices, scaled to mean square 1, so that the mean squared error is normalised."""
    power = (channels**2).mean(axis=(1, 2, 3), keepdims=True)
    result: Channels = (channels / np.sqrt(np.maximum(power, 1e-30))).astype(np.float32)
    return result


def cost2100(environment: str, sources: Sources) -> Channels:
    """All channels of COST2100's training file, each with a mean square of 1.

    A file holds an array HT (n, 2048) of values in 0 to 1, in which 0.5 stands for 0. Raises
    `UsageError` if the file is missing.
    """
    if environment not in FILES:
        raise UsageError(f"environments: COST2100 has {' and '.join(FILES)}, not {environment!r}")
    if sources.data_dir is None:
        raise UsageError(
            "source: cost2100 is read from the folder cost2100 of a data directory; "
            f"set {DATA_DIR_VARIABLE} or --data-dir"
        )
    file = sources.data_dir / "cost2100" / FILES[environment]
    if not file.is_file():
        raise UsageError(f"source: 'cost2100' is not in the data directory: there is no {file}")
    return normalised(_values(file) - np.float32(0.5))


def _values(file: Path) -> Channels:
    from scipy.io import loadmat  # slow to import

    try:
        table = np.asarray(loadmat(file, variable_names=["HT"])["HT"], dtype=np.float32)
        return table.reshape(-1, 2, SIDE, SIDE)
    except Exception as error:  # scipy's parsers raise any exception
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"{file}: not a MATLAB file with HT (n, 2048): {reason}") from None
