"""The notebook face: labs and tables."""

from fluss_lab.workbench.lab import Lab
from fluss_lab.workbench.lab_status import LabStatus
from fluss_lab.workbench.lookup_face import LookupMetrics
from fluss_lab.workbench.samples import nyc_airports, nyc_flights, nyc_planes
from fluss_lab.workbench.table import Table

__all__ = ["Lab", "LabStatus", "LookupMetrics", "Table", "nyc_airports", "nyc_flights", "nyc_planes"]
