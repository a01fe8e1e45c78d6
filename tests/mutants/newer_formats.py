"""Mutants of what refuses formats of newer versions."""

from tests.mutants.mutant import Mutant

IN_FORMATS = "tests/damage/test_newer_versions.py"


def _of_kind(kind: str) -> str:
    return f"{IN_FORMATS}::test_a_newer_file_of_a_lab_is_refused_and_left_alone[{kind}]"


NEWER_FORMATS = (
    Mutant(
        "formats_of_newer_versions_read", "P11", "fluss_lab/model/format_versions.py",
        "if isinstance(found, int) and found > known:",
        "if isinstance(found, str) and found > known:",
        (_of_kind("server-options.json: json"), _of_kind("tablet/data/t#/schema-#.json: json")),
    ),
    Mutant(
        "newer_recovery_point_taken_for_none", "P11", "fluss_lab/records/checksummed_json.py",
        "body, where, version=version, remedy",
        "body, where, version=version, peer=True, remedy",
        (_of_kind("tablet/data/t#/b#/recovery-point: json"),),
    ),
    Mutant(
        "newer_log_start_believed", "P11", "fluss_lab/server/tablet/log/recovery_point.py",
        "START_FILE, version=START_VERSION, remedy",
        "START_FILE, version=None, remedy",
        (_of_kind("tablet/data/t#/b#/log-start: json"),),
    ),
    Mutant(
        "newer_notes_of_snapshots_replaced", "P11", "fluss_lab/server/coordinator/tablets/kv_snapshot_registry.py",
        "        self._check_formats()\n",
        "",
        (_of_kind("metadata.db: kv_snapshots.completed"),),
    ),
    Mutant(
        "newer_options_written_over", "P11", "fluss_lab/server/process/server_node.py",
        "        server_process.check_options(self.folder)\n",
        "",
        (_of_kind("server-options.json: json"),),
    ),
    Mutant(
        "newer_batch_in_remote_storage_not_named", "P7", "fluss_lab/records/remote_segment.py",
        'raise type(error)(f"{self.path}: {error}") from error',
        "raise",
        (_of_kind("remote/log/db/#/#/#/#.log: batch"),),
    ),
    Mutant(
        "newer_sink_journal_called_damage", "P11", "fluss_lab/spark/sink/sink_journal.py",
        "data, path, version=_VERSION, remedy",
        "data, path, version=_VERSION, peer=True, remedy",
        (f"{IN_FORMATS}::test_journals_of_a_newer_sink_are_refused_and_left_alone[sink.json]",),
    ),
    Mutant(
        "newer_mark_of_a_remote_log_believed", "P11", "fluss_lab/server/tablet/remote/remote_manifest.py",
        'MARK_VERSION if b\'"version"\' in data else None',
        "None",
        (_of_kind("tablet/data/t#/b#/remote-log: json"),),
    ),
    Mutant(
        "versioned_module_forgotten", "P11", "fluss_lab/server/tablet/log/sparse_index.py",
        'OFFSET_ENTRY: Final = Struct("<ii")',
        'INDEX_VERSION: Final = 1\nOFFSET_ENTRY: Final = Struct("<ii")',
        (f"{IN_FORMATS}::test_every_format_number_is_known_here",),
    ),
)  # fmt: skip
