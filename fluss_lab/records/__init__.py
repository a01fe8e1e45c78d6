"""The bytes of the log and the records in them."""

from fluss_lab.records.batch import BatchHeader, LogBatch, decode, decode_all, encode
from fluss_lab.records.evolve import padded
from fluss_lab.records.run import LogRecords, joined, records_of

__all__ = ["BatchHeader", "LogBatch", "LogRecords", "decode", "decode_all", "encode", "joined", "padded", "records_of"]
