"""`runr queue consume` over a real Redis: what is delivered, what is waited out, what is buried, what dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.cli.queue.address import GivenAddress
from services.cli.queue.stream import ConsumerGroup, connect
from services.core.runtime.lifecycle import StartRefused
from tests.support.bridge_sink import Bridge, bridge
from tests.support.consuming import DEAD, GROUP, STREAM, add, consuming, pending, settled
from tests.support.redis_server import RedisServer, redis, server
from tests.support.waiting import until

__all__ = ["redis", "server"]


async def letters(server: RedisServer) -> list[dict[str, str]]:
    found = await server.client.xrange(DEAD)
    return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]


async def test_every_entry_is_delivered_once_and_acknowledged(server: RedisServer) -> None:
    before = await add(server, 20)
    async with bridge() as sink, consuming(server, sink, in_flight=4):
        await sink.until(lambda sink: len(sink.accepted) == 20)
        after = await add(server, 20)
        await sink.until(lambda sink: len(sink.accepted) == 40)
        await settled(server)
    assert sink.accepted == dict.fromkeys([*before, *after], 1)
    assert sink.most_at_once <= 4
    assert await server.client.xinfo_consumers(STREAM, GROUP) == []
    assert await server.client.xlen(STREAM) == 40


async def test_the_fields_arrive_whatever_they_hold(server: RedisServer) -> None:
    client = server.client
    await client.execute_command("XADD", STREAM, "*", "a", "1", "a", "2", "b", "ä\0", "c", b"\xff\x00", b"\xfe", "d")
    async with bridge() as sink, consuming(server, sink):
        await sink.until(lambda sink: sink.accepted)
        await settled(server)
    ((_, fields),) = sink.posts
    assert fields == {"a": ["1", "2"], "b": "ä\0", "c_base64": "/wA=", "\\xfe": "d"}


async def test_while_the_engine_is_away_nothing_dies_and_no_more_is_read_than_can_be_delivered(
    redis: RedisServer,
) -> None:
    down = True

    def answer(_: str, __: Any) -> Any:
        return (503, {"Retry-After": "0"}) if down else 200

    await add(redis, 50)
    async with bridge(answer) as sink, consuming(redis, sink, in_flight=4, max_deliveries=1) as running:
        await sink.until(lambda sink: len(sink.posts) > 12)
        assert await pending(redis) == 4
        assert len({entry for entry, _ in sink.posts}) <= 4
        assert not running.consumer.gate.is_open
        down = False
        await sink.until(lambda sink: len(sink.accepted) == 50)
        await settled(redis)
    assert set(sink.accepted.values()) == {1}
    assert await letters(redis) == []


async def test_an_engine_that_is_not_there_is_waited_for(redis: RedisServer) -> None:
    async with bridge() as sink:
        port = int(sink.url.split(":")[2].partition("/")[0])
    await add(redis, 3)
    async with consuming(redis, sink, max_deliveries=1) as running:
        await until(lambda: not running.consumer.gate.is_open)
        async with bridge(port=port) as sink:
            await sink.until(lambda sink: len(sink.accepted) == 3)
            await settled(redis)
    assert await letters(redis) == []


async def test_a_message_that_fails_again_and_again_dies_alone(server: RedisServer) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    def answer(_: str, fields: Any) -> int:
        return 500 if fields["n"] == "1" else 200

    ids = await add(server, 4, order="o-1")
    async with bridge(answer) as sink, consuming(server, sink, max_deliveries=5, sleep=pause):
        await sink.until(lambda sink: len(sink.posts) == 8)
        await settled(server)
    (letter,) = await letters(server)
    assert letter.pop("runr-at")
    assert letter == {
        "n": "1",
        "order": "o-1",
        "runr-stream": STREAM,
        "runr-entry": ids[1],
        "runr-reason": "500 said 500",
        "runr-deliveries": "5",
    }
    assert [round(seconds / 2**n, 1) == pytest.approx(2, rel=0.21) for n, seconds in enumerate(pauses)] == [True] * 4
    assert set(sink.accepted) == {ids[0], ids[2], ids[3]}


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_message_that_can_never_be_taken_is_a_dead_letter_at_once(redis: RedisServer, status: int) -> None:
    async with bridge(lambda *_: status) as sink, consuming(redis, sink):
        (entry,) = await add(redis)
        await sink.until(lambda sink: sink.posts)
        await settled(redis)
    assert [(letter["runr-entry"], letter["runr-deliveries"]) for letter in await letters(redis)] == [(entry, "1")]
    assert len(sink.posts) == 1


class Rotated(GivenAddress):
    """The address of a project whose key was rotated: it is asked for once, and is another one then."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(old)
        self._new = new
        self.asked = 0

    async def renew(self) -> None:
        self.asked += 1
        self.url = self._new


async def test_an_address_that_is_refused_is_asked_for_anew_and_nothing_dies(redis: RedisServer) -> None:
    await add(redis, 5)
    async with bridge() as sink:
        address = Rotated(sink.url.replace("abab", "cdcd"), sink.url)
        async with consuming(redis, sink, address=address, in_flight=2, max_deliveries=1):
            await sink.until(lambda sink: len(sink.accepted) == 5)
            await settled(redis)
    assert address.asked >= 1
    assert await letters(redis) == []


async def test_a_redirect_is_not_followed(redis: RedisServer) -> None:
    async with bridge() as other:

        def answer(_: str, __: Any) -> Any:
            return 307, {"Location": other.url}

        await add(redis)
        async with bridge(answer) as sink, consuming(redis, sink):
            await sink.until(lambda sink: len(sink.posts) > 1)
            assert await pending(redis) == 1
    assert other.posts == []


async def test_what_says_yes_to_everything_is_not_believed(redis: RedisServer) -> None:
    await add(redis)
    async with bridge() as sink:
        sink.is_ours = False
        async with consuming(redis, sink):
            await sink.until(lambda sink: len(sink.posts) > 1)
            assert await pending(redis) == 1
            sink.is_ours = True
            await settled(redis)
    assert await letters(redis) == []


async def test_a_letter_is_written_once_though_its_answer_was_lost(server: RedisServer) -> None:
    (entry,) = await add(server)
    client = connect(server.url)
    group = ConsumerGroup(client, stream=STREAM, group=GROUP, consumer="c", dead_stream=DEAD)
    await group.ensure()
    (read,) = await group.read(1, block_ms=1)
    for _ in range(2):
        await group.bury(read, {"runr-reason": "said no"})
    assert await letters(server) == [{"n": "0", "runr-reason": "said no"}]
    # What was deleted while it was pending is in our hands alone.
    await add(server)
    (gone,) = await group.read(1, block_ms=1)
    await server.client.xdel(STREAM, gone.id)
    await group.hold([gone.id])
    await group.bury(gone, {"runr-reason": "said no"})
    assert len(await letters(server)) == 2
    assert read.id == entry
    await client.aclose()


async def test_what_a_dead_consumer_had_is_delivered_by_another(server: RedisServer) -> None:
    ids = await add(server, 6)
    async with bridge() as sink:
        sink.hold()
        async with consuming(server, sink, name="dying", in_flight=3) as dying:
            await sink.until(lambda sink: len(sink.posts) == 3)
            await dying.kill()
        assert await pending(server) == 3
        sink.let_go()
        async with consuming(server, sink, claim_after_s=0.2):
            await sink.until(lambda sink: set(sink.accepted) == set(ids))
            await settled(server)
    assert {entry for entry, _ in sink.posts[:3]} == set(ids[:3])


async def test_deliveries_are_counted_over_the_lives_of_consumers(server: RedisServer) -> None:
    (entry,) = await add(server)
    await server.client.xgroup_create(STREAM, GROUP, id="0")
    for name in ("one", "two", "three"):
        await server.client.xclaim(STREAM, GROUP, name, 0, [entry])
    await server.client.xreadgroup(GROUP, "one", {STREAM: ">"})
    for name in ("two", "three"):
        await server.client.xclaim(STREAM, GROUP, name, 0, [entry])
    async with bridge(lambda *_: 500) as sink, consuming(server, sink, max_deliveries=4, claim_after_s=0.2):
        await sink.until(lambda sink: sink.posts)
        await settled(server)
    assert [letter["runr-deliveries"] for letter in await letters(server)] == ["4"]
    assert len(sink.posts) == 1


async def test_entries_that_were_deleted_while_they_were_pending_are_forgotten(server: RedisServer) -> None:
    ids = await add(server, 4)
    await server.client.xgroup_create(STREAM, GROUP, id="0")
    await server.client.xreadgroup(GROUP, "gone", {STREAM: ">"})
    await server.client.xdel(STREAM, ids[0], ids[2])
    async with bridge() as sink, consuming(server, sink, claim_after_s=0.2):
        await sink.until(lambda sink: len(sink.accepted) == 2)
        await settled(server)
    assert set(sink.accepted) == {ids[1], ids[3]}


async def test_a_delivery_that_takes_long_stays_with_its_consumer(server: RedisServer) -> None:
    (entry,) = await add(server)
    async with bridge() as sink:
        sink.hold()
        async with consuming(server, sink, name="slow", claim_after_s=2.0):
            await sink.until(lambda sink: sink.posts)
            idle, seen = 0, 0
            async with asyncio.timeout(60):
                while seen < 2:  # its silence is broken again and again
                    (told,) = await server.client.xpending_range(STREAM, GROUP, "-", "+", 1)
                    seen += told["time_since_delivered"] < idle
                    idle = told["time_since_delivered"]
                    await asyncio.sleep(0.02)
            assert (told["consumer"], told["times_delivered"]) == (b"slow", 1)
            sink.let_go()
            await settled(server)
    assert sink.accepted == {entry: 1}


async def test_a_consumer_that_drains_ends_what_is_on_its_way_and_leaves_the_rest_at_once(server: RedisServer) -> None:
    def answer(_: str, fields: Any) -> int:
        return 500 if fields["n"] == "0" else 200

    ids = await add(server, 2)
    async with bridge(answer) as sink:
        async with consuming(server, sink) as leaving:
            await sink.until(lambda sink: len(sink.accepted) == 1 and len(sink.posts) == 2)
            sink.hold()
            ids += await add(server, n="2")
            await sink.until(lambda sink: len(sink.posts) == 3)
            drained = asyncio.create_task(leaving.drain())
            await until(lambda: leaving.consumer.held == 1)  # the rest has been left
            assert not drained.done()
            sink.let_go()
            await drained
        assert set(sink.accepted) == {ids[1], ids[2]}
        assert await pending(server) == 1
        sink.answer = lambda *_: 200
        # Others wait an hour for a consumer that is silent, but not for one that has left.
        async with consuming(server, sink):
            await sink.until(lambda sink: set(sink.accepted) == set(ids))
            await settled(server)


async def test_a_consumer_that_drains_while_the_engine_is_away_leaves_everything_at_once(redis: RedisServer) -> None:
    ids = await add(redis, 6)
    async with bridge(lambda *_: 503) as sink, consuming(redis, sink, in_flight=4) as leaving:
        await sink.until(lambda sink: len(sink.posts) > 4)
        await leaving.drain()
        assert leaving.consumer.held == 0
    async with bridge() as sink, consuming(redis, sink):
        await sink.until(lambda sink: set(sink.accepted) == set(ids))
        await settled(redis)


async def test_several_consumers_share_the_entries(redis: RedisServer) -> None:
    async with bridge() as sink, consuming(redis, sink, in_flight=2), consuming(redis, sink, in_flight=2):
        ids = await add(redis, 40)
        await sink.until(lambda sink: len(sink.accepted) == 40)
        await settled(redis)
    assert sink.accepted == dict.fromkeys(ids, 1)


async def consumers(server: RedisServer) -> set[bytes]:
    """The names of those that the group knows."""
    return {each["name"] for each in await server.client.xinfo_consumers(STREAM, GROUP)}


async def test_consumers_that_are_gone_and_have_nothing_are_removed(server: RedisServer) -> None:
    await add(server, 2)
    await server.client.xgroup_create(STREAM, GROUP, id="0")
    await server.client.xreadgroup(GROUP, "busy", {STREAM: ">"}, count=1)
    (entry,) = (await server.client.xreadgroup(GROUP, "gone", {STREAM: ">"}, count=1))[0][1]
    await server.client.xack(STREAM, GROUP, entry[0])
    client = connect(server.url)
    here = ConsumerGroup(
        client, stream=STREAM, group=GROUP, consumer="here", dead_stream=DEAD, forgotten_ms=0
    )  # fmt: skip
    await here.read(1, block_ms=1)

    async def is_removed() -> bool:
        await here.forget_the_dead()
        return b"gone" not in await consumers(server)

    await until(is_removed)
    await client.aclose()
    assert await consumers(server) - {b"here"} == {b"busy"}
    assert await pending(server) == 1


async def test_what_redis_will_never_do_refuses_the_start(redis: RedisServer) -> None:
    await redis.client.set(STREAM, "a text")
    with pytest.raises(StartRefused, match="WRONGTYPE"):
        async with consuming(redis, Bridge(url="http://127.0.0.1:9/")):
            pass


NEEDED = (
    "xgroup",
    "xreadgroup",
    "xautoclaim",
    "xclaim",
    "xpending",
    "xack",
    "xadd",
    "xrange",
    "xinfo",
    "multi",
    "exec",
)


async def test_the_commands_that_a_user_needs_are_these(server: RedisServer) -> None:
    """As docs/how-to/queue.md names them. The test's own client has its connection already."""
    allowed = [f"+{command}" for command in NEEDED]
    await server.client.execute_command("ACL", "SETUSER", "least", "on", "nopass", "~*", "-@all", *allowed)
    url = f"{server.url}?username=least&password=x"

    def answer(_: str, fields: Any) -> int:
        return 422 if fields["n"] == "1" else 200

    await add(server, 3)
    async with bridge(answer) as sink, consuming(server, sink, url=url, claim_after_s=0.2):
        await settled(server)
    assert len(await letters(server)) == 1
    for command in ("xautoclaim", "xgroup"):
        await server.client.execute_command("ACL", "SETUSER", "least", f"-{command}")
        with pytest.raises(StartRefused, match=r"(?i)noperm|no permissions"):
            async with consuming(server, sink, url=url):
                pass
