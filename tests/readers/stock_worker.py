"""Runs in the stock environment, by path: takes requests as JSON lines, answers with JSON lines. See `stock_spark`.

Nothing of fluss_lab is imported here: this is Spark and Iceberg's runtime as they come.
"""

import json
import sys
import traceback

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    settings = json.loads(sys.argv[1])
    answers = sys.stdout
    # Whatever Spark prints goes to the log; only answers go out.
    sys.stdout = sys.stderr
    builder = SparkSession.builder.master("local[2]").appName("stock")
    for key, value in settings.items():
        builder = builder.config(key, value)
    first = builder.getOrCreate()
    sessions = {"": first}
    print(json.dumps({"version": first.version}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handle(request, sessions)
        except Exception as error:
            # The whole of it, Java's part too, goes to the log.
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(answer), file=answers, flush=True)
    first.stop()


def handle(request: dict, sessions: dict) -> dict:
    """Do one request; rows go into an Arrow file at its ``into``."""
    catalog = request.get("catalog") or {}
    key = json.dumps(catalog, sort_keys=True) if catalog else ""
    if key not in sessions:
        # A session has catalogs of its own, so two warehouses may use one name.
        sessions[key] = sessions[""].newSession()
        for name, value in catalog.items():
            sessions[key].conf.set(name, value)
    session = sessions[key]
    if "load" in request:
        reader = session.read.format("iceberg")
        for name, value in request.get("options", {}).items():
            reader = reader.option(name, value)
        frame = reader.load(request["load"])
        frame.createOrReplaceTempView("lake")
        if request.get("sql"):
            frame = session.sql(request["sql"])
    else:
        frame = session.sql(request["sql"])
    rows = arrow(frame)
    with pa.ipc.new_file(request["into"], rows.schema) as sink:
        sink.write_table(rows)
    return {"rows": len(rows)}


def arrow(frame: DataFrame) -> pa.Table:
    return frame.toArrow()


if __name__ == "__main__":
    main()
