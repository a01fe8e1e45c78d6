"""The listening server: nothing beyond this machine."""

import pytest

from fluss_lab.rpc.serving import Server


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_a_place_beyond_loopback_is_refused(host):
    with pytest.raises(ValueError, match="off loopback"):
        Server(host, 0, "secret", threads=1, request_bytes_max=1 << 20)
