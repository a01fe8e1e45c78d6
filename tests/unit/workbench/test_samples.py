"""The sample data: as the package has it, in the types that are promised."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fluss_lab.workbench import nyc_airports, nyc_flights, nyc_planes

pytestmark = pytest.mark.slow


def test_flights_come_in_order_with_months_as_text():
    flights = nyc_flights()
    assert flights.num_rows == 336_776
    assert flights.schema.field("month").type == pa.string()
    assert pc.unique(flights["month"]).to_pylist() == [f"2013-{month:02d}" for month in range(1, 13)]
    assert flights.schema.field("time_hour").type == pa.timestamp("us", "UTC")
    hours = flights["time_hour"].to_pylist()
    assert hours == sorted(hours)
    assert {str(f.type) for f in flights.schema} == {"int32", "string", "timestamp[us, tz=UTC]"}
    assert flights["dep_time"].null_count == 8_255  # cancelled ones


def test_planes_have_one_row_a_tail_number_and_nulls_where_nothing_is_known():
    planes = nyc_planes()
    assert planes.num_rows == len(pc.unique(planes["tailnum"])) == 3_322
    assert planes["year"].null_count == 70
    assert planes["tailnum"].null_count == 0
    assert {str(f.type) for f in planes.schema} == {"int32", "string"}


def test_airports_have_one_row_a_code_and_most_flights_have_theirs():
    airports = nyc_airports()
    assert airports.num_rows == len(pc.unique(airports["faa"])) == 1_458
    assert airports["faa"].null_count == 0
    destinations = pc.unique(nyc_flights()["dest"])
    assert pc.sum(pc.is_in(destinations, airports["faa"])).as_py() >= len(destinations) - 4
    assert {str(f.type) for f in airports.schema} == {"int32", "double", "string"}
