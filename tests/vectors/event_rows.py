"""`event_names.json`: names of events, and whole bodies of `POST /api/events`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from services.core.domain.errors import InvalidInput
from services.core.domain.event import NewEvent, listener_name_fault, parse_events_body, sender_name_fault
from services.core.domain.json_text import dump
from tests.vectors.check import Check, Unhandled, expect
from tests.vectors.event_bodies import made_body
from tests.vectors.prose import allowed


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine."""
    for row in document.get("names", []):
        yield Check(row["id"], partial(_check_name, row))
    rows = {row["id"]: row for row in document.get("events", [])}
    for row in rows.values():
        yield Check(row["id"], partial(_check_event, row, rows))


def _check_name(row: Any) -> None:
    name, expected = row["name"], row["expected"]
    fault = sender_name_fault(name)
    expect("error" if fault else "ok", expected)
    if expected == "ok":
        assert listener_name_fault(name) is None, "a name that may be sent may be listened to"
    body = json.dumps({"name": name}).encode()
    expect("error" if isinstance(_sent(body), InvalidInput) else "ok", expected)


def _check_event(row: Any, rows: Mapping[str, Any]) -> None:
    words = row["expected"]
    alike = re.fullmatch(r"as ([a-z0-9-]+)", words)
    if alike and alike[1] in rows:
        words = rows[alike[1]]["expected"]
    body = _body(row)
    found = _sent(body)
    verdicts = _verdicts(words)
    if not verdicts:
        raise Unhandled(words)
    verdict = "error" if isinstance(found, InvalidInput) else "ok"
    assert verdict in verdicts, f"expected {words}, got {verdict} {found!r:.200}"
    if isinstance(found, InvalidInput):
        _check_refusal(found, words)
    else:
        _check_accepted(found, body, words)


def _body(row: Any) -> bytes:
    if "event" in row:
        return json.dumps(row["event"]).encode()
    return str(row["raw"]).encode() if "raw" in row else made_body(row["make"])


def _sent(body: bytes) -> list[NewEvent] | InvalidInput:
    """The events, or the refusal; anything else that is raised fails the row."""
    try:
        return parse_events_body(body)
    except InvalidInput as refusal:
        return refusal


def _verdicts(words: str) -> frozenset[str]:
    verdicts = set(allowed(words))
    if re.search(r"\b(lossless|losslessly|delivered as|treated as absent|two events)\b", words):
        verdicts.add("ok")
    return frozenset(verdicts)


def _check_refusal(refusal: InvalidInput, words: str) -> None:
    assert refusal.errors, "a refusal names its faults"
    index = re.search(r"naming index ([0-9]+)", words)
    if index:
        paths = [error.path for error in refusal.errors]
        assert all(path.startswith(f"events[{index[1]}].") for path in paths), f"expected index {index[1]}, got {paths}"


def _check_accepted(events: list[NewEvent], body: bytes, words: str) -> None:
    """Whatever was taken was taken without loss, and as the words say."""
    sent = json.loads(body)
    listed = (
        sent["events"] if isinstance(sent, dict) and "events" in sent else sent if isinstance(sent, list) else [sent]
    )
    expect(len(events), len(listed))
    for event, given in zip(events, listed, strict=True):
        expect(json.loads(event.data), given.get("data", {}))
        expect(event.ts, given.get("ts"))
        if "treated as absent" in words:
            expect(event.id, None)
    if "two events" in words:
        expect(len({event.id for event in events}), 2)
    data = re.search(r"data == (\{.*\})|delivered as (\{.*?\}) not", words)
    if data:
        expect(json.loads(events[0].data), json.loads(data[1] or data[2]))
    number = re.search(r"delivered as (-?[0-9]+)$", words)
    if number:
        assert number[1] in events[0].data
        assert number[1] in dump(json.loads(events[0].data))
