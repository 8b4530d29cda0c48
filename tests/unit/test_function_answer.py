"""Answers of functions: what the ops of protocol section 3 are read as, alone, together, wrapped, and introspection."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.core.domain.function_answer import SdkInfo, parse_answer, parse_introspection, parse_op
from services.core.domain.op import (
    BadStep,
    EventToSend,
    FunctionFault,
    Invoke,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from tests.support.function_answers import LIMITS, answer, fault, read

DAY_MS = 86_400_000


class TestOps:
    def test_step_completed(self) -> None:
        op = {"op": "step_completed", "id": "add:1", "output": {"r": 1}, "duration_ms": 12, "input": [1, {"a": 2}]}
        assert read(op) == StepCompleted(
            id="add:1", name="add", output='{"r": 1}', duration_ms=12, input='[1, {"a": 2}]'
        )

    def test_output_defaults_to_null(self) -> None:
        assert read({"op": "step_completed", "id": "a"}) == StepCompleted(id="a", name="a", output="null")
        assert read({"op": "run_completed"}) == RunCompleted(output="null")

    def test_step_failed(self) -> None:
        op = {
            "op": "step_failed",
            "id": "charge",
            "name": "Charge the card",
            "error": {"name": "CardError", "message": "declined", "stack": "at pay()", "more": 1},
            "retry_after": "1h30m",
            "max_attempts": 7,
        }
        assert read(op) == StepFailed(
            id="charge",
            name="Charge the card",
            error=OpError("CardError", "declined", "at pay()"),
            retry_after_ms=5_400_000,
            max_attempts=7,
        )

    def test_run_failed(self) -> None:
        op = {"op": "run_failed", "error": "boom", "non_retriable": True, "retry_after": "2026-10-10T10:00:00Z"}
        assert read(op) == RunFailed(error=OpError("Error", "boom"), non_retriable=True, retry_at_ms=1_791_626_400_000)

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ("text", OpError("Error", "text")),
            ({"message": "m"}, OpError("Error", "m")),
            ({"name": "  ", "message": None}, OpError("Error", "")),
            ({"name": "E", "message": {"code": 1}}, OpError("E", '{"code": 1}')),
            ({"name": 5, "message": "m", "stack": ["x"]}, OpError("Error", "m")),
            ({}, OpError("Error", "")),
        ],
    )
    def test_errors_in_every_shape(self, given: Any, error: OpError) -> None:
        parsed = read({"op": "run_failed", "error": given})
        assert isinstance(parsed, RunFailed)
        assert parsed.error == error

    @pytest.mark.parametrize(
        ("fields", "for_ms", "until_ms"),
        [
            ({"duration": "10m"}, 600_000, None),
            ({"duration": 0}, 0, None),
            ({"duration": 1.005}, 1005, None),
            ({"duration": "5s", "until": None}, 5000, None),
            ({"until": "2026-10-10T13:00:00+03:00"}, None, 1_791_626_400_000),
            ({"until": "1999-01-01T00:00:00Z"}, None, 915_148_800_000),
        ],
    )
    def test_sleep(self, fields: dict[str, Any], for_ms: int | None, until_ms: int | None) -> None:
        parsed = read({"op": "sleep", "id": "nap", **fields})
        assert parsed == Sleep(id="nap", name="nap", for_ms=for_ms, until_ms=until_ms)

    @pytest.mark.parametrize(
        ("asked_at", "asked_ms"),
        [
            (1_791_626_400_000, 1_791_626_400_000.0),
            (1_791_626_400_000.25, 1_791_626_400_000.25),
            *((wrong, None) for wrong in ("now", True, None, -1, 10**400, [0])),
        ],
    )
    def test_a_sleep_says_when_it_was_asked_for_or_nothing(self, asked_at: object, asked_ms: float | None) -> None:
        op = {"op": "sleep", "id": "nap", "duration": "5s"}
        expected = Sleep(id="nap", name="nap", for_ms=5000, asked_ms=asked_ms)
        body = json.dumps({"runr_workflow": "v1", "asked_at": asked_at, "ops": [op]}).encode()
        assert parse_answer(200, body, limits=LIMITS) == [expected]
        assert parse_op(json.dumps({**op, "asked_at": asked_at}).encode(), limits=LIMITS) == expected

    def test_wait_for_event(self) -> None:
        op = {"op": "wait_for_event", "id": "w", "event": "order.shipped", "timeout": "3d", "lookback": "1h"}
        assert read(op) == WaitForEvent(
            id="w", name="w", event="order.shipped", timeout_ms=3 * DAY_MS, lookback_ms=3_600_000
        )

    def test_match_and_if_must_both_hold(self) -> None:
        op = {
            "op": "wait_for_event",
            "id": "w",
            "event": "runr/run.completed",
            "match": "data.order_id",
            "if": "async.data.total > 5 || async.data.vip",
            "lookback": "run",
        }
        parsed = read(op)
        assert isinstance(parsed, WaitForEvent)
        assert parsed.condition == (
            "event.data.order_id == async.data.order_id && (async.data.total > 5 || async.data.vip)"
        )
        assert parsed.lookback_ms == -1

    def test_invoke(self) -> None:
        op = '{"op":"invoke","id":"i","workflow":"ship","data":{"n":1.0},"timeout":60}'
        assert read(op) == Invoke(id="i", name="i", workflow="ship", data='{"n":1.0}', timeout_ms=60_000)
        assert read({"op": "invoke", "id": "i", "workflow": "ship"}) == Invoke(id="i", name="i", workflow="ship")

    def test_send_event(self) -> None:
        op = '{"op":"send_event","id":"s","events":[{"name":"a","data":{"n":1.0}},{"name":"b","id":"x","ts":5,"q":1}]}'
        assert read(op) == SendEvent(
            id="s", name="s", events=(EventToSend(name="a", data='{"n":1.0}'), EventToSend(name="b", id="x", ts=5))
        )

    def test_unknown_fields_and_nulls_are_nothing(self) -> None:
        op = {"op": "sleep", "id": "n", "duration": "1s", "duration_ms": None, "name": None, "new_field": [1]}
        assert read(op) == Sleep(id="n", name="n", for_ms=1000)

    @pytest.mark.parametrize(
        "output",
        ["1.0", "12345678901234567890123", '{"b":1,"a":[]}', '"\\u0000\\ud800"', '"\\/"', "[ 1 , 2 ]", '"é😀"', "{}"],
    )
    def test_outputs_keep_every_byte(self, output: str) -> None:
        parsed = read(f'{{"op":"step_completed","id":"a","output":  {output}  }}')
        assert isinstance(parsed, StepCompleted)
        assert parsed.output == output


class TestStatus:
    @pytest.mark.parametrize("status", [100, 201, 204, 302, 400, 413, 404, 500, 503])
    def test_anything_but_200_is_a_failure_with_its_body(self, status: int) -> None:
        raised = fault(b"upstream said no", status=status)
        assert raised.name == "FunctionHttpError"
        assert str(status) in raised.message
        assert "upstream said no" in raised.message

    def test_the_first_kib_of_the_body_is_kept(self) -> None:
        raised = fault(b"\xff\x00" + b"x" * 5000, status=500)
        assert raised.message == "HTTP 500: \ufffd\ufffd" + "x" * 1022

    def test_401_is_a_rejected_signature(self) -> None:
        assert fault(b'{"error":"stale"}', status=401).name == "SignatureRejected"


class TestWrapping:
    OK = '{"runr_workflow":"v1","ops":[{"op":"run_completed","output":1.0}]}'

    @pytest.mark.parametrize("body", [OK, json.dumps(OK)])
    def test_an_unwrapped_body_may_be_a_text_or_an_object(self, body: str) -> None:
        wrapped = f'{{"statusCode":200,"headers":{{}},"body":{body}}}'.encode()
        assert parse_answer(200, wrapped, limits=LIMITS) == [RunCompleted(output="1.0")]

    @pytest.mark.parametrize(
        ("wrapped", "name"),
        [
            ({"statusCode": 500, "body": "boom"}, "FunctionHttpError"),
            ({"statusCode": 401, "body": ""}, "SignatureRejected"),
            ({"statusCode": 204}, "FunctionHttpError"),
            ({"statusCode": 200}, "ProtocolError"),
            ({"statusCode": 200, "body": "<html>"}, "ProtocolError"),
            ({"statusCode": 200, "body": None}, "ProtocolError"),
            ({"statusCode": "200", "body": OK}, "ProtocolError"),
            ({"statusCode": 200, "body": {"statusCode": 200, "body": OK}}, "ProtocolError"),
            ({"statusCode": 200, "body": OK[:-2] + '"\ud800"]}'}, "ProtocolError"),
        ],
    )
    def test_its_status_is_judged_as_the_status(self, wrapped: dict[str, Any], name: str) -> None:
        assert fault(json.dumps(wrapped).encode()).name == name

    def test_a_failure_shows_the_inner_body(self) -> None:
        assert "boom" in fault(b'{"statusCode":500,"body":"boom"}').message


class TestSeveralOps:
    DONE = '{"op":"step_completed","id":"%s"}'

    def test_completed_steps_and_one_other_op_last(self) -> None:
        body = answer(self.DONE % "a", self.DONE % "b", '{"op":"sleep","id":"c","duration":1}')
        ids = [getattr(op, "id", None) for op in parse_answer(200, body, limits=LIMITS, max_ops=3)]
        assert ids == ["a", "b", "c"]

    def test_nothing_follows_another_op(self) -> None:
        body = answer('{"op":"sleep","id":"c","duration":1}', self.DONE % "a")
        assert fault(body, max_ops=5).name == "ProtocolError"

    def test_more_than_were_allowed(self) -> None:
        assert fault(answer(*(self.DONE % number for number in range(4))), max_ops=3).name == "ProtocolError"

    def test_a_step_comes_once(self) -> None:
        assert "'a'" in fault(answer(self.DONE % "a", self.DONE % "a"), max_ops=5).message

    def test_nothing_after_a_step_that_failed_here_is_taken(self) -> None:
        """The function went on as if the step had completed; on replay it will see the failure."""
        big = '{"op":"step_completed","id":"b","output":"' + "x" * LIMITS.output_bytes + '"}'
        body = answer(self.DONE % "a", big, self.DONE % "c", '{"op":"run_completed"}')
        ops = parse_answer(200, body, limits=LIMITS, max_ops=9)
        assert [type(op) for op in ops] == [StepCompleted, BadStep]


class TestIntrospection:
    def test_definitions_sdk_and_capabilities(self) -> None:
        body = {
            "runr_workflow": "v1",
            "sdk": {"name": "my-sdk", "language": "go", "version": "1.0.0"},
            "workflows": [{"name": "a", "retries": 3}],
            "capabilities": ["dry", 5],
        }
        found = parse_introspection(200, json.dumps(body).encode())
        assert found.sdk == SdkInfo(name="my-sdk", language="go", version="1.0.0")
        assert found.workflows == [{"name": "a", "retries": 3}]
        assert found.capabilities == {"dry"}

    def test_only_the_definitions_are_required(self) -> None:
        found = parse_introspection(200, b'{"runr_workflow":"v1","sdk":"mine","workflows":[],"capabilities":{}}')
        assert (found.sdk, found.workflows, found.capabilities) == (SdkInfo(), [], frozenset())

    @pytest.mark.parametrize(
        ("status", "body", "name"),
        [
            (200, b'{"runr_workflow":"v1"}', "ProtocolError"),
            (200, b'{"runr_workflow":"v1","workflows":{}}', "ProtocolError"),
            (200, b"<html>", "ProtocolError"),
            (404, b"", "FunctionHttpError"),
            (401, b"", "SignatureRejected"),
        ],
    )
    def test_faults_are_those_of_an_answer(self, status: int, body: bytes, name: str) -> None:
        with pytest.raises(FunctionFault) as raised:
            parse_introspection(status, body)
        assert raised.value.name == name

    @pytest.mark.parametrize(
        ("error", "hinted"),
        [("the signature does not match", True), ("the signature is stale or from the future", False)],
    )
    @pytest.mark.parametrize("wrapped", [False, True])
    def test_a_refused_signature_says_what_it_mostly_is(self, error: str, hinted: bool, wrapped: bool) -> None:
        refusal = json.dumps({"error": error})
        body = json.dumps({"statusCode": 401, "body": refusal}) if wrapped else refusal
        with pytest.raises(FunctionFault) as raised:
            parse_introspection(200 if wrapped else 401, body.encode())
        assert raised.value.name == "SignatureRejected"
        assert error in raised.value.message
        assert ("another program answers on this port" in raised.value.message) is hinted
