"""Tables whose clients differ by nature: flights by carrier and airport, packages by team."""

from umbel.data.scenarios.table import Table

FLIGHTS = Table(
    source="natural/flights.parquet",
    client="client",
    target="late",
    columns=(
        *("hour_of_departure", "weekday", "month", "distance"),
        *("temp", "humid", "wind_speed", "precip", "visib"),
    ),
    attributes=("carrier", "origin"),
    time=("month", "day", "hour_of_departure"),
    test_fraction=0.25,
)
"""Flights of 2013 from New York: predict delays over 15 minutes from time and weather.

A client is a carrier at an airport. With `split = "time"` the last months are for the test.
"""

PACKAGES = Table(
    source="natural/packages.parquet",
    client="client",
    target="section",
    columns=("text",),
    texts=("text",),
    test_fraction=0.25,
)
"""One-line descriptions of Debian packages: predict the section. A client is a team."""
