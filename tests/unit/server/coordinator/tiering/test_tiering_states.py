"""The lake-tiering state machine: by hand at its corners, and by random walks beside a plain model."""

import random
from dataclasses import dataclass

import pytest

from fluss_lab.errors import (
    ConflictError,
    CorruptDataError,
    FencedTieringEpochError,
    FlussError,
    ForeignCommitError,
    InternalError,
    LakeNotConfiguredError,
    LakeSnapshotNotFoundError,
    OffsetOutOfRangeError,
    StorageError,
    TableNotFoundError,
    TieringInProgressError,
    UnsupportedError,
    error_code,
)
from fluss_lab.model import TableInfo, TablePath, make_descriptor
from fluss_lab.server.coordinator.metadata.metadata_store import MetadataStore
from fluss_lab.server.coordinator.metadata.table_catalog import TableCatalog
from fluss_lab.server.coordinator.tiering.tiering_states import (
    BACKOFF_FIRST_MS,
    BACKOFF_MAX_MS,
    TieringManager,
    TieringState,
)
from fluss_lab.testing.mock_clock import MockClock

FRESHNESS_MS = 60_000
TIMEOUT_MS = 120_000
TAKEOVER_MS = 10_000


def table(table_id: int, freshness_ms: int = FRESHNESS_MS, enabled: bool = True) -> TableInfo:
    properties = {"table.datalake.enabled": enabled, "table.datalake.freshness": f"{freshness_ms}ms"}
    return TableInfo(
        TablePath("d", f"t{table_id}"), table_id, 1, make_descriptor({"a": "int"}, properties=properties), 0, 0
    )


class Bench:
    """A coordinator's tiering with its file, which can be started again."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.clock = MockClock()
        self.epoch = 0
        self.store = MetadataStore(folder / "metadata.db")
        self.catalog = TableCatalog(self.store)
        if not self.catalog.has_database("d"):
            self.catalog.add_database("d", 0)
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.tiering = TieringManager(
            self.store, self.clock,
            coordinator_epoch=self.epoch, heartbeat_timeout_ms=TIMEOUT_MS, takeover_ms=TAKEOVER_MS,
        )  # fmt: skip
        for info in self.catalog.all_tables():
            if info.descriptor.lake_enabled:
                self.tiering.register(info, new=False)

    def restart(self) -> None:
        self.store.close()
        self.store = MetadataStore(self.folder / "metadata.db")
        self.catalog = TableCatalog(self.store)
        self.start()

    def add(self, table_id: int, freshness_ms: int = FRESHNESS_MS) -> None:
        info = table(table_id, freshness_ms)
        self.catalog.add_table(info, [0])
        self.tiering.register(info, new=True)

    def define(self, table_id: int, freshness_ms: int, *, enabled: bool) -> None:
        info = table(table_id, freshness_ms, enabled)
        was_enabled = self.catalog.table_by_id(table_id).descriptor.lake_enabled
        self.catalog.set_definition(info)
        if enabled:
            self.tiering.register(info, new=not was_enabled)
        else:
            self.tiering.remove(table_id)

    def state(self, table_id: int) -> tuple[TieringState, int]:
        found = next(each for each in self.tiering.states() if each.table_id == table_id)
        return found.state, found.epoch


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.store.close()


def test_a_new_table_is_due_one_freshness_after_its_creation(bench):
    bench.add(1)
    bench.clock.advance(FRESHNESS_MS - 1)
    assert bench.tiering.request_due(None) is None
    assert bench.state(1) == (TieringState.SCHEDULED, 0)
    bench.clock.advance(1)
    assert bench.state(1) == (TieringState.PENDING, 1)
    grant = bench.tiering.request_due(None)
    assert (grant.table_id, grant.epoch, grant.takeover) == (1, 1, False)
    assert bench.state(1) == (TieringState.TIERING, 1)
    assert bench.tiering.request_due(None) is None


def test_the_next_round_is_due_one_freshness_after_the_last_finished(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.clock.advance(30_000)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    assert bench.state(1) == (TieringState.SCHEDULED, 1)
    bench.clock.advance(FRESHNESS_MS - 1)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(1)
    assert bench.tiering.request_due(None).epoch == 2


def test_due_tables_are_given_out_in_the_order_in_which_they_came_due(bench):
    for table_id, freshness_ms in ((1, 3_000), (2, 1_000), (3, 2_000)):
        bench.add(table_id, freshness_ms)
    bench.clock.advance(5_000)
    assert [bench.tiering.request_due(None).table_id for _ in range(3)] == [2, 3, 1]


def test_a_force_finished_table_is_pending_at_once(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch, again=True)
    assert bench.state(1) == (TieringState.PENDING, 2)
    assert bench.tiering.request_due(None).epoch == 2


def test_finishing_twice_is_fine_and_does_not_move_the_time(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    bench.clock.advance(1_000)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    bench.clock.advance(FRESHNESS_MS - 1_000)
    assert bench.tiering.request_due(None) is not None


def test_a_force_finished_round_may_say_so_twice(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    for _ in range(2):
        bench.tiering.finish(1, bench.epoch, grant.epoch, again=True)
        assert bench.state(1) == (TieringState.PENDING, 2)
    bench.tiering.request_due(None)
    bench.tiering.finish(1, bench.epoch, grant.epoch, again=True)  # later than late
    assert bench.state(1) == (TieringState.TIERING, 2)


def test_an_epoch_that_nobody_was_given_does_not_finish(bench):
    bench.add(1)
    with pytest.raises(FencedTieringEpochError):
        bench.tiering.finish(1, bench.epoch, 0)


def test_an_older_epoch_may_do_nothing_any_more(bench):
    bench.add(1)
    old = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, old.epoch, "broken")
    new = bench.tiering.request(1, None)
    assert new.epoch == old.epoch + 1
    for call in (
        lambda: bench.tiering.renew(1, bench.epoch, old.epoch),
        lambda: bench.tiering.finish(1, bench.epoch, old.epoch),
        lambda: bench.tiering.fail(1, bench.epoch, old.epoch, "late"),
        lambda: bench.tiering.hold_for_commit(1, bench.epoch, old.epoch).__enter__(),
    ):
        with pytest.raises(FencedTieringEpochError, match="newest is 2"):
            call()
    bench.tiering.renew(1, bench.epoch, new.epoch)


def test_an_older_coordinators_tierer_may_do_nothing_any_more(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    old_epoch = bench.epoch
    bench.restart()
    for call in (
        lambda: bench.tiering.renew(1, old_epoch, grant.epoch),
        lambda: bench.tiering.finish(1, old_epoch, grant.epoch),
        lambda: bench.tiering.fail(1, old_epoch, grant.epoch, "late"),
    ):
        with pytest.raises(ConflictError, match="since its restart"):
            call()
    with pytest.raises(FencedTieringEpochError), bench.tiering.hold_for_commit(1, old_epoch, grant.epoch):
        pass


def test_a_round_cut_off_by_a_restart_is_a_takeover_for_the_next(bench):
    bench.add(1)
    first = bench.tiering.request(1, None)
    bench.restart()
    second = bench.tiering.request(1, None)
    assert second.takeover
    assert second.epoch > first.epoch
    bench.tiering.finish(1, bench.epoch, second.epoch)
    assert not bench.tiering.request(1, None).takeover


def test_a_takeover_that_fails_leaves_the_next_a_takeover(bench):
    bench.add(1)
    bench.tiering.request(1, session_id=5)
    bench.tiering.session_ended(5)
    second = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, second.epoch, "before it could fence")
    assert bench.tiering.request(1, None).takeover


def test_a_round_that_says_it_failed_is_no_takeover(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "no")
    assert not bench.tiering.request(1, None).takeover


def test_silence_fails_the_round_and_frees_the_table(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.clock.advance(TIMEOUT_MS - 1)
    bench.tiering.renew(1, bench.epoch, grant.epoch)
    bench.clock.advance(TIMEOUT_MS)
    state = bench.tiering.states()[0]
    assert (state.state, state.epoch, state.failures) == (TieringState.PENDING, 2, 1)
    assert "no heartbeat" in state.last_error
    with pytest.raises(FencedTieringEpochError):
        bench.tiering.renew(1, bench.epoch, grant.epoch)
    bench.clock.advance(BACKOFF_FIRST_MS)
    assert bench.tiering.request_due(None).takeover


def test_a_round_by_hand_waits_for_a_living_holder_and_takes_over_a_silent_one(bench):
    bench.add(1)
    first = bench.tiering.request(1, session_id=1)
    bench.clock.advance(TAKEOVER_MS - 1)
    with pytest.raises(TieringInProgressError, match="epoch 1, last heartbeat 9999 ms ago"):
        bench.tiering.request(1, session_id=2)
    bench.clock.advance(1)
    second = bench.tiering.request(1, session_id=2)
    assert second.takeover
    assert second.epoch == first.epoch + 1


@pytest.mark.parametrize(("renewed_by", "holder", "other"), [(None, 1, 2), (2, 2, 1)])
def test_a_hold_is_of_the_session_that_renewed_it_last(bench, renewed_by, holder, other):
    """A tierer whose stream broke attaches anew; one that renews without a stream keeps the one it had."""
    bench.add(1)
    grant = bench.tiering.request(1, session_id=1)
    bench.tiering.renew(1, bench.epoch, grant.epoch, session_id=renewed_by)
    bench.tiering.session_ended(other)
    bench.tiering.renew(1, bench.epoch, grant.epoch, session_id=renewed_by)
    bench.tiering.session_ended(holder)
    with pytest.raises(FencedTieringEpochError):
        bench.tiering.renew(1, bench.epoch, grant.epoch, session_id=renewed_by)


def test_the_end_of_a_session_frees_its_tables_and_no_others(bench):
    bench.add(1)
    bench.add(2)
    bench.tiering.request(1, session_id=1)
    bench.tiering.request(2, session_id=2)
    bench.tiering.session_ended(1)
    assert bench.tiering.request(1, session_id=2).takeover
    assert bench.state(2) == (TieringState.TIERING, 1)


def test_failing_tables_wait_longer_each_time_but_a_round_by_hand_does_not(bench):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    waited = []
    for _ in range(10):
        grant = bench.tiering.request_due(None)
        bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
        delay_ms = 0
        while bench.tiering._queue[1] > bench.clock.monotonic_ms():
            assert bench.tiering.request_due(None) is None
            bench.clock.advance(1_000)
            delay_ms += 1_000
        waited.append(delay_ms)
    assert waited == [min(BACKOFF_FIRST_MS * 2**n, BACKOFF_MAX_MS) for n in range(10)]
    grant = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
    assert bench.tiering.request_due(None) is None
    grant = bench.tiering.request(1, None)
    bench.tiering.finish(1, bench.epoch, grant.epoch)
    assert (bench.tiering.states()[0].failures, bench.tiering.states()[0].last_error) == (0, None)


@pytest.mark.parametrize(
    "error",
    [
        ForeignCommitError,
        LakeSnapshotNotFoundError,
        TableNotFoundError,
        OffsetOutOfRangeError,
        CorruptDataError,
        UnsupportedError,
    ],
)
def test_what_only_a_person_mends_is_tried_as_seldom_as_any(bench, error):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    grant = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "look at it", error_code(error("look at it")))
    assert bench.tiering.schedule()[0][1] == bench.clock.now_ms() + BACKOFF_MAX_MS
    bench.clock.advance(BACKOFF_MAX_MS - 1)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(1)
    assert bench.tiering.request_due(None).epoch == 2


@pytest.mark.parametrize("code", [None, error_code(StorageError("full")), 987_654])
def test_other_failures_are_tried_again_soon(bench, code):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    bench.tiering.fail(1, bench.epoch, bench.tiering.request_due(None).epoch, "no", code)
    bench.clock.advance(BACKOFF_FIRST_MS)
    assert bench.tiering.request_due(None) is not None


def test_an_altered_table_waits_no_longer(bench):
    bench.add(1, freshness_ms=1)
    bench.clock.advance(1)
    bench.tiering.fail(1, bench.epoch, bench.tiering.request_due(None).epoch, "no", error_code(UnsupportedError("no")))
    bench.tiering.register(table(1, freshness_ms=1), new=False)
    assert bench.tiering.request_due(None).epoch == 2


def test_the_schedule_says_when_each_table_is_due(bench):
    bench.add(1)
    bench.add(2)
    bench.add(3, freshness_ms=1)
    start_ms = bench.clock.now_ms()
    bench.tiering.request(2, None)
    bench.clock.advance(1)
    bench.tiering.fail(3, bench.epoch, bench.tiering.request_due(None).epoch, "no")
    due = {each.table_id: at_ms for each, at_ms in bench.tiering.schedule()}
    assert due == {1: start_ms + FRESHNESS_MS, 2: None, 3: start_ms + 1 + BACKOFF_FIRST_MS}


def test_a_table_that_waits_does_not_hold_up_the_next(bench):
    bench.add(1, freshness_ms=1)
    bench.add(2, freshness_ms=5)
    bench.clock.advance(1)
    grant = bench.tiering.request_due(None)
    bench.tiering.fail(1, bench.epoch, grant.epoch, "broken")
    bench.clock.advance(10)
    assert bench.tiering.request_due(None).table_id == 2


def test_switching_the_lake_off_and_on_goes_on_with_the_epochs(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.tiering.remove(1)
    with pytest.raises(LakeNotConfiguredError, match=r"table\.datalake\.enabled"):
        bench.tiering.renew(1, bench.epoch, grant.epoch)
    bench.tiering.register(table(1), new=True)
    assert bench.tiering.request_due(None) is None
    again = bench.tiering.request(1, None)
    assert again.epoch == grant.epoch + 1
    assert again.takeover


def test_a_dropped_table_is_not_found(bench):
    bench.add(1)
    grant = bench.tiering.request(1, None)
    bench.catalog.remove_table(1)
    bench.tiering.remove(1)
    for call in (
        lambda: bench.tiering.renew(1, bench.epoch, grant.epoch),
        lambda: bench.tiering.request(1, None),
        lambda: bench.tiering.hold_for_commit(1, bench.epoch, grant.epoch).__enter__(),
    ):
        with pytest.raises(TableNotFoundError):
            call()
    assert bench.tiering.request_due(None) is None


def test_another_freshness_counts_at_once(bench):
    bench.add(1)
    bench.tiering.register(table(1, freshness_ms=1_000), new=False)
    bench.clock.advance(1_000)
    assert bench.tiering.request_due(None) is not None


def test_a_wall_clock_set_back_delays_a_round_by_one_freshness_at_most(bench):
    bench.add(1)
    bench.clock.set_wall(bench.clock.now_ms() - 86_400_000)
    assert bench.tiering.request_due(None) is None
    bench.clock.advance(FRESHNESS_MS)
    assert bench.tiering.request_due(None) is not None


def test_an_illegal_move_is_a_defect_and_changes_nothing(bench):
    bench.add(1)
    with pytest.raises(InternalError, match="may not go from Scheduled to Tiered"):
        bench.tiering._move(bench.tiering.states()[0], TieringState.TIERED)
    assert bench.state(1) == (TieringState.SCHEDULED, 0)


# -- random walks beside a model ---------------------------------------------------------------------------------------


@dataclass
class Model:
    """What the specification says of one table, as plainly as possible."""

    due_ms: int
    freshness_ms: int
    state: str = "Scheduled"
    epoch: int = 0
    holder: tuple[int, int] | None = None
    session: int | None = None
    heard_ms: int = 0
    not_before_ms: int = 0
    failures: int = 0
    unfinished: bool = False
    fencing: bool = False
    finished: tuple[int, int] | None = None
    order: int = 0
    held_order: int = 0

    def pend(self, now_ms: int, order: int) -> None:
        self.state, self.epoch, self.holder, self.not_before_ms, self.order = (
            "Pending",
            self.epoch + 1,
            None,
            now_ms,
            order,
        )

    def fail(self, now_ms: int, order: int, for_a_person: bool = False) -> None:
        self.failures += 1
        self.pend(now_ms, order)
        delay_ms = min(BACKOFF_FIRST_MS * 2 ** (self.failures - 1), BACKOFF_MAX_MS)
        self.not_before_ms = now_ms + (BACKOFF_MAX_MS if for_a_person else delay_ms)


class World:
    """Several tables' models, and the same calls made to both sides."""

    def __init__(self, bench: Bench, dice: random.Random) -> None:
        self.bench, self.dice = bench, dice
        self.models: dict[int, Model] = {}
        self.order = 0
        self.given: list[tuple[int, int, int]] = []
        self.off: dict[int, Model] = {}
        self.next_id = 4
        for table_id in (1, 2, 3):
            freshness_ms = dice.choice([1_000, 20_000, 60_000])
            bench.add(table_id, freshness_ms)
            self.models[table_id] = Model(self.now() + freshness_ms, freshness_ms)

    def now(self) -> int:
        return self.bench.clock.monotonic_ms()

    def next_order(self) -> int:
        self.order += 1
        return self.order

    def tick(self) -> None:
        due = [(m.due_ms, t) for t, m in self.models.items() if m.state == "Scheduled" and m.due_ms <= self.now()]
        for _, table_id in sorted(due):
            self.models[table_id].pend(self.now(), self.next_order())
        silent = [m for m in self.models.values() if m.holder is not None and self.now() - m.heard_ms >= TIMEOUT_MS]
        for model in sorted(silent, key=lambda m: m.held_order):
            model.fail(self.now(), self.next_order())

    def grant(self, table_id: int, session: int | None) -> tuple[int, int, bool]:
        model = self.models[table_id]
        takeover, model.unfinished = model.unfinished, True
        model.state, model.heard_ms, model.session, model.fencing = "Tiering", self.now(), session, takeover
        model.holder, model.held_order = (self.bench.epoch, model.epoch), self.next_order()
        self.given.append((table_id, *model.holder))
        return table_id, model.epoch, takeover

    def some_round(self) -> tuple[int, int, int]:
        if self.given and self.dice.random() < 0.8:
            return self.dice.choice(self.given[-4:])
        return self.dice.choice([*self.models, *self.off, 99]), self.bench.epoch, self.dice.randrange(4)

    def expected_error(self, table_id: int, coordinator_epoch: int, epoch: int) -> type[FlussError] | None:
        self.tick()
        if table_id in self.off:
            return LakeNotConfiguredError
        if table_id not in self.models:
            return TableNotFoundError
        if coordinator_epoch != self.bench.epoch:
            return ConflictError
        return None if self.models[table_id].holder == (coordinator_epoch, epoch) else FencedTieringEpochError


def same_error(expected: type[FlussError] | None, call) -> bool:
    """Make a call, compare its error; return whether it went through."""
    if expected is None:
        call()
        return True
    with pytest.raises(FlussError) as caught:
        call()
    assert type(caught.value) is expected
    return False


def step(world: World) -> None:
    bench, dice, now = world.bench, world.dice, world.now()
    action = dice.choice(
        ["wait", "wait", "due", "due", "hand", "renew", "finish", "again", "fail", "fail for good", "session", "restart",
         "alter"]
    )  # fmt: skip
    if action == "wait":
        bench.clock.advance(dice.choice([1, 500, 3_000, 15_000, 90_000]))
    elif action == "due":
        world.tick()
        free = [(m.order, t) for t, m in world.models.items() if m.state == "Pending" and m.not_before_ms <= now]
        expected = world.grant(min(free)[1], 7) if free else None
        found = bench.tiering.request_due(7)
        assert (None if found is None else (found.table_id, found.epoch, found.takeover)) == expected
    elif action == "hand":
        ask_by_hand(world, dice.choice([*world.models, *world.off]), dice.choice([None, 7, 8]))
    elif action == "session":
        session = dice.choice([7, 8])
        for model in sorted(world.models.values(), key=lambda m: m.held_order):
            if model.holder is not None and model.session == session:
                model.fail(now, world.next_order())
        bench.tiering.session_ended(session)
    elif action == "restart" and dice.random() < 0.3:
        bench.restart()
        for model in world.models.values():
            model.state, model.holder = "Scheduled", None
        for model in world.off.values():
            model.finished = None
    elif action == "alter":
        alter(world)
    elif action in {"renew", "finish", "again", "fail", "fail for good"}:
        speak(world, action)


def alter(world: World) -> None:
    """Another freshness, the lake switched off and on again, a table dropped and made again."""
    bench, dice, now = world.bench, world.dice, world.now()
    table_id, how = dice.choice([*world.models, *world.off]), dice.choice(["freshness", "switch", "switch", "drop"])
    if how == "drop" and dice.random() < 0.5:
        bench.catalog.remove_table(table_id)
        bench.tiering.remove(table_id)
        world.models.pop(table_id, None)
        world.off.pop(table_id, None)
        bench.add(world.next_id, 20_000)
        world.models[world.next_id] = Model(now + 20_000, 20_000)
        world.next_id += 1
    elif how == "switch" and table_id in world.models:
        bench.define(table_id, world.models[table_id].freshness_ms, enabled=False)
        world.off[table_id] = model = world.models.pop(table_id)
        model.finished = None
    elif how == "switch":
        model = world.models[table_id] = world.off.pop(table_id)
        bench.define(table_id, model.freshness_ms, enabled=True)
        model.state, model.holder, model.failures, model.due_ms = "Scheduled", None, 0, now + model.freshness_ms
    elif how == "freshness" and table_id in world.models:
        model, freshness_ms = world.models[table_id], dice.choice([1_000, 20_000, 60_000])
        bench.define(table_id, freshness_ms, enabled=True)
        model.due_ms, model.freshness_ms = model.due_ms - model.freshness_ms + freshness_ms, freshness_ms
        if model.state == "Pending":
            model.not_before_ms = now


def ask_by_hand(world: World, table_id: int, session: int | None) -> None:
    world.tick()
    if table_id in world.off:
        assert not same_error(LakeNotConfiguredError, lambda: world.bench.tiering.request(table_id, session))
        return
    model = world.models[table_id]
    if model.holder is not None and world.now() - model.heard_ms < TAKEOVER_MS:
        assert not same_error(TieringInProgressError, lambda: world.bench.tiering.request(table_id, session))
        return
    if model.holder is not None:
        model.fail(world.now(), world.next_order())
    elif model.state == "Scheduled":
        model.pend(world.now(), world.next_order())
    expected = world.grant(table_id, session)
    found = world.bench.tiering.request(table_id, session)
    assert (found.table_id, found.epoch, found.takeover) == expected


def speak(world: World, action: str) -> None:
    table_id, coordinator_epoch, epoch = world.some_round()
    tiering = world.bench.tiering
    expected = world.expected_error(table_id, coordinator_epoch, epoch)
    model = world.models.get(table_id, Model(0, 0))
    if action in {"finish", "again"}:
        if (
            table_id in world.models
            and model.finished == (coordinator_epoch, epoch)
            and model.finished[0] == world.bench.epoch
        ):
            tiering.finish(table_id, coordinator_epoch, epoch, again=action == "again")  # said twice
        elif same_error(expected, lambda: tiering.finish(table_id, coordinator_epoch, epoch, again=action == "again")):
            model.state, model.holder, model.failures, model.unfinished = "Scheduled", None, 0, False
            model.due_ms, model.finished = world.now() + model.freshness_ms, (coordinator_epoch, epoch)
            if action == "again":
                model.pend(world.now(), world.next_order())
    elif action == "renew":
        if same_error(expected, lambda: tiering.renew(table_id, coordinator_epoch, epoch)):
            model.heard_ms = world.now()
    else:
        code = error_code(ForeignCommitError("x")) if action == "fail for good" else None
        if same_error(expected, lambda: tiering.fail(table_id, coordinator_epoch, epoch, "x", code)):
            model.unfinished = model.fencing
            model.fail(world.now(), world.next_order(), for_a_person=code is not None)


def test_random_walks_equal_the_model(tmp_path, seed):
    for walk in range(4):
        folder = tmp_path / str(walk)
        folder.mkdir()
        bench = Bench(folder)
        world = World(bench, random.Random(seed + walk))
        for _ in range(250):
            step(world)
            world.tick()
            found = {
                each.table_id: (each.state.value, each.epoch, each.unfinished, each.failures)
                for each in bench.tiering.states()
            }
            assert found == {t: (m.state, m.epoch, m.unfinished, m.failures) for t, m in world.models.items()}
        bench.store.close()
