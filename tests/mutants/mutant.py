"""The safety checks of the house, each with a way to take it out and the tests that must notice.

A mutant is one small edit. It is red when at least one of its tests fails, and worthless when they pass: then nobody
would notice if the check went missing. Its text must be found exactly once, so that it cannot rot.
"""

from __future__ import annotations

from dataclasses import dataclass

BATCH = "fluss_lab/records/batch.py"
LOG = "fluss_lab/server/tablet/log/bucket_log.py"
SEGMENTS = "fluss_lab/server/tablet/log/log_segments.py"
SEGMENT = "fluss_lab/server/tablet/log/segment.py"
RECOVERY = "fluss_lab/server/tablet/log/log_recovery.py"
BUCKET = "fluss_lab/server/tablet/buckets/bucket.py"
RETENTION = "fluss_lab/server/tablet/buckets/segment_retention.py"
CHECKS = "fluss_lab/server/tablet/log/payload_validation.py"
ROUND = "fluss_lab/tiering/round/tiering_round.py"
PLANNER = "fluss_lab/tiering/round/round_planner.py"
RECOVERY_OF_COMMITS = "fluss_lab/tiering/round/commit_recovery.py"
LAKE_COMMITTER = "fluss_lab/lake/iceberg/commit/round_commit.py"
COMMITS = "fluss_lab/lake/iceberg/commit/commit_attempts.py"
LOG_SOURCE = "fluss_lab/lake/iceberg/read/lake_log.py"
NAMES = "fluss_lab/model/names.py"

IN_FILES = "tests/unit/test_files.py"
IN_RECORDS = "tests/unit/records/test_batch.py"
IN_LOG = "tests/unit/server/tablet/log/test_bucket_log.py"
IN_RECOVERY = "tests/unit/server/tablet/log/test_log_recovery.py"
IN_WRITERS = "tests/unit/server/tablet/log/test_batch_admission.py"
IN_OFFSETS = "tests/unit/server/tablet/log/test_tablet_offsets.py"
IN_FETCH = "tests/unit/server/tablet/log/test_tablet_fetch.py"
IN_RETENTION = "tests/unit/server/tablet/buckets/test_segment_retention.py"
IN_SERVICE = "tests/unit/server/tablet/test_tablet_service.py"
IN_NODE = "tests/unit/server/process/test_server_node.py"
IN_TOKENS = "tests/unit/server/test_tokens_refused.py"
IN_LAKE_COMMIT = "tests/unit/server/coordinator/tiering/test_lake_commit.py"
IN_LEDGER = "tests/unit/server/coordinator/metadata/test_lake_ledger.py"
IN_STATES = "tests/unit/server/coordinator/tiering/test_tiering_manager.py"
IN_COMMITTER = "tests/unit/lake/iceberg/commit/test_round_commit.py"
IN_SOURCE = "tests/unit/lake/iceberg/read/test_row_source.py"
IN_LOG_SOURCE = "tests/unit/lake/iceberg/read/test_lake_log.py"
IN_HISTORY = "tests/unit/lake/iceberg/read/test_history.py"
IN_ROUND = "tests/unit/tiering/round/test_tiering_round.py"
IN_CONFLICTS = "tests/unit/tiering/round/test_tiering_conflicts.py"
IN_RULES = "tests/unit/tiering/round/test_tiering_commit_rules.py"
IN_TASK = "tests/unit/tiering/task/test_tiering_task.py"
IN_UNION = "tests/unit/read/union/test_union.py"
IN_DESCRIPTOR = "tests/unit/model/test_descriptor.py"


@dataclass(frozen=True)
class Mutant:
    """One safety check taken out.

    Attributes:
        name: Unique.
        promise: Which promise of `docs/architecture.md` it breaks.
        file: The module, from the root.
        text: What is replaced; it is there exactly once.
        replacement: What it becomes.
        tests: Node ids of which at least one must fail.
    """

    name: str
    promise: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Return the source with the check taken out.

        Raises:
            ValueError: The text is not there exactly once: the code has moved on, and the mutant must follow.
        """
        if (found := source.count(self.text)) != 1:
            raise ValueError(f"mutant {self.name}: expected its text once in {self.file}, found it {found} times")
        return source.replace(self.text, self.replacement)
