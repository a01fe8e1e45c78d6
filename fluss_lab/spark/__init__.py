"""The only importer of pyspark: the session, the tiering job, union reads, the data source, the lookup join."""

from fluss_lab.spark.registration import register

__all__ = ["register"]
