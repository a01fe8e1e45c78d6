"""The server killed while a round tells it of its lake snapshot: the round outlives it, or the next one goes on."""

import threading

import pytest

from fluss_lab.errors import FlussError
from fluss_lab.testing import ServerProcess
from tests.crash.scene import Scene

#: Longer than a server takes to start on a machine that stalls.
CLIENT = {"client.request-timeout": "3min"}
PATIENCE_S = 240.0


@pytest.mark.slow
def test_a_server_killed_around_the_commit_to_fluss(tmp_path, seed):
    with ServerProcess(tmp_path / "my lab", client=CLIENT) as server:
        scene = Scene(server, "pk", seed, "pk_server")
        scene.write()
        scene.tier()
        for point in ("coordinator.lake_commit.before", "coordinator.lake_commit.after"):
            scene.write()
            server.stop()
            server.env["FLUSS_LAB_FAILPOINTS"] = f"{point}=kill"
            server.start()
            outcome = round_beside(scene)
            server.wait_until_gone()
            server.env.clear()
            server.start()
            assert outcome() is None or isinstance(outcome(), FlussError)
            scene.check()
            scene.finish()


def round_beside(scene):
    """Run a round in a thread; return what gives its error, or None, once it has ended."""
    errors = []

    def run():
        try:
            scene.tier()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def outcome():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return errors[0] if errors else None

    return outcome
