"""All mutants, and the promises they break."""

from tests.mutants.client_kv import CLIENT_KV
from tests.mutants.ddl import DDL
from tests.mutants.guard import GUARD
from tests.mutants.kv import KV
from tests.mutants.kv_snapshot import KV_SNAPSHOTS
from tests.mutants.kv_tablet import KV_TABLET
from tests.mutants.moving import DOORS, READING, TIERING
from tests.mutants.mutant import Mutant
from tests.mutants.processes import PROCESSES
from tests.mutants.remote import REMOTE
from tests.mutants.storing import BYTES, KEEPING

PROMISES = tuple(f"P{number}" for number in range(1, 11))
MUTANTS: tuple[Mutant, ...] = (
    BYTES
    + KEEPING
    + KV
    + KV_SNAPSHOTS
    + KV_TABLET
    + CLIENT_KV
    + TIERING
    + READING
    + DOORS
    + DDL
    + PROCESSES
    + REMOTE
    + GUARD
)
