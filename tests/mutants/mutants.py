"""All mutants, and the promises they break."""

from tests.mutants.across import ACROSS
from tests.mutants.acting import ACTING
from tests.mutants.batch_identity import BATCH_IDENTITY
from tests.mutants.client_kv import CLIENT_KV
from tests.mutants.configuration import CONFIGURATION
from tests.mutants.damage_ranges import DAMAGE_RANGES
from tests.mutants.ddl import DDL
from tests.mutants.disk_room import DISK_ROOM
from tests.mutants.doors import DOORS
from tests.mutants.exact_lookups import EXACT_LOOKUPS
from tests.mutants.explorer_pages import EXPLORER_PAGES
from tests.mutants.exploring import EXPLORING
from tests.mutants.filtering import FILTERING
from tests.mutants.giving_up import GIVING_UP
from tests.mutants.guard import GUARD
from tests.mutants.identity import IDENTITY
from tests.mutants.integrity import INTEGRITY
from tests.mutants.joined_batches import JOINED_BATCHES
from tests.mutants.keyed_lake import KEYED_LAKE
from tests.mutants.known_buckets import KNOWN_BUCKETS
from tests.mutants.known_tables import KNOWN_TABLES
from tests.mutants.kv import KV
from tests.mutants.kv_snapshot import KV_SNAPSHOTS
from tests.mutants.kv_tablet import KV_TABLET
from tests.mutants.lake_commits import LAKE_COMMITS
from tests.mutants.lake_damage import LAKE_DAMAGE
from tests.mutants.lake_log import LAKE_LOG
from tests.mutants.lake_seam import LAKE_SEAM
from tests.mutants.lake_state import LAKE_STATE
from tests.mutants.log_side import LOG_SIDE
from tests.mutants.looking_up import LOOKING_UP
from tests.mutants.looking_up_on_spark import LOOKING_UP_ON_SPARK
from tests.mutants.maintaining import MAINTAINING
from tests.mutants.metadata import METADATA
from tests.mutants.moving import READING, TIERING
from tests.mutants.mutant import Mutant
from tests.mutants.newer_formats import NEWER_FORMATS
from tests.mutants.notebook_jobs import NOTEBOOK_JOBS
from tests.mutants.processes import PROCESSES
from tests.mutants.proving import PROVING
from tests.mutants.remote import REMOTE
from tests.mutants.repairing import REPAIRING
from tests.mutants.resources import RESOURCES
from tests.mutants.rest_catalogs import REST_CATALOGS
from tests.mutants.retention import RETENTION
from tests.mutants.row_sizes import ROW_SIZES
from tests.mutants.running import RUNNING
from tests.mutants.spark_statements import SPARK_STATEMENTS
from tests.mutants.spark_streams import SPARK_STREAMS
from tests.mutants.spark_tables import SPARK_TABLES
from tests.mutants.stopping import STOPPING
from tests.mutants.storing import BYTES, KEEPING
from tests.mutants.table_identity import TABLE_IDENTITY
from tests.mutants.tiering_job import TIERING_JOB
from tests.mutants.union_reading import UNION_READING
from tests.mutants.values import VALUES
from tests.mutants.workbench_objects import WORKBENCH_OBJECTS

PROMISES = tuple(f"P{number}" for number in range(1, 15))
MUTANTS: tuple[Mutant, ...] = (
    BYTES
    + KEEPING
    + DISK_ROOM
    + METADATA
    + STOPPING
    + KNOWN_BUCKETS
    + KNOWN_TABLES
    + DAMAGE_RANGES
    + KV
    + KV_SNAPSHOTS
    + KV_TABLET
    + CLIENT_KV
    + TIERING
    + TIERING_JOB
    + KEYED_LAKE
    + LAKE_COMMITS
    + LAKE_DAMAGE
    + LAKE_LOG
    + LAKE_SEAM
    + LAKE_STATE
    + LOG_SIDE
    + LOOKING_UP
    + LOOKING_UP_ON_SPARK
    + MAINTAINING
    + NEWER_FORMATS
    + PROVING
    + READING
    + DOORS
    + DDL
    + PROCESSES
    + REMOTE
    + REST_CATALOGS
    + REPAIRING
    + RESOURCES
    + RETENTION
    + ROW_SIZES
    + RUNNING
    + GUARD
    + INTEGRITY
    + EXPLORING
    + FILTERING
    + SPARK_STREAMS
    + SPARK_TABLES
    + SPARK_STATEMENTS
    + TABLE_IDENTITY
    + EXACT_LOOKUPS
    + UNION_READING
    + ACROSS
    + ACTING
    + VALUES
    + CONFIGURATION
    + IDENTITY
    + BATCH_IDENTITY
    + JOINED_BATCHES
    + GIVING_UP
    + NOTEBOOK_JOBS
    + WORKBENCH_OBJECTS
    + EXPLORER_PAGES
)
