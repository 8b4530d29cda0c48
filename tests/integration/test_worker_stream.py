"""The worker stream against a real executor: a worker played by hand says what a good, a slow and a bad one would."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any
from uuid import UUID

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.runtime.ids import ulid_text
from services.executor import load
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, until
from tests.support.worker import HandWorker, StreamExecutor, reported, sign, stranger, stream_executor, worker

DONE = {"op": "run_completed", "output": 7}


def sleep(step_id: str, seconds: float = 60) -> dict[str, Any]:
    return {"op": "sleep", "id": step_id, "name": step_id, "duration": seconds}


def waiting(step_id: str, event: str = "paid") -> dict[str, Any]:
    return {"op": "wait_for_event", "id": step_id, "name": step_id, "event": event}


def failing(step_id: str, **fields: Any) -> dict[str, Any]:
    return {"op": "step_failed", "id": step_id, "name": step_id, "error": {"name": "Boom", "message": "no"}, **fields}


async def begin(hand: Hand, executor: StreamExecutor, one: HandWorker) -> tuple[UUID, pb.InvocationKey]:
    """A run of `work`, given to the worker."""
    run = await hand.start("work")
    executor.incarnation.hint([run])
    execute, request = await one.execute()
    assert request["run"]["id"] == execute.key.run_id == ulid_text(run)
    return run, execute.key


async def comes_to(rows: LiveRows, run: UUID, status: Status) -> None:
    async def is_there() -> bool:
        return await rows.status(run) is status

    await until(is_there)


async def again(executor: StreamExecutor, run: UUID, one: HandWorker) -> tuple[pb.Execute, dict[str, Any]]:
    executor.incarnation.hint([run])
    return await one.execute()


class TestMeeting:
    async def test_both_sides_prove_that_they_hold_the_key(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.hello([{"name": "work"}])
            ack = await one.next("hello_ack")
            assert ack.signature == sign(executor.key, "runr-engine-v1", one._challenge, one.nonce, one.session)
            assert ack.heartbeat_interval.seconds == 5
            assert ack.dead_after.seconds == 15

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"key": "wfsk_wrong"}, "UNAUTHENTICATED"),
            ({"signature": "0" * 64}, "UNAUTHENTICATED"),
            ({"signature": "ä"}, "UNAUTHENTICATED"),
            ({"project": "nowhere"}, "UNAUTHENTICATED"),
            ({"tenant": "nobody"}, "UNAUTHENTICATED"),
            ({"tenant": "a\x00b"}, "INVALID_HELLO"),
            ({"protocol": 2}, "UNSUPPORTED_PROTOCOL"),
            ({"required_features": ["flying"]}, "MISSING_FEATURE"),
            ({"session": "me"}, "INVALID_HELLO"),
            ({"credits": 0}, "INVALID_HELLO"),
            ({"nonce": "short"}, "INVALID_HELLO"),
            ({"definitions_hash": "0" * 64}, "INVALID_HELLO"),
        ],
    )
    async def test_a_worker_that_is_not_right_is_told_why(
        self, hand: Hand, fields: dict[str, Any], reason: str
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.hello([{"name": "work"}], **fields)
            assert (await one.next("goodbye")).reason == reason
            await asyncio.wait_for(one.ended.wait(), 10)
            assert not list(executor.sessions)

    async def test_definitions_that_are_refused_are_named_by_their_paths(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.hello([{"name": "work", "retries": 99}])
            goodbye = await one.next("goodbye")
            assert goodbye.reason == "INVALID_DEFINITIONS"
            assert "workflows[0].retries" in goodbye.message

    async def test_a_first_message_that_is_no_hello_is_refused(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.say(pb.WorkerMessage(heartbeat=pb.Heartbeat()))
            assert (await one.next("goodbye")).reason == "INVALID_HELLO"

    async def test_a_recorded_hello_opens_nothing(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
            await one.hello([{"name": "work"}])
            await one.next("hello_ack")
            old = one._challenge
            async with stranger(executor, one.session) as thief:
                thief._challenge = old
                await thief.hello([{"name": "work"}])
                assert (await thief.next("goodbye")).reason == "UNAUTHENTICATED"

    async def test_an_older_version_of_the_code_replaces_nothing_and_gets_what_it_serves(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as newer:
            await newer.hello([{"name": "work"}, {"name": "new"}], code_version=2)
            assert (await newer.next("hello_ack")).definitions == pb.DEFINITIONS_OUTCOME_REPLACED
            async with stranger(executor) as older:
                await older.hello([{"name": "work"}], code_version=1)
                assert (await older.next("hello_ack")).definitions == pb.DEFINITIONS_OUTCOME_OLDER
                run = await hand.start("new")
                executor.incarnation.hint([run])
                _, request = await newer.execute()
                assert request["workflow"] == "new"
                assert older.heard("execute") == 0

    async def test_the_newest_stream_of_a_session_wins(self, hand: Hand) -> None:
        session = str(uuid.uuid4())
        async with (
            stream_executor(hand.database, hand.tenant) as executor,
            worker(executor, session=session, resuming=False) as old,
            worker(executor, session=session, resuming=False) as new,
        ):
            assert (await old.next("goodbye")).reason == "SUPERSEDED"
            await begin(hand, executor, new)
            assert old.heard("execute") == 0


class TestSteps:
    async def test_a_run_goes_from_step_to_step_in_one_invocation(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            for number, step_id in enumerate(("a", "b", "c"), start=1):
                await one.op(key, number, completed(step_id, number))
                ack = await one.ack()
                assert (ack.number, ack.outcome, ack.yield_reason) == (number, pb.ACK_OUTCOME_COMMITTED, 0)
                assert not ack.HasField("step"), "the worker has what it returned"
                stored = await rows.rows("select sid, output from rt.steps where run = $1 order by seq", run)
                assert [row["sid"] for row in stored] == ["a", "b", "c"][:number]
            await one.op(key, 4, DONE, last=True)
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_ENDED
            assert await rows.status(run) is Status.COMPLETED
            assert one.heard("execute") == 0
            assert one.heard("cancel") == 0

    async def test_ops_in_one_message_are_one_commit_each_acknowledged(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            before = await rows.live(run)
            await one.say(*(reported(key, n, completed(f"s{n}", n)) for n in range(1, 21)))
            acks = [await one.ack() for _ in range(20)]
            assert sorted(ack.number for ack in acks) == list(range(1, 21))
            after = await rows.live(run)
            assert before is not None
            assert after is not None
            assert after["steps"] == 20
            assert after["rev"] - before["rev"] < 20, "what came together is committed together"

    async def test_code_that_sleeps_last_ends_the_invocation_in_one_commit(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            before = await rows.live(run)
            await one.op(key, 1, sleep("nap"), last=True)
            ack = await one.ack()
            assert ack.yield_reason == pb.YIELD_REASON_LATER
            assert not ack.HasField("step")
            after = await rows.live(run)
            assert before is not None
            assert after is not None
            assert (after["st"], after["rev"] - before["rev"]) == ("s", 1)
            await hand.fire(run)
            _, request = await again(executor, run, one)
            assert request["steps"]["nap"] == {"status": "completed", "output": None}

    async def test_a_failed_step_is_tried_again_by_a_later_invocation(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, failing("a"), last=True)
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_LATER
            assert await rows.status(run) is Status.DELAYED
            await hand.fire(run)
            execute, request = await again(executor, run, one)
            assert request["run"]["attempt"] == 1
            assert list(execute.open_steps) == []

    async def test_a_step_that_fails_for_good_resolves_with_its_error(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            _, key = await begin(hand, executor, one)
            await one.op(key, 1, failing("a", non_retriable=True))
            ack = await one.ack()
            assert ack.step == b'{"status":"failed","error":{"name":"Boom","message":"no"}}'
            assert ack.yield_reason == 0

    async def test_a_step_with_bad_arguments_resolves_with_what_is_wrong(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            _, key = await begin(hand, executor, one)
            await one.op(key, 1, {"op": "sleep", "id": "nap", "name": "nap", "duration": "soon"})
            assert b'"InvalidStep"' in (await one.ack()).step

    async def test_sent_events_resolve_with_their_ids(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            _, key = await begin(hand, executor, one)
            await one.op(key, 1, {"op": "send_event", "id": "e", "name": "e", "events": [{"name": "x"}]})
            assert b'"ids"' in (await one.ack()).step

    async def test_an_op_that_is_no_op_is_a_failed_attempt(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, {"op": "fly"})
            await one.next("cancel")
            assert await rows.status(run) is Status.DELAYED
            assert (await rows.value("select error from rt.attempts where run = $1", run)).startswith(
                '{"name":"ProtocolError"'
            )

    async def test_an_end_without_a_reason_is_a_failed_attempt(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.end(key)
            await comes_to(rows, run, Status.DELAYED)


class TestParallelSteps:
    async def test_what_rests_beside_an_executing_step_is_stored_at_once_and_the_run_is_running(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(reported(key, 1, sleep("nap")), reported(key, 2, waiting("pay")))
            for _ in range(2):
                ack = await one.ack()
                assert (ack.outcome, ack.yield_reason, ack.HasField("step")) == (pb.ACK_OUTCOME_COMMITTED, 0, False)
            assert await rows.status(run) is Status.RUNNING
            assert await rows.value("select count(*) from rt.wait where run = $1", run) == 2
            await one.op(key, 3, completed("a"))
            await one.ack()
            await one.end(key)
            await comes_to(rows, run, Status.SLEEPING)

    async def test_a_delivery_reaches_the_invocation_with_the_next_commit(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            _, key = await begin(hand, executor, one)
            await one.op(key, 1, waiting("pay"))
            await one.ack()
            await hand.send("paid", '{"sum":1}')
            await one.op(key, 2, completed("a"))
            await one.ack()
            delivery = await one.next("delivery")
            assert delivery.step_id == "pay"
            assert b'"sum":1' in delivery.step

    async def test_a_delivery_reaches_an_invocation_that_executes_at_once(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(reported(key, 1, waiting("pay")), reported(key, 2, sleep("nap")))
            await one.ack()
            await one.ack()
            executor.incarnation.mailed([run])  # a hint that is wrong, or comes twice, does nothing
            await hand.send("paid", '{"sum":1}')
            executor.incarnation.mailed([run])
            delivery = await one.next("delivery")
            assert (delivery.step_id, b'"sum":1' in delivery.step) == ("pay", True)
            await hand.fire(run)
            executor.incarnation.mailed([run])
            assert (await one.next("delivery")).step_id == "nap"
            await one.op(key, 3, DONE, last=True)
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_ENDED
            assert await rows.status(run) is Status.COMPLETED

    async def test_an_end_that_crosses_a_delivery_is_no_fault(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, waiting("pay"))
            await one.ack()
            await hand.send("paid")
            executor.incarnation.mailed([run])
            await one.next("delivery")
            await one.end(key)
            execute, request = await one.execute()
            assert execute.key.invocation == 2
            assert request["steps"]["pay"]["status"] == "completed"
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_a_delivery_that_was_lost_with_a_stream_is_sent_again(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
                await one.op(key, 1, waiting("pay"))
                await one.ack()
                await hand.send("paid")
                executor.incarnation.mailed([run])
                await one.next("delivery")
            async with worker(executor, session=one.session) as back:
                await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key)])))
                assert (await back.next("delivery")).step_id == "pay"

    async def test_c5_nobody_sleeps_over_a_delivery_that_came_before_the_end(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, waiting("pay"))
            await one.ack()
            await hand.send("paid")
            await one.end(key)
            _, request = await again(executor, run, one)
            assert request["steps"]["pay"]["status"] == "completed"

    async def test_steps_that_are_open_are_named_to_the_next_invocation(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(
                reported(key, 1, sleep("nap")), reported(key, 2, waiting("pay")), reported(key, 3, failing("bad"))
            )
            for _ in range(3):
                await one.ack()
            await one.end(key)
            await comes_to(rows, run, Status.SLEEPING)
            await hand.send("paid")
            execute, request = await again(executor, run, one)
            assert sorted(execute.open_steps) == ["bad", "nap"]
            assert list(request["steps"]) == ["pay"]
            # Reported all the same, by a worker that forgot: nothing is opened twice.
            await one.op(execute.key, 1, sleep("nap"), last=True)
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_LATER
            assert await rows.value("select count(*) from rt.wait where run = $1", run) == 2

    async def test_code_that_has_to_be_begun_anew_is_so_at_once_whatever_is_open(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(reported(key, 1, completed("a")), reported(key, 2, sleep("nap")))
            await one.ack()
            await one.ack()
            await one.end(key, again=True)
            execute, request = await one.execute()
            assert (execute.key.epoch, execute.key.invocation) == (key.epoch, 2)
            assert (list(execute.open_steps), list(request["steps"])) == (["nap"], ["a"])
            # Without progress the question is not heard: the run rests in what is open.
            await one.end(execute.key, again=True)
            await comes_to(rows, run, Status.SLEEPING)

    async def test_a_worker_that_asks_for_ever_anew_without_progress_is_a_failed_attempt(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, completed("a"))
            await one.ack()
            await one.end(key, again=True)
            execute, _ = await one.execute()
            await one.end(execute.key, again=True)
            await comes_to(rows, run, Status.DELAYED)
            assert "ProtocolError" in await rows.value("select error from rt.attempts where run = $1", run)

    async def test_a_backoff_that_is_over_lets_the_next_invocation_execute_the_step(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.op(key, 1, failing("bad"))
            await one.ack()
            await hand.fire(run)
            await one.op(key, 2, completed("a"))
            await one.ack()
            await one.end(key)
            execute, request = await again(executor, run, one)
            assert list(execute.open_steps) == []
            assert request["run"]["attempt"] == 1

    async def test_two_hundred_children_are_started_in_a_few_commits(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor, "work", "child") as one:
            run, key = await begin(hand, executor, one)
            await one.say(
                *(
                    reported(key, n, {"op": "invoke", "id": f"c{n}", "name": "c", "workflow": "child", "data": {}})
                    for n in range(1, 201)
                )
            )
            for _ in range(200):
                await one.ack()
            live = await rows.live(run)
            assert live is not None
            assert live["rev"] <= 3
            assert await rows.value("select count(*) from rt.live where parent = $1", run) == 200


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


class TestBrokenStreams:
    async def test_s2_a_worker_that_comes_back_goes_on_and_nothing_runs_again(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
                await one.op(key, 1, completed("a"))
                await one.ack()
                one.cut()
                await asyncio.wait_for(one.ended.wait(), 10)
            async with worker(executor, session=one.session) as back:
                op = reported(key, 2, completed("b")).op
                await back.say(
                    pb.WorkerMessage(
                        resume=pb.Resume(items=[pb.Resume.Item(key=key, unacked=[op])]),
                    )
                )
                (item,) = (await back.next("resume_ack")).items
                assert item.resumed_as == key
                assert (await back.ack()).number == 2
                await back.op(key, 3, DONE, last=True)
                await back.ack()
                assert back.heard("execute") == 0
            assert await rows.status(run) is Status.COMPLETED
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_an_op_whose_acknowledgement_was_lost_is_acknowledged_at_the_resumption(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
                op = reported(key, 1, completed("a"))
                await one.say(op)
                await one.ack()
            async with worker(executor, session=one.session) as back:
                await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key, unacked=[op.op])])))
                assert (await back.ack()).outcome == pb.ACK_OUTCOME_ALREADY
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 1

    async def test_an_invocation_that_never_arrived_is_sent_again(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
            async with worker(executor, session=one.session) as back:
                await back.say(pb.WorkerMessage(resume=pb.Resume()))
                execute, _ = await back.execute()
                assert execute.key.run_id == key.run_id
                assert execute.key.invocation == key.invocation + 1
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_a_worker_that_saw_no_answer_to_its_first_hello_is_given_its_run_again(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        run = await hand.start("work")
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                executor.incarnation.hint([run])
                lost, _ = await one.execute()
            async with worker(executor, session=one.session, resuming=False) as again:
                execute, _ = await again.execute()
                assert execute.key.invocation == lost.key.invocation + 1
                await again.op(execute.key, 1, DONE, last=True)
                await again.ack()
        assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_what_an_unknown_executor_held_is_not_resumed(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            key = pb.InvocationKey(run_id=ulid_text(uuid.uuid4()), epoch=3, invocation=1)
            await one.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key)])))
            (item,) = (await one.next("resume_ack")).items
            assert item.key == key
            assert not item.HasField("resumed_as")

    async def test_a_worker_that_does_not_come_back_is_a_failed_attempt(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant, resume_grace_s=0.2) as executor:
            async with worker(executor) as one:
                run, _ = await begin(hand, executor, one)
            await comes_to(rows, run, Status.DELAYED)
            error = await rows.value("select error from rt.attempts where run = $1", run)
            assert error.startswith('{"name":"WorkerDisconnected"')
            assert not list(executor.sessions)

    async def test_s6_a_step_that_hangs_is_cancelled_and_counts(self, hand: Hand, rows: LiveRows) -> None:
        async with (
            stream_executor(hand.database, hand.tenant, request_timeout_s=0.3) as executor,
            worker(executor) as one,
        ):
            run, _ = await begin(hand, executor, one)
            await one.next("cancel")
            await comes_to(rows, run, Status.DELAYED)
            assert "FunctionTimeout" in await rows.value("select error from rt.attempts where run = $1", run)


class TestLeaving:
    async def test_s7_a_draining_executor_asks_for_the_runs_and_gives_them_back_without_an_attempt(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            executor.sessions.announce_drain()
            await one.next("drain")
            draining = asyncio.create_task(executor.incarnation.drain())
            await one.op(key, 1, completed("a"))
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_DRAIN
            await one.end(key)
            await asyncio.wait_for(draining, 10)
            assert await rows.status(run) is Status.QUEUED
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0
            async with stranger(executor) as late:
                assert (await late.next("goodbye")).reason == "SHUTDOWN"

    async def test_a_draining_worker_is_given_nothing_more(self, hand: Hand) -> None:
        async with (
            stream_executor(hand.database, hand.tenant) as executor,
            worker(executor) as leaving,
            worker(executor, credits=1) as stays,
        ):
            await leaving.say(pb.WorkerMessage(drain=pb.Drain()))
            session = next(each for each in executor.sessions if each.session == leaving.session)
            await until(lambda: _true(session.draining))
            await begin(hand, executor, stays)
            assert leaving.heard("execute") == 0

    async def test_messages_of_an_unknown_kind_are_ignored(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            await one.say(pb.WorkerMessage.FromString(b"\xfa\x01\x02\x08\x01"), pb.WorkerMessage())
            await begin(hand, executor, one)


async def _true(holds: bool) -> bool:
    return holds


class TestBetweenStreams:
    async def test_a_worker_that_resumes_is_given_nothing_before_it_has_said_what_it_brings_along(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor, credits=2) as one:
                _, key = await begin(hand, executor, one)
            waiting = [await hand.start("work") for _ in range(3)]
            async with worker(executor, session=one.session, credits=2, resuming=True) as back:
                executor.incarnation.hint(waiting)
                (session,) = executor.sessions
                assert session.credits == 0
                assert executor.sessions.connected(session.tenant, session.project) == 1
                assert executor.sessions.connected(session.tenant, session.project + 1) == 0
                await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key)])))
                (item,) = (await back.next("resume_ack")).items
                assert item.resumed_as == key
                executor.incarnation.hint(waiting)
                await back.execute()
                assert session.credits == 0, "one goes on, one is new: both slots are taken"
                assert back.heard("execute") == 0
                assert back.heard("cancel") == 0


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
    @pytest.mark.parametrize("read", ["open_steps", "memoized"])
    async def test_what_is_delivered_between_the_reads_of_a_claim_has_its_result_or_is_open(
        self, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch, read: str
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            await one.say(reported(key, 1, waiting("pay")), reported(key, 2, waiting("ship", "shipped")))
            for _ in range(2):
                await one.ack()
            await one.end(key)
            await comes_to(rows, run, Status.WAITING)
            reader = "load_memos" if read == "memoized" else "_load_open"
            real = getattr(load, reader)

            async def after_the_event(*args: Any) -> Any:
                monkeypatch.setattr(load, reader, real)
                await hand.send("paid")
                return await real(*args)

            monkeypatch.setattr(load, reader, after_the_event)
            await hand.send("shipped")
            execute, request = await again(executor, run, one)
            assert "pay" in request["steps"] or "pay" in execute.open_steps
