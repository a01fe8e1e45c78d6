"""A lookup function whose process dies once: by its name, as tasks import it."""

import os

import pyarrow as pa

from fluss_lab.lookup import LookupRows
from fluss_lab.testing.sharded_rows import ShardedRowsFunction


class DiesOnce(ShardedRowsFunction):
    """Ends its process at the first lookup of all, as a killed worker does."""

    def lookup(self, keys: pa.RecordBatch) -> LookupRows:
        try:
            (self._folder / "died").touch(exist_ok=False)
        except FileExistsError:
            return super().lookup(keys)
        os._exit(1)
