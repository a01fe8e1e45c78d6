"""A Jupyter-centric workbench for the streaming lakehouse.

Streaming tables in a small embedded cluster, tiered by Spark into Apache Iceberg, read as one::

    import fluss_lab as fl

    with fl.Lab.open("lab") as lab:
        lab.create_database("nyc")

Names are loaded on first use, so importing this costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluss_lab.errors import FlussError
    from fluss_lab.model import OffsetSpec, TableBucket, TablePath
    from fluss_lab.read.moment.read_point import ReadPoint
    from fluss_lab.workbench import Lab, LabStatus, LookupMetrics, Table, nyc_airports, nyc_flights, nyc_planes

__all__ = [
    "FlussError",
    "Lab",
    "LabStatus",
    "LookupMetrics",
    "OffsetSpec",
    "ReadPoint",
    "Table",
    "TableBucket",
    "TablePath",
    "nyc_airports",
    "nyc_flights",
    "nyc_planes",
]

_HOMES = {
    "FlussError": "fluss_lab.errors",
    "Lab": "fluss_lab.workbench",
    "LabStatus": "fluss_lab.workbench",
    "LookupMetrics": "fluss_lab.workbench",
    "OffsetSpec": "fluss_lab.model",
    "ReadPoint": "fluss_lab.read.moment.read_point",
    "Table": "fluss_lab.workbench",
    "TableBucket": "fluss_lab.model",
    "TablePath": "fluss_lab.model",
    # What ``%load_ext fluss_lab`` calls.
    "load_ipython_extension": "fluss_lab.workbench.notebook",
    "nyc_airports": "fluss_lab.workbench",
    "nyc_flights": "fluss_lab.workbench",
    "nyc_planes": "fluss_lab.workbench",
}


def __getattr__(name: str) -> Any:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module 'fluss_lab' has no attribute {name!r}")
    from fluss_lab.interrupts import import_whole

    found = getattr(import_whole(home), name)
    from fluss_lab.display import is_interactive

    if is_interactive():
        # Arrow imports it at the first array that it is given; that takes a second, in which a person may press stop.
        import_whole("pandas")
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
