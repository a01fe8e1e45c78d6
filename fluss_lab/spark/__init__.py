"""The only importer of pyspark: the session, the tiering job, union reads, the streaming source, the lookup join."""
