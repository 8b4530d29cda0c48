"""The protocol at its door: envelope, signature, requests, refusals (protocol sections 2, 4 and 6)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from runr_workflows import Context, Step, Workflows
from runr_workflows.protocol import MAX_BODY_BYTES, open_envelope
from runr_workflows.refusal import RequestRefused
from runr_workflows.signature import NoSigningKey, SignatureRejected, sign, verify
from sdk.python.tests.engine import EVENT, KEY, NOW, FakeEngine, envelope, execute_request, signature

INTROSPECT = json.dumps({"type": "introspect", "protocol": "v1", "ts": NOW})


@pytest.fixture
def executed(wf: Workflows) -> list[int]:
    """Grows when user code runs."""
    calls: list[int] = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        calls.append(1)

    return calls


def refused(wf: Workflows, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Status and message of an answer that is not 200."""
    status, answer = wf.handle_request(body, headers or {})
    parsed = json.loads(answer)
    assert set(parsed) == {"error"}
    assert "Traceback" not in parsed["error"]
    assert KEY not in parsed["error"]
    return status, parsed["error"]


def signed(t: int = NOW, **changes: Any) -> bytes:
    """A signed execute request with fields of the envelope replaced (None: left out)."""
    fields = json.loads(envelope(execute_request("w"), t=t)) | changes
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        signed(runr_workflow="v2"),
        signed(runr_workflow=None),
        signed(request=None),
        signed(request={"type": "introspect"}),
        signed(signature=1),
        json.dumps(signed().decode()).encode(),
    ],
)
def test_a_body_that_is_no_envelope_is_400(wf: Workflows, executed: list[int], body: bytes) -> None:
    assert refused(wf, body)[0] == 400
    assert executed == []


@pytest.mark.parametrize(
    "body",
    [
        signed(signature=None),
        signed(signature="garbage"),
        signed(signature=""),
        signed(signature=f"t={NOW},v1={'0' * 64}"),
        signed(request=execute_request("other")),
        envelope(execute_request("w"), key="another"),
        signed(t=NOW - 301),
        signed(t=NOW + 301),
        json.dumps({"runr_workflow": "v1", "request": "\ud800", "signature": f"t={NOW},v1={'0' * 64}"}).encode(),
    ],
)
def test_a_request_that_is_not_the_engines_is_401_and_runs_nothing(
    wf: Workflows, executed: list[int], body: bytes
) -> None:
    assert refused(wf, body)[0] == 401
    assert executed == []


@pytest.mark.parametrize("t", [NOW - 300, NOW + 60, NOW + 300])
def test_times_within_five_minutes_pass(wf: Workflows, executed: list[int], t: int) -> None:
    assert wf.handle_request(signed(t=t), {})[0] == 200
    assert executed == [1]


def test_header_and_envelope_may_each_be_alone_but_must_not_differ(wf: Workflows, executed: list[int]) -> None:
    own = signature(execute_request("w"))
    other = signature(execute_request("w"), key="other")

    assert wf.handle_request(signed(signature=None), {"X-RunR-Signature": own})[0] == 200
    assert wf.handle_request(signed(signature=None), {"x-RUNR-signature": own})[0] == 200
    assert wf.handle_request(signed(), {"X-RunR-Signature": own})[0] == 200
    assert refused(wf, signed(), {"X-RunR-Signature": other})[0] == 401
    assert refused(wf, signed(signature=other), {"X-RunR-Signature": own})[0] == 401


@pytest.mark.parametrize("bad_request", ["[]", "{", '{"type":"poke"}', '{"type":"introspect","protocol":"v2"}'])
def test_a_signed_request_that_is_not_known_is_400(wf: Workflows, bad_request: str) -> None:
    assert refused(wf, envelope(bad_request))[0] == 400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", None),
        ("run", {}),
        ("run", {"id": "r", "attempt": "0"}),
        ("steps", []),
        ("steps", {"a": 1}),
        ("event", 1),
    ],
)
def test_an_execute_request_with_a_bad_field_is_400(
    wf: Workflows, executed: list[int], field: str, value: object
) -> None:
    request = json.dumps(json.loads(execute_request("w")) | {field: value})

    assert refused(wf, envelope(request))[0] == 400
    assert executed == []


def test_an_unserved_workflow_is_400_and_named(wf: Workflows) -> None:
    status, message = refused(wf, envelope(execute_request("nowhere")))

    assert status == 400
    assert "nowhere" in message


def test_fields_of_a_newer_engine_are_ignored(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", lambda: 1)
        step.run("b", lambda: 2)

    op = engine.execute("w", {}, dry="yes", max_parties=7, future={"x": 1})

    assert (op["op"], op["id"]) == ("step_completed", "a")


def test_a_minimal_request_is_enough(wf: Workflows, executed: list[int]) -> None:
    request = json.dumps({"type": "execute", "workflow": "w", "run": {"id": "r"}, "event": EVENT, "steps": {}})

    assert wf.handle_request(envelope(request), {})[0] == 200


def test_no_capability_is_claimed_that_is_not_there(engine: FakeEngine) -> None:
    assert engine.introspect()["capabilities"] == ["dry", "max_ops"]


def test_without_a_key_everything_is_500(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNR_WORKFLOW_SIGNING_KEY", raising=False)
    monkeypatch.delenv("RUNR_WORKFLOW_SIGNING_KEY_FALLBACK", raising=False)
    wf = Workflows(clock=lambda: NOW)

    assert refused(wf, envelope(INTROSPECT, key=""))[0] == 500
    assert refused(wf, b"no envelope")[0] == 400
    assert refused(Workflows(signing_key="", clock=lambda: NOW), envelope(INTROSPECT, key=""))[0] == 500


def test_keys_are_read_when_a_request_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    wf = Workflows(clock=lambda: NOW)

    monkeypatch.setenv("RUNR_WORKFLOW_SIGNING_KEY", "current")
    monkeypatch.setenv("RUNR_WORKFLOW_SIGNING_KEY_FALLBACK", "previous")

    assert wf.handle_request(envelope(INTROSPECT, key="current"), {})[0] == 200
    assert wf.handle_request(envelope(INTROSPECT, key="previous"), {})[0] == 200
    assert wf.handle_request(envelope(INTROSPECT, key="neither"), {})[0] == 401
    monkeypatch.delenv("RUNR_WORKFLOW_SIGNING_KEY_FALLBACK")
    assert wf.handle_request(envelope(INTROSPECT, key="previous"), {})[0] == 401


@pytest.mark.parametrize("given", ["", "v1"])
def test_the_protocol_that_it_speaks_may_be_named(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("RUNR_WORKFLOW_PROTOCOL", given)

    assert Workflows(signing_key=KEY, clock=lambda: NOW).handle_request(envelope(INTROSPECT), {})[0] == 200


@pytest.mark.parametrize("given", ["v2", "V1", "1", " v1"])
def test_another_protocol_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("RUNR_WORKFLOW_PROTOCOL", given)

    with pytest.raises(ValueError, match=f"RUNR_WORKFLOW_PROTOCOL is '{given}', .* speaks v1 only"):
        Workflows(signing_key=KEY)


def test_a_fault_of_the_sdk_is_500_and_logged_but_not_shown(
    executed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def broken_clock() -> float:
        raise RuntimeError(f"secret {KEY}")

    status, message = refused(Workflows(signing_key=KEY, clock=broken_clock), signed())

    assert status == 500
    assert "secret" not in message
    assert "secret" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


def test_a_body_over_the_limit_is_413() -> None:
    with pytest.raises(RequestRefused) as caught:
        open_envelope(b" " * (MAX_BODY_BYTES + 1), None, [KEY], NOW)

    assert caught.value.status == 413


def test_verify_tells_a_missing_key_from_a_bad_signature() -> None:
    header = f"t={NOW},v1={sign(KEY, NOW, 'x')}"

    verify(header=header, envelope=header, keys=["", KEY], request="x", now=NOW)
    with pytest.raises(NoSigningKey):
        verify(header=header, envelope=None, keys=[""], request="x", now=NOW)
    with pytest.raises(SignatureRejected):
        verify(header=None, envelope=None, keys=[KEY], request="x", now=NOW)


@pytest.mark.parametrize(
    "text",
    [
        "t={t},v1={v1},",
        "t={t};v1={v1}",
        " t={t},v1={v1}",
        "t={t} ,v1={v1}",
        "t={t},t={t},v1={v1}",
        "v1={v1}",
        "t={t}",
        "t=,v1={v1}",
        "t=-{t},v1={v1}",
        "t=1_700_000_000,v1={v1}",
        "t=١٧٠٠٠٠٠٠٠٠,v1={v1}",
        "t=" + "9" * 5000 + ",v1={v1}",
        "T={t},V1={v1}",
        "t={t},v1={v1}\n",
        "t={t},v2={v1}",
    ],
)
def test_malformed_signatures_are_rejected(text: str) -> None:
    header = text.format(t=NOW, v1=sign(KEY, NOW, "x"))

    with pytest.raises(SignatureRejected):
        verify(header=header, envelope=None, keys=[KEY], request="x", now=NOW)


@pytest.mark.parametrize("text", ["t={t},v1={v1}", "v1={v1}, t={t}", "t={t},v1=zz,v2=x,v1={v1}", "x=1,t={t},v1={v1}"])
def test_well_formed_signatures_pass(text: str) -> None:
    header = text.format(t=NOW, v1=sign(KEY, NOW, "x"))

    verify(header=header, envelope=None, keys=[KEY], request="x", now=NOW + 300)
    with pytest.raises(SignatureRejected):
        verify(header=header, envelope=None, keys=[KEY], request="x", now=NOW + 300.1)
