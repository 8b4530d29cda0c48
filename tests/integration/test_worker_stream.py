"""The worker stream against a real executor: a worker played by hand says what a good, a slow and a bad one would."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.worker import reported, sign, stranger, stream_executor, worker
from tests.support.worker_talk import DONE, again, begin, comes_to, failing, sleep, waiting


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
