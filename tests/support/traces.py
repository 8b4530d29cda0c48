"""Stories about traces: workflows that touch every service, and their spans as a test compares them."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runr_workflows import Context, RetryAfterError, Step, Workflows

from tests.support.otlp_receiver import OtlpReceiver, Received
from tests.support.rest import Json, Rest
from tests.support.workflow_app import Bodies

Shape = tuple[str, str, str | None, tuple[Any, ...]]


class Seen:
    """The trace contexts with which the function was invoked, by run, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[tuple[str, Mapping[str, str]]] = []

    def note(self, ctx: Context) -> None:
        """Called by a workflow."""
        with self._lock:
            self._seen.append((ctx.run_id, ctx.trace_context))

    def of(self, run: str) -> list[str | None]:
        """Those of one run."""
        with self._lock:
            return [context.get("traceparent") for id, context in self._seen if id == run]

    def states(self) -> set[str | None]:
        """The `tracestate` of all."""
        with self._lock:
            return {context.get("tracestate") for _, context in self._seen}


def orders(seen: Seen) -> Callable[[Workflows, Bodies], None]:
    """Registers workflows with a sleep, a retry, an event, a child, and events that a step sends."""

    def register(wf: Workflows, bodies: Bodies) -> None:
        @wf.workflow("order", triggers=[{"event": "order.created"}])
        def order(ctx: Context, step: Step) -> str:
            seen.note(ctx)

            def reserve() -> str:
                bodies.record(ctx.run_id, "reserve")
                if bodies.of(ctx.run_id)["reserve"] == 1:
                    raise RetryAfterError("nothing on the shelf", "150ms")
                return "r-1"

            step.run("charge", lambda: time.sleep(0.02))
            step.run("reserve", reserve)
            step.sleep("hold", "200ms")
            event = step.wait_for_event("shipped", "order.shipped", match="data.order_id", timeout="1h")
            return "late" if event is None else "shipped"

        @wf.workflow("tax", triggers=[{"event": "tax.asked"}])
        def tax(ctx: Context, step: Step) -> int:
            seen.note(ctx)
            return step.run("rate", lambda: 7)

        @wf.workflow("bill")
        def bill(ctx: Context, step: Step) -> Any:
            seen.note(ctx)
            rate = step.invoke("ask", "tax")
            step.send_event("tell", {"name": "tax.asked", "data": {}})
            return rate

        @wf.workflow("slow")
        def slow(ctx: Context, step: Step) -> str:
            seen.note(ctx)
            step.run("work", lambda: bodies.record(ctx.run_id, "work"))
            step.wait_for_event("go", "go", match="data.id", timeout="1h")
            return "went"

    return register


WHO_FIRES = "whoever fires"
"""The service of a sleep or a backoff that is over: the executor that set it, or a scheduler that came first."""

_FIRED = ("sleep ", "backoff ")


def shape(span: Received, spans: Sequence[Received]) -> Shape:
    """A span and all below it, without what differs from run to run."""
    below = sorted((shape(each, spans) for each in spans if each.parent_id == span.span_id), key=str)
    service = WHO_FIRES if span.name.startswith(_FIRED) else span.service.removeprefix("runr-")
    return span.name, service, span.error, tuple(below)


def leaf(name: str, service: str, error: str | None = None) -> Shape:
    """A span with nothing below it."""
    return name, service, error, ()


def node(name: str, service: str, *below: Shape, error: str | None = None) -> Shape:
    """A span with these below it."""
    return name, service, error, tuple(sorted(below, key=str))


async def trace_of(rest: Rest, receiver: OtlpReceiver, trace_id: str) -> list[Received]:
    """The spans of a trace, all that there are: other runs have gone through every service after them, and services
    export in order.
    """
    order = secrets.token_hex(4)
    created, last = await send(rest, "order.created", {"order_id": order})
    (run,) = created["runs"]
    await rest.becomes(run, "waiting")
    await send(rest, "order.shipped", {"order_id": order})
    await rest.completed(run)
    later, delayed = await post(rest, "/projects/default/workflows/tax/runs", {"data": {}, "delay": "20ms"})
    await rest.completed(later["id"])
    wanted = {
        ("sleep hold", ""),
        ("wait shipped", "runr-ingest"),
        ("run order", "runr-executor"),
        ("POST /api/events", "runr-gateway"),
    }

    def has_come(spans: Sequence[Received]) -> bool:
        theirs = [span for span in spans if span.trace_id == last]
        come = {(span.name, "" if span.name.startswith(_FIRED) else span.service) for span in theirs}
        fired = {span.service for span in spans if span.trace_id == delayed and span.name == "delay"}
        return wanted <= come and fired == {"runr-scheduler"}

    spans = await asyncio.to_thread(receiver.until, has_come)
    return [span for span in spans if span.trace_id == trace_id]


def below(spans: Sequence[Received], parent: Received, name: str) -> list[Received]:
    """Its children of this name, in the order of their beginnings."""
    found = [span for span in spans if span.parent_id == parent.span_id and span.name == name]
    return sorted(found, key=lambda span: span.start_ns)


def named(spans: Sequence[Received], name: str) -> Received:
    """The only span of this name."""
    (found,) = [span for span in spans if span.name == name]
    return found


async def post(rest: Rest, path: str, body: Json, **headers: str) -> tuple[Json, str]:
    """The answer, and the id of the trace that it names."""
    reply = await rest.call("POST", path, body, headers=headers)
    assert reply.status < 300, reply.body
    return reply.json, reply.headers["x-trace-id"]


async def start(rest: Rest, workflow: str, data: Json | None = None, **headers: str) -> tuple[str, str]:
    """The run, and the id of its trace."""
    run, trace_id = await post(rest, f"/projects/default/workflows/{workflow}/runs", {"data": data or {}}, **headers)
    return run["id"], trace_id


async def send(rest: Rest, name: str, data: Json, **headers: str) -> tuple[Json, str]:
    """What the event came to, and the id of its trace."""
    sent, trace_id = await post(rest, "/events", {"name": name, "data": data}, **headers)
    return sent["events"][0], trace_id
