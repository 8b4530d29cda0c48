"""One trace for a run, from the request that started it to its end, over all services (architecture invariant 9)."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

import pytest

from services.embedded.stack import EmbeddedStack
from tests.support.otlp_receiver import OtlpReceiver, otlp_receiver, tree
from tests.support.postgres import run_apart
from tests.support.rest import Rest, step_of
from tests.support.stack import Servers, Stack
from tests.support.traces import (
    WHO_FIRES,
    Seen,
    Shape,
    below,
    leaf,
    named,
    node,
    orders,
    post,
    send,
    shape,
    start,
    trace_of,
)
from tests.support.transports import Transport, only_over
from tests.support.waiting import until
from tests.support.workflow_app import Bodies, serving

SENT = "runr.workflows.v1.EventService/SendEvents"
STARTED = "runr.workflows.v1.RunService/StartRun"
# What each invocation of an order executes and opens, and its attempt: over HTTP one step, over a stream all that come
# before the run rests.
CHARGE, RESERVE = leaf("step charge", "executor"), leaf("step reserve", "executor")
REFUSED = leaf("step reserve", "executor", "RetryAfterError: nothing on the shelf")
INVOCATIONS: dict[Transport, list[tuple[list[Shape], list[str] | None, int]]] = {
    "http": [
        ([CHARGE], None, 0),
        ([REFUSED], ["backoff reserve"], 0),
        ([RESERVE], None, 1),
        ([], ["sleep hold"], 0),
        ([], ["wait shipped"], 0),
        ([], None, 0),
    ],
    "stream": [
        ([CHARGE, REFUSED], ["backoff reserve"], 0),
        ([RESERVE], ["sleep hold"], 1),
        ([], ["wait shipped"], 0),
        ([], None, 0),
    ],
}
SERVICES = {"runr-gateway", "runr-ingest", "runr-executor", "runr-scheduler"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as listening:
        yield listening


@pytest.fixture(scope="module")
def stack(postgres_stack: EmbeddedStack, nats_stack: EmbeddedStack, receiver: OtlpReceiver) -> Iterator[Stack]:
    """A stack whose services export their spans to the test."""
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "20"}
    made = Stack(Servers(postgres_stack, nats_stack), settings=settings)
    run_apart(made.__aenter__())
    try:
        yield made
    finally:
        run_apart(made.close())


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def bodies(rest: Rest, seen: Seen) -> AsyncIterator[Bodies]:
    async with serving(rest, orders(seen)) as made:
        yield made


def unix_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


async def test_the_whole_tree(rest: Rest, receiver: OtlpReceiver, bodies: Bodies, seen: Seen) -> None:
    created, trace_id = await send(rest, "order.created", {"order_id": "o-1"})
    (run,) = created["runs"]
    await rest.becomes(run, "waiting")
    shipped, other_trace = await send(rest, "order.shipped", {"order_id": "o-1"})
    assert await rest.completed(run) == "shipped"
    spans = await trace_of(rest, receiver, trace_id)

    invoked = INVOCATIONS[rest.transport]
    root = named(spans, "POST /api/events")
    assert shape(root, spans) == node(
        "POST /api/events",
        "gateway",
        node(
            SENT,
            "ingest",
            node(
                "start order",
                "ingest",
                *[leaf("claim", "executor")] * 4,
                *[node("invoke order", "executor", *executed) for executed, _, _ in invoked],
                leaf("backoff reserve", WHO_FIRES),
                leaf("sleep hold", WHO_FIRES),
                leaf("wait shipped", "ingest"),
                leaf("run order", "executor"),
            ),
        ),
    ), tree(spans)

    top = named(spans, "start order")
    invocations = below(spans, top, "invoke order")
    assert [[span.name for span in spans if span.parent_id == each.span_id] for each in invocations] == [
        [step[0] for step in executed] for executed, _, _ in invoked
    ]
    assert [each.attributes.get("runr.opened") for each in invocations] == [opened for _, opened, _ in invoked]
    assert [each.attributes["runr.attempt"] for each in invocations] == [attempt for _, _, attempt in invoked]
    assert {each.kind for each in invocations} == {"CLIENT"}
    assert root.kind == named(spans, SENT).kind == "SERVER"
    assert seen.of(run) == [each.traceparent for each in invocations]
    assert {span.run for span in spans if span not in (root, named(spans, SENT))} == {run}

    others = await trace_of(rest, receiver, other_trace)
    sender = named(others, SENT)
    assert named(spans, "wait shipped").links == ((other_trace, sender.span_id),)
    assert named(spans, "wait shipped").attributes["runr.event_id"] == shipped["id"]

    found = await rest.run(run)
    for step, span in (("hold", named(spans, "sleep hold")), ("shipped", named(spans, "wait shipped"))):
        stored = step_of(found, step)
        assert span.start_ns == unix_ms(stored["started_at"]) * 1_000_000
        assert span.end_ns == unix_ms(stored["ended_at"]) * 1_000_000
    life = named(spans, "run order")
    assert life.attributes["runr.status"] == "completed"
    assert (life.start_ns, life.end_ns) == tuple(
        unix_ms(found[name]) * 1_000_000 for name in ("created_at", "ended_at")
    )
    charge = named(spans, "step charge")
    assert charge.end_ns - charge.start_ns >= 20_000_000
    assert invocations[0].start_ns <= charge.start_ns < charge.end_ns <= invocations[0].end_ns
    backoff = named(spans, "backoff reserve")
    assert backoff.end_ns - backoff.start_ns >= 150_000_000


async def test_children_and_runs_started_by_a_step_are_in_the_same_trace(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies
) -> None:
    run, trace_id = await start(rest, "bill")
    assert await rest.completed(run) == 7

    async def both() -> bool:
        return [each["status"] for each in await rest.runs("?workflow=tax")] == ["completed"] * 2

    await until(both)
    spans = await trace_of(rest, receiver, trace_id)
    # Over HTTP, the end of the function is an answer of its own.
    ends = {"http": ["invoke tax", "invoke bill"], "stream": []}[rest.transport]
    tax = node(
        "start tax",
        "executor",
        leaf("claim", "executor"),
        node("invoke tax", "executor", leaf("step rate", "executor")),
        *[leaf(end, "executor") for end in ends[:1]],
        leaf("run tax", "executor"),
    )
    assert shape(named(spans, "start bill"), spans) == node(
        "start bill",
        "ingest",
        leaf("claim", "executor"),
        node("invoke bill", "executor", tax),
        leaf("invoke ask", "executor"),
        leaf("claim", "executor"),
        node("invoke bill", "executor", leaf("step tell", "executor"), tax),
        *[leaf(end, "executor") for end in ends[1:]],
        leaf("run bill", "executor"),
    ), tree(spans)
    assert named(spans, STARTED).service == "runr-ingest"


async def test_a_caller_of_the_api_goes_on_with_its_own_trace(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies
) -> None:
    theirs, their_span = secrets.token_hex(16), secrets.token_hex(8)
    run, trace_id = await start(rest, "tax", traceparent=f"00-{theirs}-{their_span}-01")
    assert trace_id == theirs
    assert await rest.completed(run) == 7
    spans = await trace_of(rest, receiver, theirs)
    (root,) = [span for span in spans if span.service == "runr-gateway"]
    assert root.parent_id == their_span
    assert {span.run for span in spans if span.name == "invoke tax"} == {run}


@pytest.mark.parametrize("flags", ["01", "00"])
async def test_the_tracestate_of_a_caller_reaches_the_function_of_every_run_that_follows(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies, seen: Seen, flags: str
) -> None:
    theirs = secrets.token_hex(16)
    mine = {"traceparent": f"00-{theirs}-{secrets.token_hex(8)}-{flags}", "tracestate": "congo=t61 , rojo@vendor=00f0"}
    run, trace_id = await start(rest, "bill", None, **mine)  # a child, and an event that starts another run
    assert trace_id == theirs
    assert await rest.completed(run) == 7
    created, _ = await send(rest, "order.created", {"order_id": "o-9"}, **mine)
    (order,) = created["runs"]
    await rest.becomes(order, "waiting")
    await send(rest, "order.shipped", {"order_id": "o-9"})
    assert await rest.completed(order) == "shipped"
    assert seen.states() == {"congo=t61,rojo@vendor=00f0"}
    assert {text and text[3:35] for text in seen.of(order)} == {theirs}
    replayed, _ = await post(rest, f"/runs/{run}/replay", {}, traceparent=mine["traceparent"], tracestate="NO")
    assert await rest.completed(replayed["id"]) == 7
    assert seen.states() == {"congo=t61,rojo@vendor=00f0", None}
    found = await trace_of(rest, receiver, theirs)
    assert bool([span for span in found if span.run == order]) is (flags == "01")


@only_over("http", because="the gateway ignores it")
@pytest.mark.parametrize("malformed", ["nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff-1-1-1"])
async def test_a_malformed_traceparent_is_ignored(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies, malformed: str
) -> None:
    run, trace_id = await start(rest, "tax", traceparent=malformed)
    assert await rest.completed(run) == 7
    spans = await trace_of(rest, receiver, trace_id)
    (root,) = [span for span in spans if span.service == "runr-gateway"]
    assert root.parent_id == ""


async def test_a_request_that_is_not_sampled_has_no_spans_anywhere(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies, seen: Seen
) -> None:
    theirs = secrets.token_hex(16)
    unsampled = {"traceparent": f"00-{theirs}-{secrets.token_hex(8)}-00"}
    created, trace_id = await send(rest, "order.created", {"order_id": "o-2"}, **unsampled)
    assert trace_id == theirs
    (run,) = created["runs"]
    await rest.becomes(run, "waiting")
    await send(rest, "order.shipped", {"order_id": "o-2"}, **unsampled)
    assert await rest.completed(run) == "shipped"
    assert {text and (text[3:35], text[-2:]) for text in seen.of(run)} == {(theirs, "00")}
    assert await trace_of(rest, receiver, theirs) == []
    assert [span for span in receiver.spans if span.run == run] == []


async def test_a_trace_goes_on_after_a_restart_of_everything_and_a_lost_process(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies, stack: Stack
) -> None:
    bodies.hold("work")
    run, trace_id = await start(rest, "slow", {"id": "s-1"})
    await bodies.reached(run, "work")
    await stack.kill("executor")
    bodies.let_go("work")
    await stack.start("executor")
    await rest.becomes(run, "waiting")
    await stack.restart()
    await send(rest, "go", {"id": "s-1"})
    assert await rest.completed(run) == "went"
    spans = await trace_of(rest, receiver, trace_id)
    top = named(spans, "start slow")
    invocations = below(spans, top, "invoke slow")
    # The killed process took the span of its invocation with it. Over HTTP the attempt is lost too, and who found that
    # out says so; a worker brings what it executes along to the next process.
    lost = {"http": [("runr-scheduler", "WorkerLost"), ("runr-executor", None)], "stream": []}[rest.transport]
    assert [(each.service, each.error and each.error.split(":")[0]) for each in invocations] == [
        *lost,
        ("runr-executor", None),
        ("runr-executor", None),
    ]
    assert [span.service for span in below(spans, top, "wait go")] == ["runr-ingest"]
    assert named(spans, "run slow").attributes["runr.status"] == "completed"


async def test_the_ends_that_others_make_are_in_the_trace(rest: Rest, receiver: OtlpReceiver, bodies: Bodies) -> None:
    run, trace_id = await start(rest, "slow", {"id": "s-2"})
    await rest.becomes(run, "waiting")
    await rest.ok("POST", f"/runs/{run}/cancel", {})
    spans = await trace_of(rest, receiver, trace_id)
    life, wait = named(spans, "run slow"), named(spans, "wait go")
    assert (life.service, life.attributes["runr.status"], life.error) == ("runr-ingest", "cancelled", None)
    assert (wait.service, wait.attributes["runr.cut"]) == ("runr-ingest", True)
    assert life.parent_id == wait.parent_id == named(spans, "start slow").span_id


@only_over("http", because="what the services export is the same")
async def test_a_receiver_that_does_not_answer_holds_up_nothing(
    rest: Rest, receiver: OtlpReceiver, bodies: Bodies, stack: Stack
) -> None:
    with receiver.deaf():
        runs = [await start(rest, "tax") for _ in range(20)]
        for run, _ in runs:
            assert await rest.completed(run, timeout_s=20) == 7
        began = time.monotonic()
        stack.children["executor"].kill(signal.SIGTERM)
        assert await stack.children["executor"].ended(timeout_s=25) == 0
        assert time.monotonic() - began < 15
        await stack.start("executor")
        run, trace_id = await start(rest, "tax")
        assert await rest.completed(run, timeout_s=20) == 7
    spans = await trace_of(rest, receiver, trace_id)
    assert {span.service for span in spans} == SERVICES - {"runr-scheduler"}


async def test_nothing_is_exported_while_traces_are_off(
    postgres_stack: EmbeddedStack, nats_stack: EmbeddedStack, seen: Seen
) -> None:
    theirs = secrets.token_hex(16)
    with otlp_receiver() as listening:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": listening.endpoint, "OTEL_SDK_DISABLED": "true"}
        async with (
            Stack(Servers(postgres_stack, nats_stack), settings=settings) as quiet,
            quiet.tenant() as rest,
            serving(rest, orders(seen)),
        ):
            run, trace_id = await start(rest, "tax")
            assert await rest.completed(run) == 7
            joined, _ = await start(rest, "tax", traceparent=f"00-{theirs}-{secrets.token_hex(8)}-01")
            assert await rest.completed(joined) == 7
        assert listening.spans == []
        assert listening.paths == set()
    # The id of a request still leads through everything, and a caller's trace passes through to the function.
    assert [text and text[3:35] for text in seen.of(run)] == [trace_id] * 2
    assert [text and text[3:35] for text in seen.of(joined)] == [theirs] * 2
