"""A process that replaces one which its supervisor has seen end takes that one's runs back at once, and no other's."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Mapping, Sequence

import pytest

from services.cli.child_process import ChildProcess, exec_child
from services.cli.children import Children, ChildSpec
from services.core.engine.hints import Hints
from services.core.engine.rescue_runs import Predecessors, RunRescuer
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import SystemClock
from services.core.runtime.settings import LeaseSettings
from services.core.runtime.supervised import SupervisedProcess, supervised_environ, supervised_process
from services.executor.owner import Owner
from services.scheduler.partitions import EVERY_PARTITION, Partitions
from tests.support.live_rows import LiveRows, Recorder


def process_owner(rows: LiveRows, process: uuid.UUID | None) -> Owner:
    return Owner(rows.database.dsn, node="test", settings=LeaseSettings(), clock=SystemClock(), process=process)


def predecessors(rows: LiveRows, recorder: Recorder, *replaces: uuid.UUID) -> Predecessors:
    rescuer = RunRescuer(rows.database, Hints(recorder), RunTraces.off(rows.database))
    return Predecessors(rows.database, rescuer, replaces)


async def test_the_runs_of_a_replaced_process_are_queued_though_its_session_and_its_beat_are_fresh(
    rows: LiveRows, recorder: Recorder
) -> None:
    ended, other = uuid.uuid4(), uuid.uuid4()
    owners = [process_owner(rows, process) for process in (ended, other, None)]
    for owner in owners:
        await owner.register()
    try:
        lost, *kept = [await rows.held(owner.id) for owner in owners]
        await predecessors(rows, recorder, ended, uuid.uuid4()).bury()
        live = await rows.live(lost)
        assert live is not None
        assert (live["st"], live["owner"], live["fn_att"]) == ("q", None, 1)
        assert recorder.ready == [lost]
        for run, owner in zip(kept, owners[1:], strict=True):
            live = await rows.live(run)
            assert live is not None
            assert (live["st"], live["owner"], live["fn_att"]) == ("r", owner.id, 0)
        # What it had begun to commit is fenced like every rescue.
        assert await rows.claim(owners[0].id, [lost]) == []
    finally:
        for owner in owners:
            await owner.leave()


async def test_a_replaced_process_is_buried_once(rows: LiveRows, recorder: Recorder) -> None:
    ended = uuid.uuid4()
    owner = process_owner(rows, ended)
    await owner.register()
    try:
        burial = predecessors(rows, recorder, ended)
        await burial.bury()
        run = await rows.held(await rows.owner(dead=True))
        await burial.bury()
        live = await rows.live(run)
        assert live is not None
        assert live["st"] == "r"
    finally:
        await owner.leave()


async def test_what_a_worker_executes_is_kept_for_it(rows: LiveRows, recorder: Recorder) -> None:
    ended = uuid.uuid4()
    owner = process_owner(rows, ended)
    await owner.register()
    try:
        run = await rows.held(owner.id)
        await rows.value("update rt.live set affinity = gen_random_uuid() where id = $1 returning true", run)
        await predecessors(rows, recorder, ended).bury()
        live = await rows.live(run)
        assert live is not None
        assert (live["st"], live["fn_att"]) == ("p", 0)
        assert recorder.ready == []
    finally:
        await owner.leave()


async def test_the_share_of_a_replaced_scheduler_is_taken_with_the_first_beat(rows: LiveRows) -> None:
    ended = uuid.uuid4()
    first, second = (
        Partitions(rows.database.dsn, node="test", clock=SystemClock(), supervised=each)
        for each in (SupervisedProcess(ended), SupervisedProcess(uuid.uuid4(), (uuid.uuid4(), ended)))
    )
    try:
        await first.beat()
        await second.beat()
        shared = await rows.value("select count(*) from rt.part where owner = $1", second.owner)
        assert shared == len(EVERY_PARTITION)
    finally:
        await first.stop()
        await second.stop()


def test_what_a_supervisor_tells_is_understood() -> None:
    name, *ended = (uuid.uuid4() for _ in range(3))
    assert supervised_process(supervised_environ(name, ended)) == SupervisedProcess(name, tuple(ended))
    assert supervised_process(supervised_environ(name, [])) == SupervisedProcess(name)
    assert supervised_process({}) == SupervisedProcess()
    with pytest.raises(ValueError, match="UUID"):
        supervised_process({"RUNR_PROCESS": "executor-1"})


async def test_a_child_is_told_all_that_ended_before_it_and_none_that_lives() -> None:
    told: dict[str, list[SupervisedProcess]] = {"one": [], "two": []}
    started = asyncio.Condition()

    async def spawn(command: Sequence[str], environ: Mapping[str, str], pass_fds: Sequence[int]) -> ChildProcess:
        child = await exec_child(command, environ, pass_fds)
        async with started:
            told[environ["WHO"]].append(supervised_process(environ))
            started.notify_all()
        return child

    specs = [ChildSpec(name=name, command=["cat"], environ={**os.environ, "WHO": name}, ready_url="") for name in told]
    children = Children(specs, grace_s=5, spawn=spawn)
    keeping = asyncio.create_task(children.keep())
    for count in (1, 2):
        async with asyncio.timeout(15), started:
            await started.wait_for(lambda count=count: len(told["one"]) == count)  # type: ignore[misc]
        await until_listed(children, "one")
        os.kill(children.pids()["one"], signal.SIGKILL)
    async with asyncio.timeout(15), started:
        await started.wait_for(lambda: len(told["one"]) == 3)
    await children.stop()
    await keeping
    first, second, third = told["one"]
    assert (first.replaces, second.replaces, third.replaces) == ((), (first.name,), (first.name, second.name))
    assert len({first.name, second.name, third.name, told["two"][0].name}) == 4
    assert [each.replaces for each in told["two"]] == [()]


async def until_listed(children: Children, name: str) -> None:
    """Returns when the child is there to be killed."""
    async with asyncio.timeout(15):
        while name not in children.pids():
            await asyncio.sleep(0)
