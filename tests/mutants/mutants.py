"""All mutants, and the promises they break."""

from tests.mutants.client_kv import CLIENT_KV
from tests.mutants.ddl import DDL
from tests.mutants.guard import GUARD
from tests.mutants.keyed_lake import KEYED_LAKE
from tests.mutants.kv import KV
from tests.mutants.kv_snapshot import KV_SNAPSHOTS
from tests.mutants.kv_tablet import KV_TABLET
from tests.mutants.lake_commits import LAKE_COMMITS
from tests.mutants.lake_seam import LAKE_SEAM
from tests.mutants.maintaining import MAINTAINING
from tests.mutants.moving import DOORS, READING, TIERING
from tests.mutants.mutant import Mutant
from tests.mutants.processes import PROCESSES
from tests.mutants.proving import PROVING
from tests.mutants.remote import REMOTE
from tests.mutants.repairing import REPAIRING
from tests.mutants.running import RUNNING
from tests.mutants.storing import BYTES, KEEPING
from tests.mutants.tiering_job import TIERING_JOB

PROMISES = tuple(f"P{number}" for number in range(1, 11))
MUTANTS: tuple[Mutant, ...] = (
    BYTES
    + KEEPING
    + KV
    + KV_SNAPSHOTS
    + KV_TABLET
    + CLIENT_KV
    + TIERING
    + TIERING_JOB
    + KEYED_LAKE
    + LAKE_COMMITS
    + LAKE_SEAM
    + MAINTAINING
    + PROVING
    + READING
    + DOORS
    + DDL
    + PROCESSES
    + REMOTE
    + REPAIRING
    + RUNNING
    + GUARD
)
