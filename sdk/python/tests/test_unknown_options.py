"""An option that a function of the SDK does not have is refused by its name, before anything is sent or runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, StepArgumentError, UnknownOptionError, Workflows
from runr_workflows.client import AsyncClient, Client
from runr_workflows.connect.settings import worker_settings
from runr_workflows.definition_rules import CHECKS
from runr_workflows.known_options import NOT_YET, unknown
from runr_workflows.testing import TestEngine, every_crash, fails, returns
from sdk.python.tests.engine import FakeEngine
from sdk.python.tests.scripted_api import RUN, SENT, Both, Server, answer

Call = Callable[[Any], Any]

START = "allowed are workflow, data, key, delay, at, tags, test"
EVENT = "allowed are name, data, id, ts"
OF_CLIENTS: list[tuple[Call, str]] = [
    (
        lambda c: c.start("payment", {"n": 1}, idempotency_key="pay-1"),
        f"idempotency_key: unknown (did you mean key?); {START}",
    ),
    (
        lambda c: c.start("payment", {"n": 1}, idempotencyKey="pay-1"),
        f"idempotencyKey: unknown (did you mean key?); {START}",
    ),
    (lambda c: c.start("payment", dely="1h"), f"dely: unknown (did you mean delay?); {START}"),
    (lambda c: c.start("payment", priority=1), f"priority: is not supported yet; {START}"),
    (
        lambda c: c.start("payment", foo=None, rateLimit=1),
        f"foo: unknown; {START}; rateLimit: is not supported yet; {START}",
    ),
    (lambda c: c.start("payment", payload={}), f"payload: unknown (did you mean data?); {START}"),
    (
        lambda c: c.runs(statuz="failed"),
        "statuz: unknown (did you mean status?); allowed are workflow, status, tag, q, since, until, page_size",
    ),
    (
        lambda c: c.events(nmae="order."),
        "nmae: unknown (did you mean name?); allowed are name, source, since, until, page_size",
    ),
    (
        lambda c: c.send("a", {}, idempotency_key="k"),
        "idempotency_key: unknown (did you mean id?); allowed are name, data, id, ts, test",
    ),
    (
        lambda c: c.send_many([{"name": "a"}], tests=True),
        "tests: unknown (did you mean test?); allowed are events, test",
    ),
    (
        lambda c: c.send_many([{"name": "a"}] * 100 + [{"name": "foo.bar", "payload": {"n": 1}}]),
        f"events[100].payload: unknown (did you mean data?); {EVENT}",
    ),
    (lambda c: c.send_many([{"name": "a", 5: None}]), f"events[0].5: unknown; {EVENT}"),
    (lambda c: c.run("01R").result(timeuot="1s"), "timeuot: unknown (did you mean timeout?); allowed are timeout"),
    (lambda c: c.run("01R").cancel(child="keep"), "child: unknown (did you mean children?); allowed are children"),
    (lambda c: c.run("01R").replay(step="a"), "step: unknown (did you mean from_step?); allowed are from_step, data"),
]


@pytest.mark.parametrize(("call", "told"), OF_CLIENTS)
def test_a_client_refuses_it_before_anything_is_sent(client: Both, server: Server, call: Call, told: str) -> None:
    (error,) = client.ask(call)
    assert isinstance(error, UnknownOptionError)
    assert isinstance(error, TypeError)
    assert str(error) == told
    assert server.requests == []


def test_a_list_does_not_wait_for_its_first_page(client: Both, server: Server) -> None:
    def refused(asked: Any) -> None:
        for call in (asked.runs, asked.events):
            with pytest.raises(UnknownOptionError):
                call(foo=1)

    async def within() -> None:
        async with AsyncClient(server.url, "t") as asked:
            refused(asked)

    if client.kind is AsyncClient:
        asyncio.run(within())
    else:
        with Client(server.url, "t") as asked:
            refused(asked)


def test_what_is_no_event_is_sent_by_no_client(client: Both, server: Server) -> None:
    for events in ({"name": "a"}, ["a"], [{"data": {}}], [{"name": 5}]):
        (error,) = client.ask(lambda c, events=events: c.send_many(events))
        assert isinstance(error, ValueError), events
    assert server.requests == []


def test_what_a_client_knows_it_takes(client: Both, server: Server) -> None:
    server.script = [answer(RUN), answer({"events": [SENT]})]
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    started, sent = client.ask(
        lambda c: c.start("w", data={}, key="k", delay=None, at=moment, tags=["a"], test=True),
        lambda c: c.send_many(events=[{"name": "a", "data": {}, "id": "i", "ts": moment}], test=True),
    )
    assert started.id == "01R"
    assert sent == [SENT]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_settings_of_a_client(kind: type[Any]) -> None:
    with pytest.raises(
        UnknownOptionError, match=r"^api_key: unknown \(did you mean token\?\); allowed are url, token,"
    ):
        kind(url="http://127.0.0.1:1", api_key="t")


OF_STEPS: list[tuple[Call, str]] = [
    (
        lambda s: s.send_event("x", {"name": "foo.bar", "payload": {"n": 1}}),
        f"events[0].payload: unknown (did you mean data?); {EVENT}",
    ),
    (
        lambda s: s.send_event("x", [{"name": "a"}, {"name": "b", "idempotency_key": None}]),
        f"events[1].idempotency_key: unknown (did you mean id?); {EVENT}",
    ),
    (lambda s: s.options(retry=3), "retry: unknown (did you mean retries?); allowed are retries"),
    (lambda s: s.options(retries=3, priority=1), "priority: is not supported yet; allowed are retries"),
    (
        lambda s: s.wait_for_event("x", "e", timeuot="1d"),
        "timeuot: unknown (did you mean timeout?); allowed are id, event, match, if_, timeout, lookback",
    ),
    (
        lambda s: s.wait_for_event("x", "e", **{"if": "true"}),
        "if: unknown (did you mean if_?); allowed are id, event, match, if_, timeout, lookback",
    ),
    (
        lambda s: s.invoke("x", "w", payload={}),
        "payload: unknown (did you mean data?); allowed are id, workflow, data, timeout",
    ),
    (lambda s: s.sleep("x", "1h", foo=1), "foo: unknown; allowed are id, duration"),
    (lambda s: s.sleep_until("x", at="2026-01-01"), "at: unknown (did you mean when?); allowed are id, when"),
]


@pytest.mark.parametrize(("call", "told"), OF_STEPS)
def test_a_step_call_is_refused_for_good(wf: Workflows, engine: FakeEngine, call: Call, told: str) -> None:
    @wf.workflow("blocking")
    def blocking(ctx: Context, step: Step) -> None:
        call(step)

    @wf.workflow("awaited")
    async def awaited(ctx: Context, step: AsyncStep) -> None:
        await call(step)

    for name in ("blocking", "awaited"):
        op = engine.execute(name)
        assert (op["op"], op["non_retriable"]) == ("run_failed", True)
        assert op["error"]["name"] == "StepArgumentError"
        assert op["error"]["message"] == told


def test_an_event_that_was_sent_is_not_judged_again(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        sent: Any = {"name": "foo.bar", "payload": {"n": 1}}
        return step.send_event("x", sent)

    sent = {"x": {"status": "completed", "output": {"ids": ["01J"]}}}
    assert engine.execute("w", sent)["output"] == {"ids": ["01J"]}


def test_an_unknown_option_within_a_step_is_not_retried(wf: Workflows, engine: FakeEngine) -> None:
    client = Client("http://127.0.0.1:1", "t")

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        wrong: Any = client.start
        step.run("start", lambda: wrong("payment", idempotency_key="k").id)

    op = engine.execute("w")
    assert (op["op"], op["non_retriable"], op["error"]["name"]) == ("step_failed", True, "UnknownOptionError")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda e: e.run("w", key="k"), "key: unknown (did you mean idempotency_key?)"),
        (lambda e: e.start("w", {}, dely="1h"), "dely: unknown (did you mean delay?)"),
        (lambda e: e.send("a", {}, delay="1h"), "delay: unknown (did you mean after?)"),
        (lambda e: e.send("a", {}, whenWaiting="s"), "whenWaiting: unknown (did you mean when_waiting?)"),
        (lambda e: fails("s", time=2), "time: unknown (did you mean times?)"),
        (lambda e: returns("s", 1, foo=2), "foo: unknown; allowed are step, value, times, workflow"),
        (lambda e: TestEngine(Workflows(), stub={}), "stub: unknown (did you mean stubs?)"),
        (lambda e: every_crash(Workflows(), id, foo=1), "foo: unknown; allowed are app, scenario, same, faults,"),
    ],
)
async def test_the_kit_refuses_it(wf: Workflows, call: Call, told: str) -> None:
    @wf.workflow("w", triggers=[{"event": "a"}])
    def workflow(ctx: Context, step: Step) -> None: ...

    engine = TestEngine(wf)
    with pytest.raises(UnknownOptionError) as caught:
        call(engine)
    assert str(caught.value).startswith(told)
    assert engine.runs == []
    wrong: Any = engine.run_async
    with pytest.raises(UnknownOptionError):
        await wrong("w", foo=1)


def test_a_registry_and_its_servers_refuse_it(wf: Workflows) -> None:
    odd: Any = wf
    made: Any = Workflows
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: made(signing_keys="k"), "signing_keys: unknown (did you mean signing_key?)"),
        (lambda: odd.serve(timeout=5), "timeout: unknown (did you mean grace?); allowed are host, port, grace"),
        (lambda: asyncio.run(odd.serve_async(prot=5)), "prot: unknown (did you mean port?)"),
    ]
    for call, told in calls:
        with pytest.raises(UnknownOptionError) as caught:
            call()
        assert str(caught.value).startswith(told)
    wrong: Any = {"concurrency": 5}
    with pytest.raises(UnknownOptionError, match=r"^concurrency: unknown \(did you mean max_concurrency\?\)"):
        worker_settings("127.0.0.1:1", wrong, keys=["k"], environ={})


def test_options_of_definitions_name_what_may_have_been_meant() -> None:
    assert unknown("retry", CHECKS).startswith("unknown (did you mean retries?); allowed are description, triggers,")
    assert unknown("cancelOn", CHECKS).startswith("unknown (did you mean cancel_on?);")
    assert unknown("zzz", CHECKS).startswith("unknown; allowed are ")
    assert all(unknown(name, CHECKS).startswith("is not supported yet; ") for name in (*NOT_YET, "onFailure"))


def test_a_refused_step_call_takes_no_id(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        wrong: Any = step.sleep
        with pytest.raises(StepArgumentError):
            wrong("a", 1, foo=1)
        step.sleep("a", 1)

    assert engine.execute("w")["id"] == "a"
