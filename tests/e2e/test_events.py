"""Events that workflows send: they start, resume and are sent once."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, OutgoingEvent, Step, Workflows

from tests.support.rest import Rest, step_of
from tests.support.workflow_app import Bodies, serving


def chain(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("first", triggers=[{"event": "chain.begun"}])
    def first(ctx: Context, step: Step) -> dict[str, Any]:
        event: OutgoingEvent = {"name": "chain.first-done", "data": {"n": 1}}
        if "key" in ctx.event["data"]:
            event["id"] = ctx.event["data"]["key"]
        sent = step.send_event("tell", event)
        many = step.send_event("tell-many", [{"name": "chain.counted", "data": {"n": n}} for n in range(5)])
        return {"sent": sent["ids"], "many": many["ids"]}

    @wf.workflow("second", triggers=[{"event": "chain.first-done"}])
    def second(ctx: Context, step: Step) -> dict[str, Any]:
        step.run("work", bodies.record, ctx.run_id, "work")
        step.send_event("tell", {"name": "chain.second-done", "data": {"n": ctx.event["data"]["n"] + 1}})
        return {"event": ctx.event["id"], "source": ctx.source}

    @wf.workflow("counter", triggers=[{"event": "chain.counted", "if": "event.data.n >= 3"}])
    def counter(ctx: Context, step: Step) -> int:
        return int(ctx.event["data"]["n"])

    @wf.workflow("watcher", triggers=[{"event": "watch.begun"}])
    def watcher(ctx: Context, step: Step) -> Any:
        done = step.wait_for_event("done", "chain.second-done", timeout="1h")
        return done and done["data"]


async def test_a_chain_of_events_runs_to_its_end(rest: Rest) -> None:
    async with serving(rest, chain) as bodies:
        (watcher,) = (await rest.send("watch.begun"))["runs"]
        await rest.becomes(watcher, "waiting")
        (first,) = (await rest.send("chain.begun"))["runs"]
        assert await rest.completed(watcher) == {"n": 2}
        output = await rest.completed(first)
        (second,) = [run["id"] for run in await rest.runs("?workflow=second")]
        assert await rest.completed(second) == {"event": output["sent"][0], "source": "event"}
        counters = await rest.runs("?workflow=counter")
        assert sorted([await rest.completed(run["id"]) for run in counters]) == [3, 4]
        event = await rest.ok("GET", f"/events/{output['sent'][0]}")
    assert (event["source"], event["run_id"], event["runs"]) == ("workflow", first, [second])
    assert len(output["many"]) == 5
    assert bodies.of(second) == {"work": 1}


async def test_an_event_id_is_accepted_once_whoever_sends_it(rest: Rest) -> None:
    async with serving(rest, chain):
        runs = [(await rest.send("chain.begun", {"key": "k-1"}))["runs"][0] for _ in range(3)]
        for run in runs:
            await rest.completed(run)
        seconds = await rest.runs("?workflow=second")
        assert len(seconds) == 1
        await rest.completed(seconds[0]["id"])
        again = await rest.send("chain.first-done", {"n": 7}, id="k-1")
    assert len(await rest.runs("?workflow=second")) == len(again["runs"])


async def test_a_sender_id_is_a_duplicate_the_second_time(rest: Rest) -> None:
    async with serving(rest, chain):
        first = await rest.send("chain.first-done", {"n": 1}, id="e-1")
        second = await rest.send("chain.first-done", {"n": 1}, id="e-1")
        assert (first["duplicate"], second["duplicate"]) == (False, True)
        assert (second["id"], second["runs"]) == (first["id"], first["runs"])
        run = await rest.end(first["runs"][0])
    assert step_of(run, "tell")["output"]["ids"]
