"""Looks at NATS: does it answer, has it JetStream, and are the stream of hints and its consumer there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import nats
import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError

from services.cli.doctor.finding import Finding, State
from services.cli.doctor.words import address_of, words_of
from services.core.bus.stream import pending_hints
from services.core.bus.subjects import CONSUMER, Subjects

_NATS_S = 3.0
_MANY = 1_000
_WITHOUT = "work is found by looking, up to a second later"


async def bus(url: str, prefix: str) -> AsyncIterator[Finding]:
    """What there is to say of it. Nothing is lost while it is away."""
    faults: list[Exception] = []

    async def note(fault: Exception) -> None:
        faults.append(fault)

    try:
        async with asyncio.timeout(_NATS_S):
            # Without these the client tries a minute and more, and logs each time.
            client = await nats.connect(
                url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0, error_cb=note
            )
    except (OSError, TimeoutError, nats.errors.Error) as error:
        reason = f"{address_of(url)}: {words_of(faults[-1] if faults else error)}; check NATS_URL"
        yield Finding.of("nats answers", reason, f"start it; until then {_WITHOUT}")
        return
    try:
        yield Finding("nats answers")
        async for finding in _jetstream(client, url, Subjects(prefix)):
            yield finding
    finally:
        await client.close()


async def _jetstream(client: Client, url: str, subjects: Subjects) -> AsyncIterator[Finding]:
    try:
        await client.jetstream().account_info()
    except (TimeoutError, nats.errors.Error) as error:
        reason = f"{address_of(url)}: {words_of(error)}; start it with --jetstream"
        yield Finding.of("nats has JetStream", reason, f"until then {_WITHOUT}")
        return
    yield Finding("nats has JetStream")
    try:
        pending = await pending_hints(client, subjects)
    except NotFoundError:
        yield Finding(
            f"stream {subjects.stream}",
            f"it or its consumer {CONSUMER} is not there",
            "running services make both within half a minute; is RUNR_NATS_PREFIX here the same as theirs?",
            State.WATCH,
        )
    except (TimeoutError, nats.errors.Error) as error:
        yield Finding(f"stream {subjects.stream}", words_of(error), "", State.WATCH)
    else:
        many = f"{pending} hints wait" if pending > _MANY else ""
        advice = "executors are full or away: see docs/runbooks/executors-full.md"
        yield Finding.of(f"stream {subjects.stream}", many, advice, state=State.WATCH)
