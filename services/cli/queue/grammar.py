"""What can be said to `runr queue`."""

from __future__ import annotations

from typing import Any

from services.cli.runs.grammar import add_place, verbs_of


def add_queue(commands: Any) -> None:
    """The grammar of `runr queue`."""
    part = commands.add_parser("queue", help="the queue of a project that is not in NATS")
    verbs = verbs_of(part)
    part = verbs.add_parser("consume", help="deliver the entries of a Redis stream to a project, until a signal")
    add_place(part)
    part.add_argument("--stream", metavar="KEY", help="the stream in Redis (default: the project's queue stream)")
    part.add_argument("--group", metavar="NAME", help="the consumer group (default: runr:TENANT:PROJECT)")
    part.add_argument("--consumer", metavar="NAME", help="this consumer's name (default: a new one)")
    part.add_argument("--dead-stream", metavar="KEY", help="where dead letters go (default: STREAM:dead)")
    part.add_argument("--in-flight", metavar="N", help="deliveries at once (default: 16)")
    part.add_argument("--max-deliveries", metavar="N", help="deliveries before a message is dead (default: 5)")
    part.add_argument("--claim-after", metavar="DURATION", help="how long a consumer may be silent (default: 60s)")
