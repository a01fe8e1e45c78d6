"""The bytes of the log and the records in them."""

from fluss_lab.records.batch import BatchHeader, LogBatch, decode, decode_all, encode
from fluss_lab.records.batch_runs import decode_runs
from fluss_lab.records.log_records import LogRecords, concat_records, fit_to_schema, records_of

__all__ = [
    "BatchHeader",
    "LogBatch",
    "LogRecords",
    "concat_records",
    "decode",
    "decode_all",
    "decode_runs",
    "encode",
    "fit_to_schema",
    "records_of",
]
