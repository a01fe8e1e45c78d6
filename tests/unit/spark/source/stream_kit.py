"""What a stream is expected to bring."""

from tests.unit.spark.streams import in_order

MONTHS = ["2013-01", "2013/02 é"]


def expected(table, starts=None, columns=("id", "month", "delay", "ratio", "dest")):
    """Return the records from some offsets on, as the model knows them, in the order of a changelog."""
    names = table.info.schema.names
    found = []
    for each in sorted(table.records, key=lambda record: record.key):
        key = (each.partition, each.bucket)
        if starts is not None and (key not in starts or each.offset < starts[key]):
            continue
        row = {"_change_type": "+A"} | ({"_partition": each.partition} if table.partitioned else {})
        row |= {"_bucket": each.bucket, "_log_offset": each.offset, "_commit_timestamp": each.timestamp_ms}
        values = dict(zip(names, each.row, strict=True))
        found.append(row | {name: values[name] for name in columns})
    return found


def same(rows, wanted):
    assert [repr(row) for row in in_order(rows)] == [repr(row) for row in wanted]
