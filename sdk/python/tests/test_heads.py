"""Heads of one connection: a head is taken for what it is, whatever came before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runr_workflows.serving.http1 import Head, HeadParser, HttpFault

FIRST = (
    b"POST /runr HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    b"X-RunR-Signature: t=1,v1=aa\r\nX-RunR-Request-Id: 1\r\nContent-Length: 10"
)
BEGINNINGS = [
    b"POST / HTTP/1.1",
    b"POST / HTTP/1.1\r\nHost: here",
    b"POST / HTTP/1.1\r\nHost: here\r\nX-A: 1",
    b"GET / HTTP/1.0",
]
FIELDS = [
    b"Host: here",
    b"X-A: 1",
    b"x-a:2",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Content-Length: 5",
    b"Expect: 100-continue",
]
WRONG = [
    b"POST /  HTTP/1.1",
    b"Content-Length: 5\r\nContent-Length: 7",
    b"Transfer-Encoding: gzip",
    b"no colon",
    b" folded: 1",
    b"X-B : 1",
    b": nameless",
    b"X-C: a\nX-D: b",
    b"X-C: a\r",
    b"\nX-E: b",
    b"",
]


def outcome(parser: HeadParser, data: bytes) -> Head | str:
    try:
        return parser.parse(data)
    except HttpFault as fault:
        return f"{fault.status} {fault}"


def heads(lines: list[bytes]) -> st.SearchStrategy[bytes]:
    """Heads that begin with few different lines, so that what is known of those before matters."""
    fields = st.lists(st.sampled_from(lines), max_size=3)
    return st.builds(lambda first, more: b"\r\n".join((first, *more)), st.sampled_from(BEGINNINGS), fields)


@given(st.lists(heads(FIELDS), min_size=2, max_size=6), heads([*FIELDS, *WRONG]))
def test_what_came_before_changes_nothing(before: list[bytes], last: bytes) -> None:
    parser = HeadParser()
    for head in (*before, last):
        assert outcome(parser, head) == outcome(HeadParser(), head)


def test_what_two_heads_begin_with_alike_is_known_of_the_third() -> None:
    parser = HeadParser()
    second = FIRST.replace(b"v1=aa", b"v1=ab").replace(b"Id: 1", b"Id: 2")
    third = FIRST.replace(b"v1=aa", b"v1=cc").replace(b"Id: 1", b"Id: 3")
    parsed = [parser.parse(head).headers for head in (FIRST, second, third)]

    assert [headers["x-runr-request-id"] for headers in parsed] == ["1", "2", "3"]
    assert all(headers["content-type"] == "application/json" for headers in parsed)
    assert len({id(headers) for headers in parsed}) == 3


@pytest.mark.parametrize("more", [b"", b"\r\nX: 1", b"\r\nConnection: close", b"\r\nContent-Length: 10"])
def test_a_head_that_goes_on_where_others_ended_is_no_other(more: bytes) -> None:
    parser = HeadParser()
    for _ in range(2):
        parser.parse(FIRST)

    assert outcome(parser, FIRST + more) == outcome(HeadParser(), FIRST + more)
