"""What becomes of the workflows on the pages of the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sdk.python.tests.engine import EVENT


@dataclass(frozen=True)
class Story:
    """A workflow of a page, what it is given, and what must come of it. `steps`: (op, id) in order, None: any."""

    page: str
    workflow: str
    output: Any
    data: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 3
    status: str = "completed"
    steps: tuple[tuple[str, str], ...] | None = None


ENCRYPTED = object()
"""An output that middleware has encoded."""


def event(**data: Any) -> dict[str, Any]:
    """What a wait memoizes."""
    return {**EVENT, "data": data}


ORDER = {"order_id": "o-1", "total": 3}
STORIES = (
    Story("README.md", "process-order", {"shipped": True}, ORDER, {"shipped": event(order_id="o-1")}, retries=4),
    Story("README.md", "process-order", {"shipped": False}, ORDER, retries=4),
    Story("README.md", "hello", "HELLO, ADA!", {"name": "Ada"}),
    Story("sdk/python/README.md", "process-order", {"shipped": False}, ORDER, retries=4),
    Story("sdk/python/README.md", "receipt", "o-1: 3", ORDER),
    Story(
        "sdk/python/README.md",
        "receipt",
        "o-1: 3, by dhl",
        ORDER,
        {"shipped": event(order_id="o-1", carrier="dhl")},
    ),
    Story("docs/how-to/steps.md", "welcome", {"account": "acc-a@b.c"}, {"email": "a@b.c"}),
    Story(
        "docs/how-to/steps.md",
        "charge-all",
        6,
        {"amounts": [1, 2, 3]},
        steps=(("step_completed", "charge"), ("step_completed", "charge:1"), ("step_completed", "charge:2")),
    ),
    Story("docs/how-to/steps.md", "enrich", ["NAME", "ADDRESS"]),
    Story("docs/how-to/checkpoint.md", "import", 3, {"rows": [{"a": "1"}, {"a": "1", "b": "2"}]}),
    Story("docs/how-to/queue.md", "charge", "o-1: 1250", {"order_id": "o-1", "cents": 1250}),
    Story("docs/how-to/retries-and-errors.md", "pay", "paid", {"card": "ok"}, retries=5),
    Story(
        "docs/how-to/retries-and-errors.md",
        "pay",
        "unpaid",
        {"card": "expired"},
        retries=5,
        steps=(("step_completed", "warn"), ("step_failed", "charge"), ("step_completed", "tell-support")),
    ),
    Story(
        "docs/how-to/retries-and-errors.md",
        "pay",
        "unpaid",
        {"card": "busy"},
        retries=5,
        steps=(("step_completed", "warn"), *[("step_failed", "charge")] * 6, ("step_completed", "tell-support")),
    ),
    Story(
        "docs/how-to/sleep.md",
        "trial",
        None,
        steps=(
            ("sleep", "first-days"),
            ("step_completed", "tip"),
            ("step_completed", "when-it-ends"),
            ("sleep", "end"),
            ("step_completed", "goodbye"),
        ),
    ),
    Story(
        "docs/how-to/wait-for-events.md",
        "ship",
        "left at the door",
        {"order_id": "o-1"},
        {"delivered": event(order_id="o-1", place="the door")},
    ),
    Story("docs/how-to/wait-for-events.md", "ship", "lost", {"order_id": "o-1"}),
    Story("docs/how-to/wait-for-events.md", "verify", True, {"user_id": "u"}, {"checked": event(user_id="u", ok=True)}),
    Story("docs/how-to/send-events.md", "close-day", [f"01J{n:023}" for n in range(2)], {"shop": "s"}),
    Story("docs/how-to/send-events.md", "print-report", None, {"shop": "s"}),
    Story("docs/how-to/invoke.md", "make-invoice", {"total": 3}, {"prices": [1, 2]}),
    Story("docs/how-to/invoke.md", "bill", 3, {"prices": [1, 2]}, {"invoice": {"total": 3}}),
    Story("docs/how-to/invoke.md", "import", 3, {"last": 3}),
    Story("docs/how-to/cron.md", "daily-report", "everything before 9", {"scheduled_at": "9"}),
    Story("docs/how-to/idempotency.md", "refund", "refunded p-1", {"payment_id": "p-1"}),
    Story("docs/how-to/cancel.md", "deliver", None, {"order_id": "o-1"}),
    Story("docs/how-to/concurrency.md", "sync-customer", None, {"customer_id": "c-1"}),
    Story("docs/how-to/delayed-starts.md", "remind", "mail to u-1", {"user": "u-1"}),
    Story("docs/how-to/retry-and-replay.md", "order", "charged o-1", {"order_id": "o-1"}),
    # It began before the step that was added.
    Story(
        "docs/how-to/deploy-changed-code.md",
        "order",
        "shipped r-o-1",
        {"order_id": "o-1"},
        steps=(("step_completed", "reserve"), ("sleep", "cool-off"), ("step_completed", "ship")),
    ),
    Story("docs/how-to/testing.md", "order", "shipped", {"order_id": "o-1"}, {"shipped": event(order_id="o-1")}),
    Story("docs/how-to/testing.md", "order", "refunded", {"order_id": "o-1"}),
    Story("docs/how-to/client.md", "order", "o-1 is open", {"order_id": "o-1"}),
    Story("docs/how-to/client.md", "order", "o-1 is paid", {"order_id": "o-1"}, {"paid": event(order_id="o-1")}),
    Story(
        "docs/how-to/middleware.md",
        "pay",
        ENCRYPTED,
        {"name": "Ada"},
        steps=(("step_completed", "card"), ("step_completed", "charge")),
    ),
    # Their other ends are told to the real engine, by tests/e2e/test_program_pages.py.
    *(
        Story(f"docs/migrate/{peer}.md", "order", "refunded", {"order_id": "o-1", "total": 42}, retries=5)
        for peer in ("inngest", "temporal", "dbos")
    ),
    Story("docs/patterns/polling.md", "export", "https://files.example.com/job-t", {"table": "t"}),
    Story("docs/tracing.md", "charge", None),
    Story("docs/how-to/serve-functions.md", "hello", "Hello, world!"),
    Story("docs/how-to/web-frameworks.md", "hello", "Hello, world!"),
    Story("docs/how-to/connect.md", "quote", 11),
)


class Told(NamedTuple):
    """A run of a workflow of a page in TypeScript: `wanted` is its output, or the status that it ends with;
    `events` are sent to it as soon as it waits or sleeps.
    """

    page: str
    workflow: str
    data: Mapping[str, Any]
    wanted: Any
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()


_IN_A_MONTH = (datetime.now(UTC) + timedelta(days=30)).isoformat()
TYPESCRIPT = (
    Told("docs/how-to/steps.md", "welcome", {"email": "a@b.c"}, ["intro to acc-a@b.c", "tips to acc-a@b.c"]),
    Told("docs/how-to/retries-and-errors.md", "pay", {"card": "c-1"}, "charged c-1"),
    Told("docs/how-to/retries-and-errors.md", "pay", {"card": "stolen"}, "released 12A: the card is blocked"),
    Told("docs/how-to/sleep.md", "remind", {"due": _IN_A_MONTH}, f"due {_IN_A_MONTH}"),
    Told(
        "docs/how-to/wait-for-events.md",
        "ship",
        {"order_id": "o-1"},
        "ups",
        [("order.shipped", {"order_id": "o-1", "carrier": "ups"})],
    ),
    Told("docs/how-to/wait-for-events.md", "ship", {"order_id": "o-1"}, "lost"),
    Told("docs/how-to/send-events.md", "close-day", {"shop": "s"}, 1),
    Told("docs/how-to/invoke.md", "make-invoice", {"prices": [1, 2]}, 3),
    Told("docs/how-to/invoke.md", "bill", {"prices": [1, 2]}, 3),
    Told("docs/how-to/idempotency.md", "refund", {"payment_id": "p-1"}, "refunded p-1"),
    Told("docs/how-to/cancel.md", "deliver", {"order_id": "o-1"}, "delivered"),
    Told(
        "docs/how-to/cancel.md", "deliver", {"order_id": "o-1"}, "cancelled", [("order.cancelled", {"order_id": "o-1"})]
    ),
    Told("docs/how-to/cron.md", "daily-report", {"scheduled_at": "9:00"}, "everything before 9:00"),
    Told("docs/how-to/concurrency.md", "sync-customer", {"customer_id": "c-1"}, "pushed c-1"),
    Told("docs/how-to/delayed-starts.md", "remind", {"user": "u-1"}, "mail to u-1"),
    Told("docs/how-to/queue.md", "charge", {"order_id": "o-1", "cents": 1250}, "o-1: 1250"),
    Told("docs/how-to/retry-and-replay.md", "order", {"order_id": "o-1"}, "charged r-o-1"),
    Told("docs/how-to/checkpoint.md", "import", {"rows": ["a", "bc"]}, 3),
    Told("docs/how-to/deploy-changed-code.md", "order", {"order_id": "o-1"}, "shipped r-o-1"),
    Told("docs/tracing.md", "charge", {}, "completed"),
)
"""Of pages whose blocks in TypeScript are one module."""
