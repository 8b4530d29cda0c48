"""A Redis stream and our consumer group in it: what is asked of Redis, and what its answers are.

Redis before 7 tells of deleted entries differently; both are understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from services.cli.queue.entry import Entry, Pairs, pairs_of

_CONNECT_S = 5.0
_ANSWER_S = 10.0
_RAW = ("XREADGROUP", "XAUTOCLAIM", "XCLAIM", "XPENDING", "XINFO CONSUMERS", "XRANGE")
_START = "0-0"
_FORGOTTEN_MS = 24 * 3_600_000


def connect(url: str) -> Redis:
    """A client that tries nothing twice by itself: what was lost on the way is for the caller to judge."""
    over_network = {} if url.startswith("unix:") else {"socket_keepalive": True}
    client = Redis.from_url(
        url,
        protocol=2,
        socket_connect_timeout=_CONNECT_S,
        socket_timeout=_ANSWER_S,
        retry=Retry(NoBackoff(), 0),
        **over_network,
    )
    for command in _RAW:
        # The client would make dictionaries of the fields, and lose those whose name comes twice.
        client.set_response_callback(command, _as_it_is)
    return client


class ConsumerGroup:
    """One consumer of a group. Raises what the client raises."""

    def __init__(
        self,
        client: Redis,
        *,
        stream: str,
        group: str,
        consumer: str,
        dead_stream: str,
        forgotten_ms: int = _FORGOTTEN_MS,
    ) -> None:
        """`forgotten_ms`: after so long without a word a consumer that has nothing is removed."""
        self._client = client
        self._stream = stream
        self._group = group
        self._consumer = consumer
        self._dead_stream = dead_stream
        self._forgotten_ms = forgotten_ms

    async def ensure(self) -> None:
        """Make the group, at the oldest entry, and the stream, if they are not there."""
        try:
            await self._client.xgroup_create(self._stream, self._group, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def read(self, most: int, *, block_ms: int) -> list[Entry]:
        """Entries that nobody had, waited for."""
        answer = await self._ask(
            "XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", most, "BLOCK", block_ms, "STREAMS",
            self._stream, ">",
        )  # fmt: skip
        return [entry for _, found in answer or () for entry in _entries(found)]

    async def claim(self, most: int, *, idle_ms: int, cursor: str = _START) -> tuple[list[Entry], str]:
        """Entries whose consumer has said nothing of them for so long, and where to go on, `0-0` at the end."""
        answer = await self._ask(
            "XAUTOCLAIM", self._stream, self._group, self._consumer, idle_ms, cursor, "COUNT", most
        )  # fmt: skip
        if any(each is None or each[1] is None for each in answer[1]):
            await self._forget_deleted()
        entries = _entries(answer[1])
        counts = await self._deliveries([entry.id for entry in entries])
        return [Entry(each.id, each.fields, counts.get(each.id, 1)) for each in entries], answer[0].decode()

    async def hold(self, ids: Iterable[str]) -> None:
        """Say that these are still worked on."""
        wanted = list(ids)
        if wanted:
            await self._ask("XCLAIM", self._stream, self._group, self._consumer, 0, *wanted, "JUSTID")

    async def again(self, entry: Entry) -> bool:
        """Count one more delivery; False when somebody else has accounted for the entry."""
        answer = await self._ask(
            "XCLAIM", self._stream, self._group, self._consumer, 0, entry.id, "RETRYCOUNT", entry.deliveries, "JUSTID"
        )
        # What was deleted from the stream meanwhile is accounted for by nobody: it is here alone.
        return bool(answer) or not await self._is_there(entry.id)

    async def release(self, ids: Iterable[str], *, idle_ms: int) -> None:
        """Leave these to whoever looks next."""
        wanted = list(ids)
        if wanted:
            await self._ask(
                "XCLAIM", self._stream, self._group, self._consumer, 0, *wanted, "IDLE", idle_ms, "JUSTID"
            )  # fmt: skip

    async def acknowledge(self, entry_id: str) -> None:
        """It is done."""
        await self._client.xack(self._stream, self._group, entry_id)

    async def bury(self, entry: Entry, letter: Mapping[str, str]) -> None:
        """Put the entry with what is told of it into the dead letter stream, and acknowledge it: both or neither.

        Asked again because no answer came, it does nothing that was done.
        """
        if not await self._deliveries([entry.id]) and await self._is_there(entry.id):
            return
        fields = [part for pair in (*entry.fields, *_encoded(letter)) for part in pair]
        async with self._client.pipeline(transaction=True) as both:
            both.execute_command("XADD", self._dead_stream, "*", *fields)
            both.xack(self._stream, self._group, entry.id)
            await both.execute()

    async def leave(self) -> None:
        """Remove this consumer, unless something is still in its name."""
        if not await self._pending(1):
            await self._client.xgroup_delconsumer(self._stream, self._group, self._consumer)

    async def forget_the_dead(self) -> None:
        """Remove consumers that have nothing and of which nobody has heard for long: they did not end in order."""
        for flat in await self._ask("XINFO CONSUMERS", self._stream, self._group):
            told = dict(zip(flat[::2], flat[1::2], strict=True))
            is_gone = told[b"pending"] == 0 and told[b"idle"] > self._forgotten_ms
            if is_gone and told[b"name"] != self._consumer.encode():
                await self._client.xgroup_delconsumer(self._stream, self._group, told[b"name"])

    async def _forget_deleted(self) -> None:
        """Acknowledge entries in our name that the stream no longer has: Redis before 7 does not say which."""
        for entry_id, *_ in await self._pending(100):
            if not await self._is_there(entry_id):
                await self._client.xack(self._stream, self._group, entry_id)

    async def _is_there(self, entry_id: str) -> bool:
        return bool(await self._ask("XRANGE", self._stream, entry_id, entry_id, "COUNT", 1))

    async def _pending(self, most: int) -> list[list[Any]]:
        found: list[list[Any]] = await self._ask("XPENDING", self._stream, self._group, "-", "+", most, self._consumer)
        return found

    async def _deliveries(self, ids: Sequence[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for entry_id in ids:
            for found, _, _, count in await self._ask("XPENDING", self._stream, self._group, entry_id, entry_id, 1):
                counts[found.decode()] = count
        return counts

    async def _ask(self, *words: Any) -> Any:
        execute: Any = self._client.execute_command
        return await execute(*words)


def _as_it_is(response: Any, **_: Any) -> Any:
    return response


def _entries(found: Sequence[Any]) -> list[Entry]:
    """What is there of entries; a deleted one is told as None, or without its fields."""
    return [Entry(each[0].decode(), pairs_of(each[1])) for each in found if each is not None and each[1] is not None]


def _encoded(letter: Mapping[str, str]) -> Pairs:
    return tuple((name.encode(), value.encode(errors="replace")) for name, value in letter.items())
