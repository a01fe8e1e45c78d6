"""Mutants of what holds a cluster of several processes together: supervision, registration, assignment, TLS."""

from tests.mutants.mutant import Mutant

SUPERVISOR = "fluss_lab/server/process/supervisor.py"
TABLET_NODE = "fluss_lab/server/process/tablet_node.py"
TABLET_HOSTING = "fluss_lab/server/process/tablet_host.py"
TABLETS = "fluss_lab/server/coordinator/tablets/leadership.py"
ASSIGNMENT = "fluss_lab/server/coordinator/tablets/bucket_assignment.py"

IN_SUPERVISOR = "tests/unit/server/process/test_supervisor.py"
IN_NODES = "tests/unit/server/process/test_tablet_node.py"
IN_ASSIGNMENT = "tests/unit/server/coordinator/tablets/test_bucket_assignment.py"
IN_TLS = "tests/unit/rpc/access/test_tls.py"

PROCESSES = (
    Mutant(
        "server_that_was_just_reaped_taken_for_a_running_one", "P13", "fluss_lab/server/process/discovery.py",
        "return not _OWN_STAT.exists()",
        "return True",
        ("tests/unit/server/test_cluster.py::test_a_process_that_is_reaped_between_two_looks_at_it_is_gone",),
    ),
    Mutant(
        "server_whose_starter_was_killed_is_in_the_way", "P6", "fluss_lab/server/process/server_process.py",
        "            if (begun := _await_running(folder)) is None:\n",
        "            if (begun := _await_running(folder)) is not None:\n",
        ("tests/unit/server/test_cluster.py::test_a_server_whose_starter_was_killed_is_attached_to_when_it_is_ready",),
    ),
    Mutant(
        "server_that_hears_nothing_lives_on", "P8", "fluss_lab/server/process/process_setup.py",
        "            if lost:\n                os._exit(EXIT_CODE)\n",
        "            pass\n",
        ("tests/unit/server/process/test_process_setup.py::test_a_server_that_hears_of_no_call_any_more_ends_and_nothing_is_lost",),
    ),
    # P1: what is acknowledged is there, whichever process died.
    Mutant(
        "dead_tablet_server_stays_dead", "P1", SUPERVISOR,
        "            self._stopping.wait(min(pause_s, DIED_PAUSE_MAX_S if was_ready else FAILED_PAUSE_MAX_S))",
        "            self._stopping.wait()",
        (f"{IN_SUPERVISOR}::test_a_signal_ends_one_tablet_server_gracefully_and_it_is_started_again",),
    ),
    Mutant(
        "tablet_server_outlives_its_coordinator", "P1", TABLET_HOSTING,
        '    threading.Thread(target=follow, name="supervised", daemon=True).start()',
        '    threading.Thread(target=follow, name="supervised", daemon=True)',
        (f"{IN_SUPERVISOR}::test_tablet_servers_end_with_the_coordinator_and_the_next_one_goes_on_where_they_were",),
    ),
    Mutant(
        "two_servers_on_one_folder", "P1", TABLET_NODE,
        "        self._lock.take(LOCK_WAIT_S, lambda: not self._stopping.is_set(), advice)",
        "        assert advice",
        (f"{IN_SUPERVISOR}::test_a_new_coordinator_copes_with_a_tablet_server_that_does_not_end",),
    ),
    Mutant(
        "fewer_servers_than_hold_buckets", "P1", ASSIGNMENT,
        "    if asked < needed:",
        "    if asked < 0:",
        (
            f"{IN_ASSIGNMENT}::test_fewer_servers_than_hold_buckets_are_refused_naming_the_number",
            f"{IN_NODES}::test_fewer_servers_than_hold_buckets_are_refused_and_nothing_is_lost",
        ),
    ),
    Mutant(
        "assignment_uneven", "P1", ASSIGNMENT,
        "key=lambda server: (load.get(server, 0), server)",
        "key=lambda server: server",
        (f"{IN_ASSIGNMENT}::test_buckets_are_even_within_each_table_and_over_all_of_them",),
    ),
    # P6: a server that is recovering is not yet there.
    Mutant(
        "opening_server_shown_to_clients", "P6", TABLETS,
        "                self._opening.add(server_id)",
        "                self._opening.add(server_id)\n                self._list(request)",
        (f"{IN_NODES}::test_what_changes_while_a_server_opens_its_buckets_reaches_it_after_that",),
    ),
    Mutant(
        "change_during_opening_not_reported", "P6", TABLETS,
        "                return server_id not in self._opening",
        "                return True",
        (f"{IN_NODES}::test_what_changes_while_a_server_opens_its_buckets_reaches_it_after_that",),
    ),
    Mutant(
        "forgotten_server_does_not_register_again", "P6", TABLET_NODE,
        "                if not self._is_known():",
        "                if not self._is_known() and not self.server_id:",
        (f"{IN_NODES}::test_a_server_that_the_coordinator_lost_by_mistake_registers_again",),
    ),
    Mutant(
        "word_of_an_earlier_coordinator_counts", "P6", TABLETS,
        "            if request.opened_epoch != self._coordinator_epoch or request.server_id not in self._opening:",
        "            if not request.host:",
        (f"{IN_NODES}::test_what_an_earlier_coordinator_reported_does_not_count",),
    ),
    # P8: one server's trouble is its own.
    Mutant(
        "away_server_shown_as_leader", "P8", "fluss_lab/server/coordinator/coordinator_messages.py",
        "leader_id=leader if leader in there else None,",
        "leader_id=leader,",
        (f"{IN_NODES}::test_buckets_of_a_server_that_is_away_have_no_leader_and_are_reported_as_such",),
    ),
    # P10: who may come in, and what is said in the open.
    Mutant(
        "any_process_is_a_tablet_server", "P10", SUPERVISOR,
        "self._children[server_id].pid == process_id",
        "bool(self._children[server_id].pid)",
        (f"{IN_SUPERVISOR}::test_another_process_is_not_let_in_as_a_tablet_server",),
    ),
    Mutant(
        "off_loopback_without_tls", "P10", "fluss_lab/server/process/listener.py",
        "    if host not in LOOPBACK:",
        "    if not host:",
        (f"{IN_TLS}::test_a_host_off_loopback_is_refused_without_tls_before_anything_is_touched",),
    ),
    Mutant(
        "certificate_name_unchecked", "P10", "fluss_lab/client/cluster/server_address.py",
        "        return Trust(self.ca, self.name or self.host) if self.tls else None",
        '        return Trust(self.ca, "lab.test") if self.tls else None',
        (f"{IN_TLS}::test_who_does_not_trust_it_or_is_not_trusted_hears_so_at_once",),
    ),
    Mutant(
        "token_sent_in_the_open", "P10", "fluss_lab/workbench/lab_place.py",
        "CLIENT_TLS_CA.key in options or name not in LOOPBACK",
        "CLIENT_TLS_CA.key in options",
        (f"{IN_TLS}::test_a_place_elsewhere_is_never_sent_the_token_in_the_open",),
    ),
)  # fmt: skip
