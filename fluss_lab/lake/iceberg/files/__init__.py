"""Files of the lake: opened, written durably, sealed and checked.

In: locations, and rows to write.
Out: Parquet files with metrics; one class of error for each kind of failure.
"""
