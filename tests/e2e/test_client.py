"""The Python client against the real API: what it sends, starts, waits for and lists."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runr_workflows import Context, NonRetriableError, Step, Workflows
from runr_workflows.client import ApiError, AsyncClient, Client, ResultTimeout, RunFailed
from runr_workflows.testing import replay

from tests.support.cuttable import cuttable
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

pytestmark = only_over("http", because="clients ask the gateway, however their runs are executed")

WAIT = "60s"


class Bank:
    """Says whether it is open."""

    is_open = False


def orders(bank: Bank) -> Any:
    def register(wf: Workflows, bodies: Bodies) -> None:
        def charge(order: dict[str, Any]) -> str:
            if not bank.is_open:
                raise NonRetriableError("the bank is closed")
            return f"paid {order['id']}"

        @wf.workflow("order", triggers=[{"event": "order.created"}])
        def order(ctx: Context, step: Step) -> Any:
            step.run("reserve", bodies.record, ctx.run_id, "reserve")
            return step.run("charge", charge, ctx.event["data"])

        @wf.workflow("patient")
        def patient(ctx: Context, step: Step) -> Any:
            event = step.wait_for_event("answer", "answered", match="data.id", timeout="1h")
            return event and event["data"]

        @wf.workflow("once", idempotency="event.data.id")
        def once(ctx: Context, step: Step) -> str:
            return ctx.run_id

    return register


@pytest.fixture
def blocking(rest: Rest) -> Client:
    return Client(rest.base, rest.token, project=rest.project)


async def test_the_blocking_client_does_all_that_the_api_does(rest: Rest, blocking: Client) -> None:
    bank = Bank()
    served: list[Workflows] = []

    def register(wf: Workflows, bodies: Bodies) -> None:
        orders(bank)(wf, bodies)
        served.append(wf)

    async with serving(rest, register) as bodies:
        await asyncio.to_thread(tell, blocking, bank, bodies, served)
    blocking.close()


def tell(client: Client, bank: Bank, bodies: Bodies, served: list[Workflows]) -> None:
    sent = client.send("order.created", {"id": "o-1"}, id="e-1")
    again = client.send("order.created", {"id": "o-1"}, id="e-1")
    assert (sent["duplicate"], again["duplicate"], again["runs"]) == (False, True, sent["runs"])
    run = client.run(sent["runs"][0])
    with pytest.raises(RunFailed) as failed:
        run.result(WAIT)
    assert (failed.value.status, failed.value.error and failed.value.error["message"]) == (
        "failed",
        "the bank is closed",
    )

    bank.is_open = True
    assert run.retry()["status"] in ("queued", "running", "completed")
    assert run.result(WAIT) == "paid o-1"
    detail = run.get()
    assert [(step["id"], step["status"]) for step in detail["steps"]] == [
        ("reserve", "completed"),
        ("charge", "completed"),
    ]
    assert detail["event"] is not None
    assert detail["event"]["data"] == {"id": "o-1"}
    assert replay(served[0], detail).next is None
    with pytest.raises(ApiError) as conflict:
        run.retry()
    assert (conflict.value.status, conflict.value.code) == (409, "conflict")

    anew = run.replay(from_step="charge", data={"id": "o-2"})
    assert anew.result(WAIT) == "paid o-2"
    assert bodies.of(anew.id) == {}
    assert run.replay().result(WAIT) == "paid o-1"

    with pytest.raises(ApiError) as refused:
        client.send_many([{"name": "fine"}, {"name": "bad name"}])
    assert (refused.value.status, refused.value.field) == (422, "events[1].name")
    with pytest.raises(ApiError) as missing:
        client.run("01J00000000000000000000000").get()
    assert (missing.value.status, missing.value.code) == (404, "not-found")

    keyed = client.start("order", {"id": "o-3"}, key="k", tags=["red", "blue"])
    same = client.start("order", {"id": "o-4"}, key="k")
    assert (keyed.is_new, same.is_new, same.id) == (True, False, keyed.id)
    assert keyed.result(WAIT) == "paid o-3"
    assert [each["id"] for each in client.runs(tag=["red", "blue"])] == [keyed.id]
    assert [each["id"] for each in client.runs(q="k")] == [keyed.id]

    late = client.start("patient", {"id": 1}, delay="1h")
    assert client.start("patient", {"id": 1}, at="2020-01-01T00:00:00Z").get()["status"] in (
        "queued",
        "running",
        "waiting",
    )
    with pytest.raises(ResultTimeout):
        late.result("300ms")
    assert late.cancel()["status"] == "cancelled"
    with pytest.raises(RunFailed, match="cancelled"):
        late.result()
    with pytest.raises(ApiError, match="ended already"):
        late.cancel()

    everything = list(client.runs(page_size=2))
    assert len(everything) == len({each["id"] for each in everything}) == 6
    assert [each["id"] for each in client.runs(status="cancelled")] == [late.id]
    events = {each["id"]: each for each in client.events(name="order.", page_size=1)}
    assert list(events) == [sent["id"]]
    stored = client.event(sent["id"])
    assert (stored["event_id"], stored["data"], stored["runs"]) == ("e-1", {"id": "o-1"}, sent["runs"])


async def test_the_async_client_does_the_same(rest: Rest) -> None:
    bank = Bank()
    bank.is_open = True
    async with (
        serving(rest, orders(bank)),
        AsyncClient(rest.base, rest.token, project=rest.project) as client,
    ):
        runs = await asyncio.gather(*[client.start("patient", {"id": number}) for number in range(20)])
        results = asyncio.gather(*[run.result(WAIT) for run in runs])
        for run in runs:
            await rest.becomes(run.id, "waiting")
        sent = await client.send_many([{"name": "answered", "data": {"id": number}} for number in range(20)])
        assert [each["resumed"] for each in sent] == [1] * 20
        assert await results == [{"id": number} for number in range(20)]
        assert len([each async for each in client.runs(workflow="patient", page_size=7)]) == 20
        assert len([each async for each in client.events(name="answered")]) == 20
        run = await client.start("order", {"id": "o-1"})
        assert await run.result(WAIT) == "paid o-1"
        assert await (await run.replay(from_step="charge")).result(WAIT) == "paid o-1"
        assert (await run.get())["output"] == "paid o-1"
        first, second = [await client.start("once", {"id": 1}) for _ in range(2)]
        assert (first.id, second.is_new) == (second.id, False)


async def test_answers_that_are_lost_lead_to_one_event_and_one_run(rest: Rest) -> None:
    bank = Bank()
    bank.is_open = True
    async with serving(rest, orders(bank)):
        async with (
            cuttable(rest.base) as (url, cut),
            AsyncClient(url, rest.token, project=rest.project, retries=1_000) as client,
        ):
            sends = [asyncio.create_task(client.send("order.created", {"id": str(n)})) for n in range(10)]
            starts = [asyncio.create_task(client.start("order", {"id": "x"}, key=f"k-{n}")) for n in range(10)]
            for pause_ms in range(1, 40):
                cut()
                await asyncio.sleep(pause_ms / 1000)
            sent = [await task for task in sends]
            started = [await task for task in starts]
        assert [len(each["runs"]) for each in sent] == [1] * 10
        assert len({run.id for run in started}) == 10
        assert len(await rest.runs("?workflow=order&limit=200")) == 20
