"""The quickstart, run as the job it is, and judged by the source package and by somebody else's reader."""

from pathlib import Path

import nbformat
import pytest

from fluss_lab.jobs import Jobs
from fluss_lab.testing.readers import duckdb_rows
from fluss_lab.workbench import Lab, nyc_flights

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


@pytest.mark.spark
@pytest.mark.slow
def test_the_quickstart_runs_and_its_table_is_the_source(tmp_path):
    """In a folder with a space in its name; the notebook asserts its own counts and sums after every step."""
    folder = tmp_path / "a lab"
    run = Jobs(folder).run(NOTEBOOK)
    source = nyc_flights()
    assert run.summary["rows_appended"] == run.summary["rows_read_back"] == source.num_rows == 336_776
    assert run.summary["log_end_offsets"] == source.num_rows
    executed = nbformat.read(run.output, as_version=4)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs), "the plot is missing"
    noise = [output["text"] for output in outputs if output.get("name") == "stderr" and "task" not in output["text"]]
    assert not noise

    with Lab.open(folder) as lab:
        columns = ["month", "carrier", "flight", "origin", "dest", "dep_delay", "distance", "time_hour"]
        iceberg = lab.iceberg("nyc.flights")
        theirs = duckdb_rows(iceberg.metadata_location).select(columns)
        keys = [(name, "ascending") for name in columns]
        expected = source.select(columns).sort_by(keys)
        assert theirs.cast(expected.schema).sort_by(keys).equals(expected)
        assert (
            iceberg.scan(selected_fields=("distance",)).to_arrow()["distance"].to_pylist().__len__() == source.num_rows
        )
