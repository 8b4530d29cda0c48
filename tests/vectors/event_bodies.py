"""Bodies of `POST /api/events` from their description in words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.vectors.check import Unhandled
from tests.vectors.prose import made_text

_NUMBER = r"([0-9][0-9 ]*)"
_LIMIT = 262_144


def made_body(words: str) -> bytes:
    """The body that the words describe. Raises Unhandled for words that no rule here understands."""
    for pattern, build in _RULES:
        match = re.search(pattern, words)
        if match:
            return build(match)
    if words.lstrip().startswith(("[", "{")):
        return words.replace("[...]", '[{"name":"a"},{"name":"b"}]').encode()
    raise Unhandled(f"make: {words}")


def _sized(match: re.Match[str]) -> bytes:
    """`name "a" (1 byte) + data serialized to exactly N bytes`."""
    size = _integer(match[2])
    return _event(name=match[1], data={"x": "a" * (size - len('{"x":""}'))})


def _written_out(match: re.Match[str]) -> bytes:
    """`data {"x": "\\u4e2d"*90000}`."""
    data = {match[1]: made_text(match[2])}
    return json.dumps({"name": "a", "data": data}, ensure_ascii=False).encode()


def _escaped(_match: re.Match[str]) -> bytes:
    """Over the limit while `\\uXXXX` counts six bytes, under it as UTF-8."""
    body = _event(data={"x": "\u4e2d" * 50_000})
    assert len(body) > _LIMIT
    return body


def _listed(match: re.Match[str]) -> bytes:
    return json.dumps([{"name": "a"}] * _integer(match[1])).encode()


def _one_bad(match: re.Match[str]) -> bytes:
    """`100 events, the 57th has an invalid name`."""
    events = [{"name": "a"} for _ in range(_integer(match[1]))]
    events[_integer(match[2]) - 1]["name"] = "not a name"
    return json.dumps(events).encode()


def _nested(match: re.Match[str]) -> bytes:
    depth = _integer(match[1])
    return b'{"name":"a","data":' + b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1) + b"}"


def _marked(_match: re.Match[str]) -> bytes:
    return b"\xef\xbb\xbf" + _event()


def _long_id(match: re.Match[str]) -> bytes:
    return _event(id="x" * _integer(match[1]))


def _two_ids(match: re.Match[str]) -> bytes:
    return json.dumps([{"name": "a", "id": match[1]}, {"name": "a", "id": match[2]}]).encode()


def _long_name(match: re.Match[str]) -> bytes:
    return _event(name="n" * _integer(match[1]))


def _written(match: re.Match[str]) -> bytes:
    return match[0].encode()


def _event(**fields: Any) -> bytes:
    return json.dumps({"name": "a", **fields}).encode()


def _integer(text: str) -> int:
    return int(text.replace(" ", ""))


_RULES: tuple[tuple[str, Callable[[re.Match[str]], bytes]], ...] = (
    (rf'^name "([^"]*)".*\bdata\b.*?\b{_NUMBER}bytes', _sized),
    (r'^data \{"([^"]*)": (.+?)\}(?::|$)', _written_out),
    (r"escaped form is over .* UTF-8 form is under", _escaped),
    (rf"^{_NUMBER}events, the ([0-9]+)(?:st|nd|rd|th) has an invalid name", _one_bad),
    (rf"^(?:(?:a )?(?:list|batch|array) of )?{_NUMBER}events$", _listed),
    (rf"^data nested {_NUMBER}(?:levels |objects )?deep$", _nested),
    (r"\bBOM\b", _marked),
    (rf"^id of {_NUMBER}(?:characters|bytes)$", _long_id),
    (rf"^name of {_NUMBER}(?:characters|bytes)$", _long_name),
    (r"(?i)^(?:an )?empty body$", lambda _: b""),
    (r"(?i)\b(?:invalid|not) UTF-8\b", lambda _: b'{"name":"a","data":{"x":"\xff"}}'),
    (r"(?i)\bUTF-16\b", lambda _: _event().decode().encode("utf-16")),
    (r"^(?:null|true|false|-?[0-9.]+)$", _written),
    (r'^ids "([^"]*)" then "([^"]*)"$', _two_ids),
)
