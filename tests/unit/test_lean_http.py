"""Answers of HTTP/1.1 as they are read: the same wherever their bytes are cut, and refused where they are ambiguous."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.executor.lean_http.answer import AnswerParser
from services.executor.lean_http.errors import AnswerTooBig, BadAnswer, ConnectionBroken, HttpError
from services.executor.lean_http.head import KnownHeads, parse_head

MAX_BODY = 1000
MAX_OTHER_BODY = 100
BODY = b'{"a":1}'
READ_HEAD = partial(parse_head, id_field=b"x-runr-request-id")


def parser() -> AnswerParser:
    return AnswerParser(max_body=MAX_BODY, max_other_body=MAX_OTHER_BODY, read_head=READ_HEAD)


def read(parts: Sequence[bytes]) -> AnswerParser:
    """The answer whose bytes arrive in these parts, before the connection is closed."""
    reading = parser()
    for part in parts:
        if reading.feed(part):
            return reading
    reading.end()
    return reading


def outcome(parts: Sequence[bytes]) -> tuple[object, ...]:
    """What reading ends with: everything that the client goes by."""
    try:
        got = read(parts)
    except HttpError as error:
        return (type(error),)
    assert got.head is not None
    return got.head, got.body, got.is_cut


def head(*fields: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    return "\r\n".join((f"HTTP/{version} {status}", *fields, "", "")).encode("latin-1")


def counted(body: bytes = BODY, *fields: str) -> bytes:
    return head(f"Content-Length: {len(body)}", *fields) + body


def chunked(*chunks: bytes, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks]
    return head("Transfer-Encoding: chunked") + b"".join(parts) + b"0\r\n" + trailers + b"\r\n"


WHOLE = {
    "counted": counted(),
    "counted-empty": counted(b""),
    "chunked": chunked(b'{"a', b'":1}'),
    "chunked-empty": chunked(),
    "extensions-and-trailers": chunked(BODY, extension=b' ; a=b;c="d"', trailers=b"X-Sum: 1\r\nY: 2\r\n"),
    "upper-case": head("TRANSFER-ENCODING: Chunked") + b"A\r\n0123456789\r\n0\r\n\r\n",
    "after-interims": head("Link: </a>", status="103 Early Hints") + head(status="100 Continue") + counted(),
    "no-reason": head("Content-Length: 0", status="200"),
    "odd-reason": head("Content-Length: 0", status="200 \xe9\xff \t!"),
    "no-content": head(status="204 No Content"),
    "not-modified": head("Content-Length: 5", status="304 Not Modified"),
    "http-1.0": head("Content-Length: 7", version="1.0") + BODY,
    "blanks-around-a-value": head("Content-Length: \t 7 \t") + BODY,
    "failure": head("Content-Length: 4", status="500 No") + b"oops",
    "id": counted(BODY, "X-RUNR-request-ID:  abc "),
    "at-the-limit": counted(b"x" * MAX_BODY),
    "chunked-at-the-limit": chunked(b"x" * (MAX_BODY - 1), b"x"),
}
UNTIL_CLOSE = {"until-close": head() + BODY, "http-1.0-until-close": head(version="1.0") + BODY}

NOT_HTTP = {
    "html": b"<html>hello</html>\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "http-0.9": b'{"runr_workflow":"v1"}',
    "http-2": b"HTTP/2.0 200 OK\r\n\r\n",
    "http-1.2": b"HTTP/1.2 200 OK\r\n\r\n",
    "lower-case-version": b"http/1.1 200 OK\r\n\r\n",
    "line-before": b"\r\n" + counted(),
    "bare-lf": counted().replace(b"\r\n", b"\n"),
    "one-bare-lf": b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
    "bare-cr": b"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 0\r\n\r\n",
    "status-two-digits": head("Content-Length: 0", status="20 OK"),
    "status-four-digits": head("Content-Length: 0", status="2000 OK"),
    "status-zero": head("Content-Length: 0", status="000 OK"),
    "status-letters": head("Content-Length: 0", status="2OO OK"),
    "upgrade": head("Upgrade: h2c", status="101 Switching Protocols"),
    "no-colon": head("Content-Length"),
    "blank-before-colon": head("Content-Length : 0"),
    "no-name": head(": 0"),
    "name-with-blank": head("Content Length: 0"),
    "fold-first": head(" Content-Length: 0"),
    "nul-in-value": head("A: \0", "Content-Length: 0"),
    "control-in-value": head("A: \x0b", "Content-Length: 0"),
    "length-and-chunked": head("Content-Length: 7", "Transfer-Encoding: chunked") + BODY,
    "two-lengths": head("Content-Length: 2", "Content-Length: 7") + BODY,
    "same-length-twice": head("Content-Length: 7", "Content-Length: 7") + BODY,
    "length-list": head("Content-Length: 7, 7") + BODY,
    "length-plus": head("Content-Length: +7") + BODY,
    "length-minus": head("Content-Length: -7") + BODY,
    "length-hex": head("Content-Length: 0x7") + BODY,
    "length-fraction": head("Content-Length: 7.0") + BODY,
    "length-underscore": head("Content-Length: 1_0") + b"0123456789",
    "length-other-digits": head("Content-Length: \u00b2") + BODY,
    "length-empty": head("Content-Length:") + BODY,
    "length-huge": head("Content-Length: " + "9" * 30) + BODY,
    "length-folded-apart": head("Content-Length: 1", " 0") + b"0123456789",
    "folded": head("X-Long: a", " b", "Content-Length: 0"),
    "folded-by-a-tab": head("X-Long: a", "\tb", "Content-Length: 0"),
    "coding-gzip": head("Transfer-Encoding: gzip") + BODY,
    "coding-gzip-chunked": head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
    "coding-chunked-twice": head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "coding-quoted": head('Transfer-Encoding: "chunked"') + b"0\r\n\r\n",
    "coding-xchunked": head("Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "coding-empty": head("Transfer-Encoding:") + b"0\r\n\r\n",
    "chunked-in-1.0": head("Transfer-Encoding: chunked", version="1.0") + b"0\r\n\r\n",
    **{
        f"chunk-size-{name}": head("Transfer-Encoding: chunked") + size + b"\r\nabc\r\n0\r\n\r\n"
        for name, size in {
            "letters": b"zz",
            "empty": b"",
            "plus": b"+3",
            "minus": b"-3",
            "prefix": b"0x3",
            "blank-before": b" 3",
            "blank-behind": b"3 ",
            "huge": b"FFFFFFFFFFFFFFFFF",
            "bare-lf": b"3\nabc\n",
            "bare-cr": b"3\rabc",
            "control-in-extension": b"3;\0",
            "long-extension": b"3;" + b"a" * 5000,
        }.items()
    },
    "chunk-too-long": head("Transfer-Encoding: chunked") + b"2\r\nabc\r\n0\r\n\r\n",
    "chunk-too-short": head("Transfer-Encoding: chunked") + b"4\r\nabc\r\n0\r\n\r\n",
    "chunk-without-end": head("Transfer-Encoding: chunked") + b"3\r\nabc0\r\n\r\n",
    "trailer-without-colon": chunked(BODY, trailers=b"oops\r\n"),
    "long-extensions": chunked(*[b"a"] * 100, extension=b";" + b"a" * 1000),
    "long-trailers": chunked(BODY, trailers=b"A: %s\r\n" % (b"a" * 4000) * 20),
    "long-head": head("A: " + "a" * 70_000),
    "long-interims": head("A: " + "a" * 1000, status="103 Early Hints") * 70 + counted(),
    "many-fields": head(*["A: b"] * 300),
    "longer-than-announced": counted() + b"}",
}
BROKEN = {
    "nothing": b"",
    "half-a-status-line": b"HTTP/1.1 2",
    "half-a-head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "no-empty-line": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
    "only-interim": head(status="100 Continue"),
    "half-a-body": counted()[:-1],
    "half-a-chunk": head("Transfer-Encoding: chunked") + b"ff\r\nabc",
    "no-last-chunk": head("Transfer-Encoding: chunked") + b"3\r\nabc\r\n",
    "no-end-of-trailers": head("Transfer-Encoding: chunked") + b"0\r\nA: b\r\n",
}
TOO_BIG = {
    "announced": head(f"Content-Length: {MAX_BODY + 1}"),
    "chunked": chunked(b"x" * MAX_BODY, b"x"),
    "one-chunk": head("Transfer-Encoding: chunked") + b"FFFFFFFF\r\n" + b"x" * (MAX_BODY + 1),
    "until-close": head() + b"x" * (MAX_BODY + 1),
}
EVERYTHING = {**WHOLE, **UNTIL_CLOSE, **NOT_HTTP, **BROKEN, **TOO_BIG}


def cases(table: dict[str, bytes]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("wire", table.values(), ids=table.keys())


def cut_at(wire: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(wire)]
    return [wire[start:end] for start, end in pairwise(edges)]


class TestWhole:
    @cases(WHOLE | UNTIL_CLOSE)
    def test_it_is_read(self, wire: bytes) -> None:
        got = read([wire])
        assert got.head is not None
        assert not got.has_surplus
        assert not got.is_cut

    def test_the_parts_of_a_head(self) -> None:
        got = read([counted(BODY, "X-RunR-Request-Id: abc", "Content-Encoding: GZIP", "Keep-Alive: max=9, timeout=5")])
        assert got.head is not None
        assert got.head.status == 200
        assert (got.head.request_id, got.head.encoding, got.head.idle_s) == (b"abc", b"gzip", 5)
        assert got.body == BODY

    @pytest.mark.parametrize(
        ("wire", "persists"),
        [
            (counted(), True),
            (chunked(BODY), True),
            (head(status="204 No"), True),
            (counted(BODY, "Connection: keep-alive"), True),
            (counted(BODY, "Connection: close"), False),
            (counted(BODY, "Connection: a, CLOSE"), False),
            (counted(BODY, "Connection: a", "Connection: close"), False),
            (counted(BODY, "Connection: closed"), True),
            (head("Content-Length: 0", "Connection: keep-alive", version="1.0"), False),
            (head() + BODY, False),
        ],
    )
    def test_whether_the_connection_persists(self, wire: bytes, persists: bool) -> None:
        got = read([wire])
        assert got.head is not None
        assert got.head.persists is persists

    def test_of_a_failure_only_the_beginning_is_read(self) -> None:
        reading = parser()
        assert reading.feed(head("Content-Length: 100000000", status="500 No") + b"x" * 2 * MAX_OTHER_BODY)
        assert reading.body == b"x" * MAX_OTHER_BODY
        assert reading.is_cut

    @pytest.mark.parametrize("behind", [counted(), b"\r\n", b"HTT", b"\r\nHTTP/1.1 500 No\r\n"])
    def test_what_follows_an_answer_is_seen(self, behind: bytes) -> None:
        for wire in (counted(), chunked(BODY), head(status="204 No")):
            got = read([wire + behind])
            assert got.has_surplus


class TestRefused:
    @cases(NOT_HTTP)
    def test_what_is_not_http(self, wire: bytes) -> None:
        with pytest.raises(BadAnswer):
            read([wire])

    @cases(BROKEN)
    def test_what_breaks_off(self, wire: bytes) -> None:
        with pytest.raises(ConnectionBroken):
            read([wire])

    @cases(TOO_BIG)
    def test_what_is_too_big_is_refused_before_its_end(self, wire: bytes) -> None:
        reading = parser()
        with pytest.raises(AnswerTooBig):
            reading.feed(wire)

    def test_a_banner_is_refused_without_waiting_for_more(self) -> None:
        for beginning in (b"S", b"HTTP/2", b"\x16\x03", b"HTTP/1.1 200 OK\n"):
            with pytest.raises(BadAnswer):
                parser().feed(beginning)

    def test_a_body_of_very_many_chunks(self) -> None:
        reading = AnswerParser(max_body=1 << 23, max_other_body=0, read_head=READ_HEAD)
        with pytest.raises(BadAnswer, match="too many chunks"):
            reading.feed(chunked(*[b"a"] * 100_001))


class TestCuts:
    """Bytes arrive in any pieces, and that makes no difference."""

    # What comes behind an answer later is the connection's business.
    @cases({name: wire for name, wire in EVERYTHING.items() if len(wire) < 2_000 and name != "longer-than-announced"})
    def test_byte_by_byte_and_in_two_pieces(self, wire: bytes) -> None:
        whole = outcome([wire])
        assert outcome([wire[at : at + 1] for at in range(len(wire))]) == whole
        for place in range(1, len(wire)):
            assert outcome(cut_at(wire, [place])) == whole

    @given(st.data())
    def test_in_any_pieces(self, data: st.DataObject) -> None:
        wire = data.draw(st.sampled_from([*WHOLE.values(), *UNTIL_CLOSE.values(), *BROKEN.values(), *TOO_BIG.values()]))
        places = data.draw(st.lists(st.integers(0, len(wire)), max_size=8))
        assert outcome(cut_at(wire, places)) == outcome([wire])


# Lines of answers, true and false, from which Hypothesis makes new ones.
_LINES = st.sampled_from(
    [
        b"Content-Length: 3",
        b"Content-Length: 5",
        b"Content-Length: 03",
        b"content-length:3",
        b"Content-Length : 3",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding:\tchunked ",
        b"Connection: close",
        b"Connection: keep-alive",
        b"X-A: b",
        b" folded",
        b"X-B:",
        b"no colon",
        b"X\tC: d",
    ]
)
_ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
_BODIES = st.sampled_from(
    [
        b"",
        b"abc",
        b"abcde",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"0\r\n\r\n",
        b"3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n",
        b"3\nabc\n0\n\n",
    ]
)
_WIRES = st.builds(
    lambda status, lines, body: status + b"".join(line + end for line, end in lines) + b"\r\n" + body,
    st.sampled_from([b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 404 No\r\n"]),
    st.lists(st.tuples(_LINES, _ENDS), max_size=4),
    _BODIES,
)


class Read:
    """An answer as httptools reads it, which is Node's llhttp."""

    def __init__(self, wire: bytes) -> None:
        self.body = b""
        self.complete = 0
        self.status = 0
        self.refused = False
        self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(wire)
        except httptools.HttpParserError:
            self.refused = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete += 1


class TestAgainstAnother:
    @given(wire=_WIRES)
    def test_what_is_accepted_is_what_another_reader_reads(self, wire: bytes) -> None:
        """Strict on purpose: not everything that llhttp reads is accepted, but nothing is read in another way."""
        try:
            got = read([wire])
        except HttpError:
            return
        assert got.head is not None
        if got.has_surplus:
            return
        other = Read(wire)
        assert not other.refused
        assert (other.status, other.body) == (got.head.status, got.body)
        assert bool(other.complete) is (got.head.framing != "close")


class TestKnownHeads:
    HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nX-RunR-Request-Id: %s\r\n\r\n"

    @given(st.lists(st.sampled_from([b"a1", b"b2", b"c3", b"secret"]), min_size=1, max_size=6), st.data())
    def test_a_remembered_head_says_what_it_says_when_it_is_parsed(self, ids: list[bytes], data: st.DataObject) -> None:
        heads = KnownHeads(b"x-runr-request-id", place=b"secret")
        for written in ids:
            sent = data.draw(st.sampled_from([b"a1", b"b2", b"c3"]))
            got = heads.read(sent, self.HEAD % written)
            parsed = parse_head(self.HEAD % written, b"x-runr-request-id")
            wanted = parsed._replace(request_id=b"secret") if written == sent else parsed
            assert got == wanted

    def test_an_id_elsewhere_than_in_its_field_is_no_answer_to_it(self) -> None:
        heads = KnownHeads(b"x-runr-request-id", place=b"secret")
        for _ in range(2):
            got = heads.read(
                b"a1", b"HTTP/1.1 200 OK\r\nX-Echo: a1\r\nX-RunR-Request-Id: b2\r\nContent-Length: 0\r\n\r\n"
            )
            assert got.request_id == b"b2"

    def test_what_is_refused_is_refused_again(self) -> None:
        heads = KnownHeads(b"x-runr-request-id", place=b"secret")
        for _ in range(2):
            with pytest.raises(BadAnswer):
                heads.read(b"a1", b"HTTP/1.1 200 OK\r\nX-RunR-Request-Id: a1\r\nContent-Length: x\r\n\r\n")

    def test_only_so_many_are_remembered(self) -> None:
        heads = KnownHeads(b"x-runr-request-id", place=b"secret")
        for length in range(600):
            got = heads.read(
                b"id-1", b"HTTP/1.1 200 OK\r\nX-RunR-Request-Id: id-1\r\nContent-Length: %d\r\n\r\n" % length
            )
            assert (got.length, got.request_id) == (length, b"secret")
        assert len(heads) <= 256
