"""Buckets with damaged logs, and what is asked of them."""

import json

from fluss_lab.errors import error_from_code
from fluss_lab.records.batch import read_header
from fluss_lab.records.checksummed_json import seal_content, unseal_content
from fluss_lab.rpc import fluss_api_pb2 as pb
from tests.unit.server.tablet.kv_kit import TABLE_ID as KEYED_ID
from tests.unit.server.tablet.kv_kit import KvTablet, upserts
from tests.unit.server.tablet.tablet_kit import TABLE_ID, Tablet, batch, records_in

RECORDS = 48
STEP = 2
LAKE = {"table__datalake__enabled": "true"}


def batches(path):
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        found.append((at, read_header(data, at)))
        at += found[-1][1].size
    return found


def flip(path, which):
    """Turn a bit in a batch over; return the batch's offsets."""
    at, header = batches(path)[which]
    data = bytearray(path.read_bytes())
    data[at + header.size - 1] ^= 1
    path.write_bytes(bytes(data))
    return header.base_offset, header.next_offset


def segments(tablet):
    return sorted(tablet.folder.glob("**/data/*/b0/*.log"))


def look(tablet):
    return tablet.service.describe_damage(pb.DescribeDamageRequest(table_id=_table_id(tablet), bucket_id=0))


def _table_id(tablet):
    return TABLE_ID if isinstance(tablet, Tablet) else KEYED_ID


def ranges(tablet):
    return [(each.start_offset, each.stop_offset) for each in look(tablet).ranges]


def give_up(tablet, start, stop, *, discard=False):
    request = pb.GiveUpRangeRequest(
        table_id=_table_id(tablet), bucket_id=0, start_offset=start, stop_offset=stop, discard_before=discard
    )
    return tablet.service.give_up_range(request).log_start_offset


def read(tablet, offset):
    """Ids from an offset on, or the error."""
    found = []
    while True:
        answer, data = tablet.fetch({0: offset})[0]
        if answer.HasField("error_code"):
            return found, error_from_code(answer.error_code, answer.error_message)
        if not data:
            return found, None
        some = [record for record in records_in(data) if record.offset >= offset]
        found += [record.id for record in some]
        offset = some[-1].offset + 1


def filled(folder, **properties):
    """Some segments of a few batches, by one writer, all on the device."""
    made = Tablet(folder, log__segment__file_size="1kb", log__index__interval_size="64b")
    made.open(0, **properties)
    for number in range(RECORDS // STEP):
        made.produce({0: batch(number * STEP, STEP, writer_id=7, sequence=number)})
        made.clock.advance(10)
    made.service.flush()
    return made


def again(tablet, **properties):
    reopened = tablet.reopen(clean=False)
    reopened.open(0, **properties)
    return reopened


def keyed(folder):
    made = KvTablet(folder, log__segment__file_size="1kb", log__index__interval_size="64b").open(0)
    for turn in range(16):
        made.put(upserts(turn % 3, 4, f"t{turn}"), writer_id=7, sequence=turn)
        made.clock.advance(10)
    made.service.flush()
    return made


def newer(path):
    value = json.loads(unseal_content(path.read_bytes()))
    path.write_bytes(seal_content(json.dumps(value | {"version": 2}).encode()))
