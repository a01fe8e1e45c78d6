"""Specs of offsets are checked where they are made."""

import numpy as np
import pytest

from fluss_lab.errors import InvalidTimestampError
from fluss_lab.model import OffsetSpec


def test_a_time_of_an_offset_spec_is_a_whole_number_of_milliseconds():
    assert OffsetSpec.timestamp(np.int64(5)) == OffsetSpec.timestamp(5)
    for wrong in ("x", 1.5, None, True, b"1", -1, 1 << 70, np.timedelta64(1, "s")):
        with pytest.raises(InvalidTimestampError, match="epoch milliseconds, found"):
            OffsetSpec.timestamp(wrong)
