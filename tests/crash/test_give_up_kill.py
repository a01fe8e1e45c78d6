"""The server killed between the steps of giving up a damaged range: what is left is finished, or can be done again."""

import pytest

from fluss_lab.errors import FlussError, InvalidRequestError
from fluss_lab.server.tablet.damage import log_cut
from fluss_lab.testing import ServerProcess
from tests.unit.tiering.broken_logs import OPTIONS, PLACES, Broken, inside_a_segment, nothing
from tests.unit.tiering.kit import Tables

#: The one at which segment and note lie apart is killed at every time; the others are of the same kind.
POINTS = [
    point if point == "tablet.cut.segment" else pytest.param(point, marks=pytest.mark.campaign)
    for point in log_cut.FAILPOINTS
]


@pytest.mark.parametrize("point", POINTS)
def test_a_server_killed_while_it_gives_up_a_range(tmp_path, point):
    server = ServerProcess(tmp_path / "my lab", OPTIONS, client={"client.request-timeout": "2s"})
    server.start()
    try:
        broken = Broken(Tables(server), keyed=False)
        broken.fill("part")
        server.stop()
        server.env["FLUSS_LAB_FAILPOINTS"] = f"{point}=kill"
        broken.break_logs((inside_a_segment, *[nothing] * (len(PLACES) - 1)))
        server.start()
        with pytest.raises(FlussError):
            broken.repair()
        server.wait_until_gone()
        server.env.clear()
        server.start()
        broken.repair()
        with pytest.raises(InvalidRequestError, match="nothing to repair"):
            broken.repair()
        broken.check_log(0, broken.damage[0])
        broken.check_rows({0: broken.damage[0]})
    finally:
        server.close()
