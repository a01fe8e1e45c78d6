"""A driver whose query looks rows up, for tests that kill it: ``python -m tests.spark.lookup_streamer``, task on stdin.

The query writes each micro-batch into a file of its number; one that comes again must be what the file has. Every batch that is
written is told as a line of JSON. See `tests.spark.streamer.Streamer`, which starts it; its target is the table looked up.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fluss_lab.files import write_json_atomic


def main() -> int:
    """Run the query."""
    from pyspark.errors import StreamingQueryException

    from fluss_lab.client import Connection, ServerAddress
    from fluss_lab.spark.session.spark_session import spark_session
    from fluss_lab.spark.source.source_options import place_options
    from fluss_lab.workbench import Lab

    task = json.loads(sys.stdin.read())
    folder = Path(task["folder"])
    address = ServerAddress.from_json(task["address"])
    session = spark_session(master="local[2,3]", folder=folder / "spark")
    lab = Lab(Connection(lambda: address, {}), folder=None, attachment=None, place=place_options(address))
    stream = lab[task["source"]].stream(max_rows_per_trigger=task["rows_max"])
    out = lab.lookup_join(stream, task["target"], on={"k": "id"}, shuffle=True, tasks=2)

    def write(batch: Any, batch_id: int) -> None:
        rows = sorted(([row["_log_offset"], row["k"], row["version"]] for row in batch.collect()), key=repr)
        path = folder / "files" / f"{batch_id}.json"
        if path.exists() and json.loads(path.read_text()) != rows:
            raise RuntimeError(f"batch {batch_id} came again with other rows")
        write_json_atomic(path, rows, durable=False)
        print(json.dumps({"batch": batch_id}), flush=True)

    (folder / "files").mkdir(exist_ok=True)
    trigger = {"availableNow": True} if task["ends"] else {"processingTime": "0 seconds"}
    query = (
        out.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint")).trigger(**trigger)
    )
    try:
        query.start().awaitTermination()
    except StreamingQueryException as error:
        print(error, file=sys.stderr)
        return 3
    finally:
        session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
