"""Random walks through the states of tables, beside a model that is plainly right."""

import random
from dataclasses import dataclass

import pytest

from fluss_lab.errors import (
    ConflictError,
    FencedTieringEpochError,
    FlussError,
    ForeignCommitError,
    LakeNotConfiguredError,
    TableNotFoundError,
    TieringInProgressError,
    error_code,
)
from fluss_lab.server.coordinator.tiering.table_tiering import BACKOFF_FIRST_MS, BACKOFF_MAX_MS
from tests.unit.server.coordinator.tiering.states_kit import TAKEOVER_MS, TIMEOUT_MS, Bench

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
