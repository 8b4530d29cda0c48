"""The worker stream: whose run it is, and what there is room for, with slots, credits and much at once."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.runtime.ids import ulid_text
from services.executor import load
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.worker import reported, stranger, stream_executor, worker
from tests.support.worker_talk import DONE, again, begin, comes_to, failing, sleep, waiting


class TestIdentity:
    async def test_s1_an_op_of_another_invocation_is_abandoned(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            for other in (
                pb.InvocationKey(run_id=key.run_id, epoch=key.epoch, invocation=key.invocation + 1),
                pb.InvocationKey(run_id=key.run_id, epoch=key.epoch + 1, invocation=key.invocation),
                pb.InvocationKey(run_id=ulid_text(uuid.uuid4()), epoch=key.epoch, invocation=key.invocation),
            ):
                await one.op(other, 1, completed("x"))
                ack = await one.ack()
                assert (ack.outcome, ack.key) == (pb.ACK_OUTCOME_ABANDONED, other)
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0

    async def test_a_worker_does_not_reach_the_invocation_of_another(self, hand: Hand, rows: LiveRows) -> None:
        async with (
            stream_executor(hand.database, hand.tenant) as executor,
            worker(executor) as one,
            worker(executor, credits=1) as two,
        ):
            run, key = await begin(hand, executor, one)
            await two.op(key, 1, completed("x"))
            assert (await two.ack()).outcome == pb.ACK_OUTCOME_ABANDONED
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0

    async def test_an_op_that_comes_twice_is_committed_once_and_acknowledged_twice(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, failing("a", non_retriable=True))
            first = await one.ack()
            await one.op(key, 1, failing("a", non_retriable=True))
            second = await one.ack()
            assert (first.outcome, second.outcome) == (pb.ACK_OUTCOME_COMMITTED, pb.ACK_OUTCOME_ALREADY)
            assert first.step == second.step
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 1

    async def test_a_cancelled_run_is_taken_from_the_worker_and_what_it_sends_is_abandoned(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await hand.cancel(run)
            await executor.incarnation.abandon([run])
            assert (await one.next("cancel")).key == key
            await one.op(key, 1, completed("a"))
            assert (await one.ack()).outcome == pb.ACK_OUTCOME_ABANDONED
            assert await rows.status(run) is Status.CANCELLED

    @pytest.mark.parametrize(
        ("cancelled", "last"), [(True, sleep("nap")), (False, {"op": "dance", "id": "a"})], ids=["fenced", "no op"]
    )
    async def test_a_last_op_that_is_not_committed_has_an_answer_too(
        self, hand: Hand, cancelled: bool, last: dict[str, Any]
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            if cancelled:
                await hand.cancel(run)
            await one.op(key, 1, last, last=True)
            assert (await one.next("cancel")).key == key


class TestSlots:
    @pytest.mark.parametrize("ends_by_op", [True, False])
    async def test_a_slot_that_others_wait_for_is_kept_until_nothing_is_executed(
        self, hand: Hand, rows: LiveRows, ends_by_op: bool
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.hello([{"name": "work", "concurrency": 1}])
            await one.next("hello_ack")
            first, second = [await hand.start("work") for _ in range(2)]
            gates = Gates(hand.database, Hints(NullPublisher()))
            await gates.grant([(row["ga"], row["gb"]) for row in await rows.rows("select ga, gb from rt.live")])
            executor.incarnation.hint([first, second])
            key = (await one.execute())[0].key
            await one.op(key, 1, completed("a"))  # while b is executed
            acked = await one.ack()
            assert (acked.outcome, acked.yield_reason) == (pb.ACK_OUTCOME_COMMITTED, pb.YIELD_REASON_SLOT)
            assert {row["id"] for row in await rows.rows("select id from rt.live where slot")} == {first}
            await one.op(key, 2, completed("b"), last=ends_by_op)
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_SLOT
            if not ends_by_op:
                await one.end(key)
            assert (await one.execute())[0].key.run_id == ulid_text(second)
            assert one.heard("cancel") == 0
            assert await rows.value("select count(*) from rt.steps where run = $1", first) == 2
            assert await rows.status(first) is Status.BLOCKED

    async def test_a_run_whose_slot_nobody_wants_any_more_goes_on(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.hello([{"name": "work", "concurrency": 1}])
            await one.next("hello_ack")
            first, second = [await hand.start("work") for _ in range(2)]
            gates = Gates(hand.database, Hints(NullPublisher()))
            await gates.grant([(row["ga"], row["gb"]) for row in await rows.rows("select ga, gb from rt.live")])
            executor.incarnation.hint([first])
            key = (await one.execute())[0].key
            await one.op(key, 1, completed("a"))
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_SLOT
            await hand.cancel(second)
            await one.end(key)
            execute, request = await one.execute()
            assert (execute.key.run_id, request["step_order"]) == (ulid_text(first), ["a"])


class TestCredits:
    async def test_s5_no_invocation_is_sent_without_a_credit(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor, credits=2) as one:
            runs = [await hand.start("work") for _ in range(4)]
            executor.incarnation.hint(runs)
            keys = [(await one.execute())[0].key for _ in range(2)]
            assert len(executor.incarnation.held) == 2, "what waits for a credit waits in the queue"
            assert one.heard("execute") == 0
            await one.op(keys[0], 1, DONE, last=True)
            keys.append((await one.execute())[0].key)
            assert one.heard("execute") == 0
            await one.say(pb.WorkerMessage(credits=pb.Credits(add=1)))
            keys.append((await one.execute())[0].key)
            assert len({key.run_id for key in keys}) == 4

    async def test_the_worker_with_the_most_credits_is_given_the_run(self, hand: Hand) -> None:
        async with (
            stream_executor(hand.database, hand.tenant) as executor,
            worker(executor, credits=5) as big,  # first: a claim on its way knows nobody who comes later
            worker(executor, credits=1) as small,
        ):
            for _ in range(4):
                await begin(hand, executor, big)
            assert small.heard("execute") == 0


class TestMuchAtOnce:
    async def test_f1_thousands_of_ops_are_judged_in_pieces_that_leave_the_loop_to_others(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        events = [{"name": "x"}] * 50
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            before = await rows.live(run)
            ops = [{"op": "send_event", "id": f"e{n}", "name": "e", "events": events} for n in range(1, 101)]
            await one.say(*(reported(key, n, op) for n, op in enumerate(ops, start=1)))
            acks = [await one.ack() for _ in ops]
            assert {ack.outcome for ack in acks} == {pb.ACK_OUTCOME_COMMITTED}
            after = await rows.live(run)
            assert before is not None
            assert after is not None
            assert after["rev"] - before["rev"] >= 5, "no commit holds more than a piece"

    @pytest.mark.parametrize(
        "ops",
        [
            [completed("a", 1), completed("a", 2)],
            [sleep("a"), completed("a", 1)],
        ],
        ids=["two-results", "a-wait-and-a-result"],
    )
    async def test_two_ops_of_one_step_are_a_failed_attempt(
        self, hand: Hand, rows: LiveRows, ops: list[dict[str, Any]]
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(*(reported(key, n, op) for n, op in enumerate(ops, start=1)))
            await one.next("cancel")
            error = await rows.value("select error from rt.attempts where run = $1", run)
            assert error.startswith('{"name":"ProtocolError"')
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0

    async def test_a_result_of_a_step_that_waits_is_a_failed_attempt(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, sleep("a"))
            await one.ack()
            await one.op(key, 2, completed("a", 1))
            await one.next("cancel")
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0

    @pytest.mark.parametrize("knows", [True, False], ids=["known here", "not known here yet"])
    @pytest.mark.parametrize("op", [completed("pay", 5), failing("pay")], ids=["result", "failure"])
    async def test_a_result_of_a_step_that_was_just_delivered_is_a_failed_attempt(
        self, hand: Hand, rows: LiveRows, op: dict[str, Any], knows: bool
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, waiting("pay"))
            await one.ack()
            await hand.send("paid", '{"sum":1}')
            if knows:
                await one.op(key, 2, completed("a"))
                await one.ack()
                await one.next("delivery")
            await one.op(key, 3 if knows else 2, op)
            await one.next("cancel")
            error = await rows.value("select error from rt.attempts where run = $1", run)
            assert error.startswith('{"name":"ProtocolError","message":"step \'pay\' has a result')
            kinds = await rows.rows("select kind::text as kind from rt.steps where run = $1 and sid = 'pay'", run)
            assert [row["kind"] for row in kinds] == ["e"], "what was delivered stays"

    async def test_a_wait_that_is_asked_for_once_more_is_answered_with_what_it_came_to(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, waiting("pay"))
            await one.ack()
            await hand.send("paid", '{"sum":1}')
            await one.op(key, 2, completed("a", 1))
            await one.ack()
            delivered = (await one.next("delivery")).step
            await one.say(reported(key, 3, waiting("pay")), reported(key, 4, completed("b", 2)))
            ack = await one.ack()
            assert (ack.number, ack.outcome, ack.step) == (3, pb.ACK_OUTCOME_COMMITTED, delivered)
            assert not (await one.ack()).HasField("step")
            assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0


class TestClaimsBesideDeliveries:
    async def test_what_is_delivered_between_a_claim_and_its_reading_has_its_result(
        self, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(reported(key, 1, waiting("pay")), reported(key, 2, waiting("ship", "shipped")))
            for _ in range(2):
                await one.ack()
            await one.end(key)
            await comes_to(rows, run, Status.WAITING)
            real = load._load_tenant

            async def after_the_event(*args: Any) -> Any:
                monkeypatch.setattr(load, "_load_tenant", real)
                await hand.send("paid")
                return await real(*args)

            monkeypatch.setattr(load, "_load_tenant", after_the_event)
            await hand.send("shipped")
            execute, request = await again(executor, run, one)
            assert "pay" in request["steps"]
            assert "pay" not in execute.open_steps
