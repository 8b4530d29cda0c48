"""The set-based doors of the store against the state machine: from every status, each cause leads where `decide` does.

Rows are placed in every status that the schema allows, the door is called once for all of them, and each must then be
in the status that `decide` gives, or, where the table has no way, be exactly as it was.
"""

from __future__ import annotations

import secrets
import uuid
from dataclasses import replace

import pytest

from services.core.domain import cause as causes
from services.core.domain.op import Op, OpError, RunCompleted, RunFailed, Sleep, StepCompleted, StepFailed, WaitForEvent
from services.core.domain.run import TERMINAL, RunView, Status
from services.core.domain.transition import decide
from services.core.store.queries import queries
from services.scheduler.partitions import EVERY_PARTITION
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows
from tests.support.placed_runs import GATE, MAX_ATTEMPTS, compare, fences, open_waits, place_all, snapshot

FAILED = OpError("Boom", "no")


@pytest.mark.parametrize("door", ["claim_hinted", "claim_oldest"])
async def test_lease_taken(rows: LiveRows, door: str) -> None:
    placed = await place_all(rows)
    owner = secrets.randbits(63)

    async def claim() -> None:
        if door == "claim_hinted":
            await rows.rows("select * from rt.claim_hinted_v1($1, $2, 1000)", owner, [one.run for one in placed])
        else:
            await rows.rows("select * from rt.claim_oldest_v1($1, $2, '{1000}', 1000)", owner, [rows.tenant])

    await compare(rows, placed, causes.LeaseTaken(), claim)
    taken = [one for one in placed if one.status is Status.QUEUED]
    assert taken
    for one in taken:
        assert (await fences(rows, one.run))["epoch"] == 6
        assert await rows.value("select owner from rt.live where id = $1", one.run) == owner


async def test_slot_granted(rows: LiveRows) -> None:
    placed = await place_all(rows)
    await compare(
        rows, placed, causes.SlotGranted(), lambda: rows.rows("select * from rt.grant_v1($1, $2)", [GATE], [None])
    )


async def test_let_go(rows: LiveRows) -> None:
    placed = await place_all(rows)

    async def let_go() -> None:
        for one in placed:
            owner = await rows.value("select owner from rt.live where id = $1", one.run)
            await rows.rows("select * from rt.let_go_v1($1, $2, $3)", owner or 1, [one.run], [5])

    await compare(rows, placed, causes.LetGo(), let_go)
    for one in placed:
        if one.status is Status.RUNNING:
            assert (await fences(rows, one.run))["epoch"] == 6


@pytest.mark.parametrize("failures", [0, MAX_ATTEMPTS - 2, MAX_ATTEMPTS - 1])
async def test_lease_expired(rows: LiveRows, failures: int) -> None:
    placed = await place_all(rows, failures=failures)
    await compare(rows, placed, causes.LeaseExpired(), lambda: rows.rows("select * from rt.rescue_v1(1000)"))
    held = [one for one in placed if one.status is Status.RUNNING]
    assert {await rows.status(one.run) for one in held} == (
        {Status.FAILED} if failures == MAX_ATTEMPTS - 1 else {Status.QUEUED}
    )
    for one in held:
        decision = decide(one.view(), causes.LeaseExpired(), 0)
        kept = await rows.value("select fn_att from rt.live where id = $1", one.run)
        assert kept in (None, decision.function_failures)
        assert (await fences(rows, one.run))["epoch"] > 5


async def test_lease_expired_of_what_a_worker_executes(rows: LiveRows) -> None:
    placed = [replace(one, streamed=True) for one in await place_all(rows, failures=MAX_ATTEMPTS - 1)]
    await rows.value("update rt.live set affinity = gen_random_uuid()")
    await compare(rows, placed, causes.LeaseExpired(), lambda: rows.rows("select * from rt.rescue_v1(1000)"))
    for one in placed:
        if one.status is Status.RUNNING:
            assert await rows.value("select slot from rt.live where id = $1", one.run) == one.gated


async def test_let_go_of_what_a_worker_executes(rows: LiveRows) -> None:
    placed = [replace(one, streamed=True) for one in await place_all(rows)]
    await rows.value("update rt.live set affinity = gen_random_uuid()")

    async def leave() -> None:
        for row in await rows.rows("select owner from rt.live where owner is not null"):
            await rows.rows("select * from rt.leave_v1($1, 60000)", row["owner"])

    await compare(rows, placed, causes.LetGo(), leave)


async def test_resumed(rows: LiveRows) -> None:
    placed = await place_all(rows)
    session, owner = uuid.uuid4(), secrets.randbits(63)
    await rows.value("update rt.live set affinity = $1, given = 4", session)

    async def take_over() -> None:
        for one in placed:
            epoch = 4 if one.status is Status.PARKED else 5
            query = "select * from rt.take_over_v1($1, $2, $3, array[1, 2], $4, $5)"
            await rows.rows(query, owner, session, rows.tenant, [one.run], [epoch])

    await compare(rows, placed, causes.Resumed(), take_over)
    for one in placed:
        if one.status in (Status.RUNNING, Status.PARKED):
            assert (await fences(rows, one.run))["epoch"] == 6


async def test_not_begun(rows: LiveRows) -> None:
    placed = await place_all(rows)
    session = uuid.uuid4()
    await rows.value("update rt.live set affinity = $1, given = 4", session)
    await open_waits(rows, [one for one in placed if one.status not in TERMINAL], "e", DAY_MS)
    runs = [one.run for one in placed]

    async def not_begun() -> None:
        await rows.rows(queries("executor")["never_begun"], session, rows.tenant, runs, [4] * len(runs))

    await compare(rows, placed, causes.NotBegun(), not_begun)
    for one in placed:
        if one.status is Status.PARKED:
            assert await rows.value("select slot from rt.live where id = $1", one.run) == one.gated
            assert await rows.value("select count(*) from rt.attempts where run = $1", one.run) == 0


@pytest.mark.parametrize("failures", [MAX_ATTEMPTS - 2, MAX_ATTEMPTS - 1])
async def test_due_of_a_park(rows: LiveRows, failures: int) -> None:
    placed = [one for one in await place_all(rows, failures=failures) if one.status is Status.PARKED]
    await open_waits(rows, placed, "p", -1)
    await rows.owner()  # an executor that workers could have come to
    await compare(rows, placed, causes.Due(), lambda: rows.rows("select * from rt.fire_v1($1, 1000)", EVERY_PARTITION))


@pytest.mark.parametrize("kind", ["s", "e", "b"])
async def test_due(rows: LiveRows, kind: str) -> None:
    placed = await place_all(rows)
    await open_waits(rows, placed, kind, -1)
    await rows.owner()
    active = [one for one in placed if one.status not in TERMINAL]
    await compare(rows, placed, causes.Due(), lambda: rows.rows("select * from rt.fire_v1($1, 1000)", EVERY_PARTITION))
    for one in active:  # who only delivers moves the mail, and neither epoch nor revision
        assert tuple(await fences(rows, one.run)) == (5, 0, 1)


async def test_not_due_yet(rows: LiveRows) -> None:
    placed = await place_all(rows)
    await open_waits(rows, placed, "s", DAY_MS)
    before = {one.run: await snapshot(rows, one.run) for one in placed}
    await rows.rows("select * from rt.fire_v1($1, 1000)", EVERY_PARTITION)
    await rows.rows("select * from rt.expire_v1(1000)")
    for one in placed:
        assert await snapshot(rows, one.run) == before[one.run]


async def test_delivered(rows: LiveRows) -> None:
    placed = await place_all(rows)
    # A run gets events for its steps whatever it rests in; only its park is not one of them.
    beside = [replace(one, status=Status.RUNNING) for one in placed]
    waits = list((await open_waits(rows, beside, "e", DAY_MS)).values())
    count = len(waits)

    async def deliver() -> None:
        await rows.rows(
            "select * from rt.deliver_v1($1, $2, $3, $4, $5)",
            waits,
            ["c"] * count,
            ["1"] * count,
            [None] * count,
            [uuid.uuid4()] * count,
        )

    await compare(rows, placed, causes.Delivered(), deliver)
    for one in placed:
        if one.status not in TERMINAL:
            assert tuple(await fences(rows, one.run)) == (5, 0, 1)


async def test_cancel(rows: LiveRows) -> None:
    placed = await place_all(rows)
    await open_waits(rows, placed, "s", DAY_MS)
    runs = [one.run for one in placed]
    count = len(runs)

    async def cancel() -> None:
        await rows.rows("select * from rt.finish_v1($1, $2, $3, $3, true)", runs, ["cancelled"] * count, [None] * count)

    await compare(rows, placed, causes.Cancel(), cancel)
    await nothing_is_left(rows)


async def test_deadline_passed(rows: LiveRows) -> None:
    placed = await place_all(rows)
    await open_waits(rows, placed, "s", DAY_MS)
    await rows.value("update rt.live set deadline = rt.now()")
    await compare(rows, placed, causes.DeadlinePassed(), lambda: rows.rows("select * from rt.expire_v1(1000)"))
    await nothing_is_left(rows)


async def nothing_is_left(rows: LiveRows) -> None:
    """Ended runs have no lease, wait, timer or slot; their epoch has moved past every holder's."""
    assert await rows.value("select count(*) from rt.live") == 0
    assert await rows.value("select count(*) from rt.wait") == 0
    assert await rows.value("select bool_and(epoch = 6) from rt.ends")


@pytest.mark.parametrize("gated", [False, True])
async def test_retried(rows: LiveRows, gated: bool) -> None:
    placed = [one for one in await place_all(rows) if one.status in TERMINAL and one.gated == gated]

    async def retry() -> None:
        for one in placed:
            gates = (rows.GATED, GATE) if gated else (0, None)
            retry = "select * from rt.retry_v1($1, $2, 4::smallint, 86400000, $3, $4, null)"
            await rows.rows(retry, rows.tenant, one.run, *gates)

    await compare(rows, placed, causes.Retried(), retry)
    for one in placed:
        if one.status is not Status.COMPLETED:
            assert (await fences(rows, one.run))["epoch"] == 7, "the fences go on from where the run ended"


RESULT = StepCompleted(id="a", name="a", output="1")


@pytest.mark.parametrize(
    ("ops", "status"),
    [
        ([RESULT], Status.RUNNING),
        ([Sleep(id="a", name="a", duration_ms=DAY_MS)], Status.SLEEPING),
        ([WaitForEvent(id="a", name="a", event="paid", timeout_ms=DAY_MS)], Status.WAITING),
        ([StepFailed(id="a", name="a", error=FAILED)], Status.DELAYED),
        ([StepFailed(id="a", name="a", error=FAILED, non_retriable=True)], Status.RUNNING),
        ([RESULT, RunCompleted(output="2")], Status.COMPLETED),
        ([RunFailed(error=FAILED)], Status.DELAYED),
        ([RunFailed(error=FAILED, non_retriable=True)], Status.FAILED),
    ],
)
async def test_answered(hand: Hand, rows: LiveRows, ops: list[Op], status: Status) -> None:
    run = await hand.start("work")
    decided = await hand.answer(run, *ops)
    assert decided is status
    assert await rows.status(run) is decided


async def test_function_failed_until_the_last_attempt(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    for _ in range(MAX_ATTEMPTS - 1):
        assert await hand.fail(run) is Status.DELAYED is await rows.status(run)
        await hand.fire(run)
        assert await rows.status(run) is Status.QUEUED
    assert await hand.fail(run) is Status.FAILED is await rows.status(run)


async def test_answered_by_a_run_whose_slot_another_waits_for(rows: LiveRows) -> None:
    owner = secrets.randbits(63)
    run, other = await rows.start(2, ga=GATE)
    await rows.value("update rt.live set st = 'q', slot = true where id = $1", run)
    await rows.claim(owner, [run])
    decision = decide(
        RunView(status=Status.RUNNING, max_attempts=4, gated=True), causes.Answered((RESULT,), wanted=True), 0
    )
    answer = await rows.commit(owner, run, keep=True, st="r", gates=(GATE,))
    assert answer["result"] == "d"
    assert await rows.status(run) is decision.status is Status.BLOCKED
    assert await rows.status(other) is Status.BLOCKED
    live = await rows.live(run)
    assert live is not None
    assert (live["slot"], live["owner"]) == (False, None)


async def test_a_delivery_the_holder_has_not_seen_turns_letting_go_into_the_queue(rows: LiveRows) -> None:
    for letter in ("s", "w", "d"):
        owner = secrets.randbits(63)
        run = await rows.held(owner)
        await rows.value("update rt.live set mail = mail + 1 where id = $1", run)
        assert (await rows.commit(owner, run, mail=0, st=letter))["st"] == "q"
        assert await rows.status(run) is Status.QUEUED


async def test_a_slot_is_handed_on_at_the_second_gate_too(rows: LiveRows) -> None:
    owner = secrets.randbits(63)
    (run,) = await rows.start(1, ga=GATE, gb=GATE + 1)
    (other,) = await rows.start(1, ga=GATE + 2, gb=GATE + 1)
    await rows.value("update rt.live set st = 'q', slot = true where id = $1", run)
    await rows.claim(owner, [run])
    await rows.value("update rt.live set line = gb where id = $1", other)
    assert (await rows.commit(owner, run, keep=True, st="r", gates=(GATE, GATE + 1)))["st"] == "b"


async def test_a_slot_is_kept_while_those_at_a_gate_wait_for_another(rows: LiveRows) -> None:
    owner = secrets.randbits(63)
    (run,) = await rows.start(1, ga=GATE, gb=GATE + 1)
    (other,) = await rows.start(1, ga=GATE + 2, gb=GATE + 1)
    await rows.value("update rt.live set st = 'q', slot = true where id = $1", run)
    await rows.claim(owner, [run])
    await rows.value("update rt.live set line = ga where id = $1", other)
    assert (await rows.commit(owner, run, keep=True, st="r", gates=(GATE, GATE + 1)))["st"] == "r"
