"""Mutants of what runs rounds: Spark on any master, and the service that runs for days."""

from tests.mutants.mutant import Mutant

REACH = "fluss_lab/spark/tiering/worker_preflight.py"
IN_REACH = "tests/unit/spark/tiering/test_worker_preflight.py"
IN_MASTERS = "tests/unit/spark/session/test_worker_placement.py"
IN_TIERING_SERVICE = "tests/unit/tiering/service/test_tiering_service.py"

RUNNING = (
    Mutant(
        "executors_elsewhere_without_tls", "P10", REACH,
        "    if not server.tls:\n",
        "    if not server.host:\n",
        (f"{IN_REACH}::test_a_server_in_clear_is_not_for_other_machines",),
    ),
    Mutant(
        "executors_elsewhere_not_looked_at", "P10", REACH,
        "    if missing:\n",
        "    if missing is None:\n",
        (f"{IN_REACH}::test_everything_that_is_missing_is_named",),
    ),
    Mutant(
        "one_loopback_address_makes_a_master_local", "P10", "fluss_lab/spark/session/worker_placement.py",
        "and all(_host(place) in LOOPBACK",
        "and any(_host(place) in LOOPBACK",
        (f"{IN_MASTERS}::test_where_a_master_runs",),
    ),
    Mutant(
        "workers_of_any_release", "P2", "fluss_lab/spark/tiering/spark_executor.py",
        "    if (found := release()) != expected:\n",
        "    if not (found := release()):\n",
        ("tests/unit/spark/session/test_worker_placement.py::test_workers_of_another_release_are_refused",),
    ),
    Mutant(
        "jvm_started_by_a_fork", "P6", "fluss_lab/spark/session/jvm_launch.py",
        "start_new_session=True",
        "preexec_fn=lambda: None",
        ("tests/unit/spark/session/test_jvm_launch.py::test_a_jvm_that_ends_twice_is_an_error_with_what_it_said",),
    ),
    Mutant(
        "dead_executor_used_again", "P6", "fluss_lab/tiering/service/tiering_service.py",
        "        if executor is not None and executor.is_alive:\n",
        "        if executor is not None:\n",
        (f"{IN_TIERING_SERVICE}::test_an_executor_that_died_is_replaced",),
    ),
    Mutant(
        "rounds_go_on_after_stop", "P5", "fluss_lab/tiering/service/tiering_service.py",
        "                    executor.cancel()\n",
        "                    executor.is_alive\n",
        (f"{IN_TIERING_SERVICE}::test_stopping_during_a_round_tells_the_coordinator",),
    ),
)  # fmt: skip
