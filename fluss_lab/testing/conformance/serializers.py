"""The tests of what passes between processes: bytes of a known version."""

from __future__ import annotations

import pytest

from fluss_lab.errors import CorruptDataError
from fluss_lab.testing.conformance.kit import LakeFormat, LakeKit, LakeWrite, records
from fluss_lab.testing.conformance.writer_process import write_elsewhere


class SerializerConformance(LakeFormat):
    """What `SimpleVersionedSerializer`, `WriteTotals` and a storage made elsewhere promise."""

    def test_a_storage_is_made_again_of_its_properties(self, kit: LakeKit) -> None:
        """Tasks make their own storage: of its name and its properties, which are strings."""
        assert kit.storage.format_name == self.format_name
        assert all(isinstance(text, str) for pair in kit.storage.properties.items() for text in pair)
        info = kit.table()
        other = LakeKit(kit.storage.format_name, kit.storage.properties, {})
        assert other.rows(info, kit.append(info, 3)).num_rows == 3

    def test_a_split_written_in_another_process_is_committed(self, kit: LakeKit) -> None:
        """Context, records and write result travel as bytes; rows, files and bytes are counted."""
        info = kit.table()
        result = write_elsewhere(kit, kit.context(info), [records(info, 5)])
        assert (result.row_count, result.file_count >= 1, result.size_bytes > 0) == (5, True, True)
        snapshot = kit.commit(info, LakeWrite(result, None, 0, 5, 1))
        assert kit.offsets(info, snapshot) == {0: [0, 1, 2, 3, 4]}

    def test_both_come_back_as_they_were(self, kit: LakeKit) -> None:
        """A write result or committable says the same after the journey, also an empty one."""
        info = kit.table()
        full = kit.write(info, [records(info, 5)]).result
        empty = kit.write(info, []).result
        with kit.committer(info) as committer:
            committables = [committer.to_committable(results) for results in ([full], [empty], [])]
        for serializer, values in [
            (kit.factory.write_result_serializer(), [full, empty]),
            (kit.factory.committable_serializer(), committables),
        ]:
            assert serializer.version >= 1
            for value in values:
                data = serializer.serialize(value)
                assert isinstance(data, bytes)
                again = serializer.deserialize(serializer.version, data)
                assert serializer.serialize(again) == data
                counts = [(each.row_count, each.file_count, each.size_bytes) for each in (value, again)]
                assert counts[0] == counts[1]
        assert (empty.row_count, empty.file_count, empty.size_bytes) == (0, 0, 0)

    def test_a_committable_is_committed_after_its_journey(self, kit: LakeKit) -> None:
        """What it says is enough to commit it."""
        info = kit.table()
        serializer = kit.factory.committable_serializer()
        written = kit.write(info, [records(info, 5)])
        with kit.committer(info) as committer:
            data = serializer.serialize(committer.to_committable([written.result]))
        other = kit.again()
        with other.committer(info) as committer:
            from fluss_lab.testing.conformance.kit import summary

            committable = other.factory.committable_serializer().deserialize(serializer.version, data)
            snapshot = committer.commit(committable, None, summary(info, written))
        assert kit.rows(info, snapshot).num_rows == 5

    def test_unknown_bytes_are_refused(self, kit: LakeKit) -> None:
        """A newer version, a version that never was, and bytes that are none of it raise `CorruptDataError`."""
        info = kit.table()
        result = kit.write(info, [records(info, 5)]).result
        with kit.committer(info) as committer:
            committable = committer.to_committable([result])
        for serializer, value in [
            (kit.factory.write_result_serializer(), result),
            (kit.factory.committable_serializer(), committable),
        ]:
            data = serializer.serialize(value)
            for version in (serializer.version + 1, 0, -1):
                with pytest.raises(CorruptDataError):
                    serializer.deserialize(version, data)
            for wrong in (b"", b"{}", b"[]", b"null", data[: len(data) // 2], b"\x80\x04K\x01."):
                with pytest.raises(CorruptDataError):
                    serializer.deserialize(serializer.version, wrong)
