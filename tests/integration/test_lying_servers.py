"""Whatever a server does, and in whatever order, nobody gets the answer of another request."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.core.domain.op import FunctionFault
from tests.support.function_calls import make_client, post
from tests.support.raw_server import Asked, RawServer, answer, read_request

_MOVES = st.sampled_from(
    [
        "answer",
        "twice",
        "late",
        "old-first",
        "no-id",
        "old-id",
        "close",
        "garbage-behind",
        "garbage-first",
        "half",
        "interim",
    ]
)


class Liar:
    """Does what its script says, request by request; an honest answer holds the text of its request."""

    def __init__(self, moves: list[str]) -> None:
        self._moves = iter(moves)
        self._old = b""
        self._old_id = "0" * 32

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while True:
            asked = await read_request(reader)
            move = next(self._moves, "answer")
            honest = answer(_text(asked), asked.id)
            writer.write(self._first(move, asked, honest))
            self._old, self._old_id = honest, asked.id
            await writer.drain()
            if move == "late":
                await asyncio.sleep(0)
                writer.write(honest)
            if move in ("close", "half"):
                return

    def _first(self, move: str, asked: Asked, honest: bytes) -> bytes:
        return {
            "twice": honest + honest,
            "old-first": self._old + honest,
            "no-id": answer(_text(asked)),
            "old-id": answer(b"old", self._old_id),
            "close": b"",
            "garbage-behind": honest + b"}",
            "garbage-first": b"x" + honest,
            "half": honest[:-1],
            "interim": b"HTTP/1.1 103 Early\r\nX-RunR-Request-Id: " + b"0" * 32 + b"\r\n\r\n" + honest,
        }.get(move, honest)


def _text(asked: Asked) -> bytes:
    return asked.body.rpartition(b"text")[2].strip(b'\\":}')


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(moves=st.lists(_MOVES, min_size=2, max_size=12), at_once=st.integers(1, 3))
def test_whatever_a_server_does_nobody_gets_the_answer_of_another(moves: list[str], at_once: int) -> None:
    faults: set[str] = set()

    async def play() -> None:
        async with RawServer(Liar(moves).serve) as server, make_client() as client:

            async def caller(name: int) -> None:
                for turn in range(len(moves)):
                    text = f"{name}-{turn}"
                    try:
                        got = await post(client, server, text)
                    except FunctionFault as error:
                        faults.add(error.name)
                    else:
                        assert got == text.encode()

            await asyncio.gather(*(caller(name) for name in range(at_once)))

    asyncio.run(play())
    assert faults <= {"ProtocolError", "FunctionUnreachable"}
