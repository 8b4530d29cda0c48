"""Whether code goes the way of a stored run, and the dry request it is asked with."""

from __future__ import annotations

import json

import pytest

from services.cli.check.divergence import diverges
from services.cli.check.stored_run import StoredRun, StoredStep, read_run
from services.cli.dry_run import Dry, read_dry
from services.core.domain.envelope import EventInfo, RunInfo
from services.core.domain.op import FunctionFault

DONE = StoredStep("reserve", "run", "completed", "1")
FAILED = StoredStep("charge", "run", "failed", None, '{"name":"Declined","message":"no"}')
ASLEEP = StoredStep("cool-off", "sleep", "sleeping")
NEXT = ("ship", "run")


def run(*steps: StoredStep) -> StoredRun:
    info = RunInfo(id="01J", attempt=0, started_at=0, source="api")
    return StoredRun(info, "order", "running", EventInfo(id="e", name="n", data="{}", ts=0), steps)


def dry(*called: str, next: tuple[str, str] | None = None, error: str | None = None) -> Dry:
    ends = "would_run" if next else "run_failed" if error else "run_completed"
    return Dry(tuple((step_id, "run") for step_id in called), ends, next, error)


@pytest.mark.parametrize(
    ("stored", "answer"),
    [
        (run(), dry(next=NEXT)),
        (run(), dry()),
        (run(DONE), dry("reserve", next=NEXT)),
        (run(DONE), dry("reserve")),
        (run(DONE, FAILED), dry("charge", "reserve", next=NEXT)),
        # The failure of a step that the code does not catch, as the code of now would not.
        (run(DONE, FAILED), dry("reserve", "charge", error="Declined: no")),
        (run(DONE, ASLEEP), dry("reserve", next=("cool-off", "sleep"))),
        (run(StoredStep("a", "run", "retrying")), dry(next=("a", "run"))),
        (run(StoredStep("a", "invoke", "waiting"), StoredStep("b", "run", "retrying")), dry(next=("b", "run"))),
    ],
)
def test_code_that_goes_the_same_way(stored: StoredRun, answer: Dry) -> None:
    assert diverges(stored, answer) is None


@pytest.mark.parametrize(
    ("stored", "answer", "kind", "step", "message"),
    [
        (
            run(StoredStep("reserve", "sleep", "completed", "null")),
            dry("reserve", next=NEXT),
            "kind",
            "reserve",
            "it is a sleep in the history, and a run in the code",
        ),
        (
            run(DONE, ASLEEP),
            dry("reserve", next=("cool-off", "invoke")),
            "kind",
            "cool-off",
            "it is a sleep in the history, and an invoke in the code",
        ),
        (
            run(DONE, FAILED),
            dry("reserve", next=NEXT),
            "skipped",
            "charge",
            "it has a result, and the code comes to 'ship', a run, without calling it",
        ),
        (run(DONE), dry(), "skipped", "reserve", "it has a result, and the code ends without calling it"),
        (
            run(DONE, ASLEEP),
            dry("reserve", next=NEXT),
            "open",
            "cool-off",
            "the run is in it, and the code comes to 'ship', a run, instead",
        ),
        (run(DONE, ASLEEP), dry("reserve"), "open", "cool-off", "the run is in it, and the code ends instead"),
        (
            run(DONE),
            dry("reserve", error="KeyError: 'x'"),
            "fails",
            "reserve",
            "the code fails after 'reserve' with KeyError: 'x'",
        ),
        (run(), dry(error="KeyError: 'x'"), "fails", None, "the code fails with KeyError: 'x'"),
    ],
)
def test_the_first_difference_is_named(
    stored: StoredRun, answer: Dry, kind: str, step: str | None, message: str
) -> None:
    found = diverges(stored, answer)
    assert found is not None
    assert (found.kind, found.step, found.message) == (kind, step, message)


def test_payloads_are_asked_with_byte_for_byte() -> None:
    payload = '{ "big": 12345678901234567890, "f": 1.0, "s": "\\ud800\\u0000", "a": 1e2 }'
    error = '{"name":"E","message":"é","stack":null}'
    text = (
        '{"id":"01J","workflow":"order","status":"waiting","source":"replay","test":true,"attempt":2,'
        '"parent_run_id":null,"started_at":null,"created_at":"2026-10-10T10:00:00.250Z",'
        f'"event":{{"id":"e-1","name":"order.created","data":{payload},"ts":17}},"output":null,"steps":['
        f'{{"id":"a","kind":"run","status":"completed","output":{payload},"error":null}},'
        f'{{"id":"b","kind":"run","status":"failed","output":null,"error":{error}}},'
        '{"id":"c","kind":"sleep","status":"sleeping","output":null,"error":null}]}'
    )
    request = read_run(text).dry_request(1_700_000_000)
    assert f'"data":{payload},"ts":17' in request
    assert f'"a":{{"status":"completed","output":{payload}}}' in request
    asked = json.loads(request)
    assert asked["dry"] is True
    assert asked["steps"]["b"] == {"status": "failed", "error": {"name": "E", "message": "é"}}
    assert (asked["step_order"], "c" in asked["steps"]) == (["a", "b"], False)
    assert asked["run"] == {
        "id": "01J",
        "attempt": 2,
        "started_at": "2026-10-10T10:00:00.250Z",
        "source": "replay",
        "replay": True,
        "parent_run_id": None,
        "test": True,
    }


def test_a_dry_answer_is_read_as_it_is_and_wrapped() -> None:
    plain = {
        "runr_workflow": "v1",
        "ops": [{"op": "would_run", "id": "b", "name": "b", "kind": "sleep"}],
        "called": [{"id": "a", "kind": "run"}],
    }
    expected = Dry((("a", "run"),), "would_run", ("b", "sleep"))
    for body in (plain, {"statusCode": 200, "body": plain}, {"statusCode": 200, "body": json.dumps(plain)}):
        assert read_dry(200, json.dumps(body).encode()) == expected
    failed = {**plain, "ops": [{"op": "run_failed", "error": {"name": "E", "message": "m"}}]}
    assert read_dry(200, json.dumps(failed).encode()).error == "E: m"


@pytest.mark.parametrize(
    ("status", "body", "name"),
    [
        (400, b"no", "FunctionHttpError"),
        (401, b"no", "SignatureRejected"),
        (200, b"<html>", "ProtocolError"),
        (200, b"[]", "ProtocolError"),
        (200, b'{"statusCode":503,"body":"away"}', "FunctionHttpError"),
        (200, b'{"statusCode":"200","body":"away"}', "ProtocolError"),
        # An SDK that has executed a step although it was asked dry.
        (
            200,
            b'{"runr_workflow":"v1","ops":[{"op":"step_completed","id":"a"}],"called":[]}',
            "ProtocolError",
        ),
        (200, b'{"runr_workflow":"v1","ops":[{"op":"run_completed"}]}', "ProtocolError"),
        (200, b'{"runr_workflow":"v1","ops":[],"called":[]}', "ProtocolError"),
        (200, b'{"runr_workflow":"v1","ops":[{"op":"would_run","id":"a","kind":"?"}],"called":[]}', "ProtocolError"),
        (200, b'{"runr_workflow":"v1","ops":[{"op":"run_completed"}],"called":[1]}', "ProtocolError"),
    ],
)
def test_what_is_no_dry_answer_has_a_name(status: int, body: bytes, name: str) -> None:
    with pytest.raises(FunctionFault) as told:
        read_dry(status, body)
    assert told.value.name == name
