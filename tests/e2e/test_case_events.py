"""Cases of `tests/vectors/data/cases.jsonl` about definitions and events, over the whole stack."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.fake_function import FakeFunction
from tests.support.rest import Json, Rest, step_of
from tests.support.transports import only_over
from tests.support.waiting import until
from tests.support.workflow_app import Bodies, serving

CASES = Path(__file__).parent.parent / "vectors" / "data" / "cases.jsonl"
WAIT_S = 5.0


def case(id: str) -> Json:
    """The row with this id."""
    rows = map(json.loads, CASES.read_text().splitlines())
    (found,) = [row for row in rows if row["id"] == id]
    return dict(found)


@asynccontextmanager
async def introspected(rest: Rest) -> AsyncIterator[FakeFunction]:
    """A function whose list a test changes; it begins with one workflow, `kept`."""
    app = f"/projects/{rest.project}/workflows/app"
    key = (await rest.ok("GET", f"{app}/signing-key"))["signing_key"]
    async with FakeFunction(key=key, definitions=[{"name": "kept"}]) as function:
        await rest.ok("PATCH", app, {"endpoint_url": function.url})
        yield function


@only_over("http", because="the function is asked for its list")
async def test_case_07_cron_six_fields_refused(rest: Rest) -> None:
    row = case("case-07-cron-six-fields-refused")
    async with introspected(rest) as function:
        function.definitions = [{"name": "nightly", **row["input"]}, {"name": "other"}]
        refused = await rest.call("POST", f"/projects/{rest.project}/workflows/sync", {})
        (fault,) = refused.problem(422)["errors"]
        assert fault["path"].startswith("workflows[0].triggers[0]")
        assert "nightly" in fault["message"]
        assert "five fields" in fault["message"]
        listed = await rest.ok("GET", f"/projects/{rest.project}/workflows")
        assert [each["name"] for each in listed["data"]] == ["kept"]
        app = await rest.ok("GET", f"/projects/{rest.project}/workflows/app")
        assert app["sync"]["status"] == "failed"


@only_over("http", because="no code of the project is needed")
async def test_case_11_event_dedup_sequence(rest: Rest) -> None:
    expected = case("case-11-event-dedup-sequence")["expected"]
    definition = {"name": "w", "triggers": [{"event": "a"}]}
    await rest.ok("PUT", f"/projects/{rest.project}/workflows", {"workflows": [definition]})
    requests: list[Any] = [
        {"name": "a", "id": "X", "data": {"n": 1}},
        {"name": "a", "id": "X", "data": {"n": 2}},
        [{"name": "a", "id": "X"}, {"name": "b", "id": "X"}, {"name": "a", "id": "Y"}, {"name": "a", "id": "Y"}],
        {"name": "a"},
        {"name": "a"},
    ]
    answers = [event for each in requests for event in (await rest.ok("POST", "/events", each))["events"]]
    assert [answer["duplicate"] for answer in answers] == expected["duplicates"]
    assert {(each["id"], each["name"]) for each in answers[:4]} == {(answers[0]["id"], "a")}
    assert all(each["runs"] == answers[0]["runs"] for each in answers[:4])
    assert answers[5]["id"] == answers[4]["id"]
    first = await rest.ok("GET", f"/events/{answers[0]['id']}")
    assert first["data"] == {"n": 1}
    assert len(await rest.runs("?workflow=w")) == expected["runs_of_W"]


async def test_case_14_idempotency_key_types(rest: Rest) -> None:
    row = case("case-14-idempotency-key-types")
    datas = [{} if k == "<missing>" else {"k": k} for k in row["input"]["k"]]
    slots = row["expected"]["concurrency_slots"]
    async with serving(rest, keyed) as bodies:
        bodies.hold("work")
        events = [{"name": "keyed.begun", "data": data} for data in datas]
        answers = (await rest.ok("POST", "/events", events))["events"]
        runs = {run for answer in answers for run in answer["runs"]}
        assert len(runs) == row["expected"]["runs"]
        # One body runs per slot; the sixth run shares the slot of no key, and waits.
        await bodies.until(lambda done: len(done) == slots)
        statuses = [(await rest.run(run))["status"] for run in runs]
        assert sorted(statuses) == ["queued"] * (len(runs) - slots) + ["running"] * slots
        again = (await rest.ok("POST", "/events", events))["events"]
        assert [new["runs"] == old["runs"] for new, old in zip(again, answers, strict=True)] == [True] * 4 + [False] * 2
        bodies.let_go()
        for run in runs:
            await rest.completed(run)


async def test_case_15_wait_vs_event_race(rest: Rest) -> None:
    """Each event is sent within 50 ms before or after the moment at which its wait is stored."""
    dice = random.Random(15)
    count = 60
    async with serving(rest, racing) as bodies:
        runs = await asyncio.gather(*(rest.start("racing", {"k": k}) for k in range(count)))

        async def send(k: int) -> int:
            # The wait is stored some milliseconds after the step before it: the events come before, at and after that.
            await until(lambda: bodies.of(runs[k])["before"])
            await asyncio.sleep(dice.uniform(0, 0.1))
            return int((await rest.send("paid", {"k": k}))["resumed"])

        resumed = await asyncio.gather(*(send(k) for k in range(count)))
        outputs = [await rest.completed(run) for run in runs]
        shown = [step_of(await rest.run(run), "paid") for run in runs]
    assert sum(resumed) == sum(output is not None for output in outputs)
    for k, (got, output, step) in enumerate(zip(resumed, outputs, shown, strict=True)):
        assert output in ({"k": k}, None)
        assert got == (output is not None)
        assert step["status"] == "completed"


async def test_case_18_wait_match_absent_both(rest: Rest) -> None:
    async with serving(rest, matching):
        run = await rest.start("matching")
        waiting = await rest.becomes(run, "waiting")
        assert step_of(waiting, "paid")["wait"]["warnings"] == ["match value is null"]
        assert (await rest.send("paid", {"order_id": "o-1"}))["resumed"] == 0
        assert (await rest.send("paid", {"other": 1}))["resumed"] == 1
        assert await rest.completed(run) == {"other": 1}


def keyed(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow(
        "keyed",
        triggers=[{"event": "keyed.begun"}],
        idempotency="event.data.k",
        concurrency={"limit": 1, "key": "event.data.k"},
    )
    def work(ctx: Context, step: Step) -> None:
        step.run("work", bodies.record, ctx.run_id, "work")


def racing(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("racing")
    def race(ctx: Context, step: Step) -> Any:
        step.run("before", bodies.record, ctx.run_id, "before")
        event = step.wait_for_event("paid", "paid", match="data.k", timeout=WAIT_S)
        return event and event["data"]


def matching(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("matching")
    def match(ctx: Context, step: Step) -> Any:
        event = step.wait_for_event("paid", "paid", match="data.order_id", timeout="1h")
        return event and event["data"]
