"""Answers of functions: every rule of protocol sections 2 and 3, and that no bytes end in another kind of exception."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.function_answer import SdkInfo, parse_answer, parse_introspection
from services.core.domain.op import (
    BadStep,
    EventToSend,
    FunctionFault,
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)


@dataclass(frozen=True)
class Limits:
    output_bytes: int = 1 << 20
    event_bytes: int = 256 << 10
    step_id_bytes: int = 200


LIMITS = Limits()
FIELDS = (
    *("id", "name", "duration_ms", "input", "max_attempts", "output", "error", "non_retriable", "retry_after"),
    *("duration", "until", "event", "match", "if", "timeout", "lookback", "workflow", "data", "events"),
)
DAY_MS = 86_400_000


def answer(*ops: str) -> bytes:
    return f'{{"runr_workflow":"v1","ops":[{",".join(ops)}]}}'.encode()


def read(op: dict[str, Any] | str) -> Op:
    """The one op of an answer, given decoded or as its text."""
    text = op if isinstance(op, str) else json.dumps(op)
    (parsed,) = parse_answer(200, answer(text), limits=LIMITS)
    return parsed


def fault(body: bytes, *, status: int = 200, max_ops: int = 1) -> FunctionFault:
    with pytest.raises(FunctionFault) as raised:
        parse_answer(status, body, limits=LIMITS, max_ops=max_ops)
    raised.value.message.encode()
    assert "\0" not in raised.value.message
    return raised.value


def bad_step(op: dict[str, Any]) -> BadStep:
    """The step that an author's fault ends as; its message must name step and op."""
    parsed = read({"id": "s", **op})
    assert isinstance(parsed, BadStep)
    assert parsed.error.message.startswith(f'{op["op"]} "s": ')
    return parsed


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


class TestAuthorFaults:
    @pytest.mark.parametrize(
        ("op", "named"),
        [
            ({"op": "sleep", "duration": "5 parsecs"}, ["duration", "5 parsecs", "1h30m"]),
            ({"op": "sleep", "duration": True}, ["duration", "true"]),
            ({"op": "sleep", "duration": -1}, ["duration", "-1"]),
            ({"op": "sleep", "until": "tomorrow"}, ["until", "tomorrow", "ISO-8601"]),
            ({"op": "sleep"}, ["duration", "until", "none"]),
            ({"op": "sleep", "duration": 1, "until": "2026-10-10T10:00:00Z"}, ["duration", "until", "both"]),
            ({"op": "wait_for_event", "event": "no blanks"}, ["event", "no blanks", "letters"]),
            ({"op": "wait_for_event", "event": "runr/cron"}, ["event", "runr/cron"]),
            ({"op": "wait_for_event"}, ["event", "missing"]),
            ({"op": "wait_for_event", "event": "a", "if": "async.data.a =="}, ["if", "async.data.a =="]),
            ({"op": "wait_for_event", "event": "a", "if": 5}, ["if", "5"]),
            ({"op": "wait_for_event", "event": "a", "match": "data..a"}, ["match", "data..a"]),
            ({"op": "wait_for_event", "event": "a", "timeout": 0}, ["timeout", "0", "longer than zero"]),
            ({"op": "wait_for_event", "event": "a", "timeout": "1y"}, ["timeout", "1y"]),
            ({"op": "wait_for_event", "event": "a", "lookback": "ever"}, ["lookback", "ever"]),
            ({"op": "invoke", "workflow": "no blanks"}, ["workflow", "no blanks", "letters"]),
            ({"op": "invoke", "workflow": "sync"}, ["workflow", "sync"]),
            ({"op": "invoke"}, ["workflow", "missing"]),
            ({"op": "invoke", "workflow": "w", "data": []}, ["data", "[]", "object"]),
            ({"op": "invoke", "workflow": "w", "timeout": "0s"}, ["timeout", "0s"]),
            ({"op": "send_event"}, ["events", "missing"]),
            ({"op": "send_event", "events": {"name": "a"}}, ["events", "list"]),
            ({"op": "send_event", "events": []}, ["events", "0", "1 to 100"]),
            ({"op": "send_event", "events": [{"name": "a"}] * 101}, ["events", "101", "1 to 100"]),
            ({"op": "send_event", "events": [{"name": "a"}, "b"]}, ["events[1]"]),
            ({"op": "send_event", "events": [{"name": "a"}, {"name": "runr/x"}]}, ["events[1].name", "runr/"]),
            ({"op": "send_event", "events": [{"name": "a", "data": 5}]}, ["events[0].data"]),
            ({"op": "send_event", "events": [{"name": "a", "id": ""}]}, ["events[0].id"]),
            ({"op": "send_event", "events": [{"name": "a", "ts": "now"}]}, ["events[0].ts"]),
            ({"op": "send_event", "events": [{"name": "a", "ts": -1}]}, ["events[0].ts"]),
        ],
    )
    def test_a_bad_field_fails_the_step_and_names_it(self, op: dict[str, Any], named: list[str]) -> None:
        parsed = bad_step(op)
        assert parsed.error.name == "InvalidStep"
        for each in named:
            assert each in parsed.error.message
        assert parsed.kind == {"step_completed": "run"}.get(op["op"], op["op"])

    def test_an_output_over_the_limit_names_limit_and_size(self) -> None:
        fits = json.dumps("x" * (LIMITS.output_bytes - 2))
        assert isinstance(read(f'{{"op":"step_completed","id":"s","output":{fits}}}'), StepCompleted)
        parsed = bad_step({"op": "step_completed", "output": "x" * (LIMITS.output_bytes - 1)})
        assert parsed.error.name == "TooLarge"
        assert str(LIMITS.output_bytes) in parsed.error.message
        assert str(LIMITS.output_bytes + 1) in parsed.error.message
        assert parsed.kind == "run"

    def test_the_limit_counts_bytes_not_characters(self) -> None:
        text = '{"op":"step_completed","id":"s","output":"' + "é" * (LIMITS.output_bytes // 2) + '"}'
        assert isinstance(read(text), BadStep)

    def test_a_run_output_over_the_limit_fails_the_run(self) -> None:
        parsed = read({"op": "run_completed", "output": "x" * LIMITS.output_bytes})
        assert isinstance(parsed, RunFailed)
        assert parsed.error.name == "TooLarge"
        assert parsed.non_retriable

    @pytest.mark.parametrize("counter", ["", ":1", ":1:12"])
    def test_the_limit_of_an_id_is_for_what_stands_before_its_counter(self, counter: str) -> None:
        op = {"op": "step_completed", "id": "é" * 100 + counter}
        assert isinstance(read(op), StepCompleted)
        parsed = read({**op, "id": "x" + op["id"]})
        assert isinstance(parsed, BadStep)
        assert (parsed.id, parsed.error.name) == ("x" + op["id"], "TooLarge")
        assert "201 bytes before its counter, 200 are allowed" in parsed.error.message

    def test_big_data_of_invokes_and_events(self) -> None:
        big = {"x": "x" * LIMITS.output_bytes}
        assert bad_step({"op": "invoke", "workflow": "w", "data": big}).error.name == "TooLarge"
        event = {"name": "a", "data": {"x": "x" * LIMITS.event_bytes}}
        assert bad_step({"op": "send_event", "events": [event]}).error.name == "TooLarge"

    def test_data_nested_too_deep(self) -> None:
        for levels, kind in ((128, StepCompleted), (129, BadStep)):
            text = '{"op":"step_completed","id":"s","output":' + "[" * levels + "]" * levels + "}"
            assert isinstance(read(text), kind)


class TestWhatIsForgiven:
    @pytest.mark.parametrize("given", ["soon", True, -5, "", [], {"in": 5}, "2026-13-45T00:00:00Z", 1e18])
    def test_a_bad_retry_after_is_a_warning(self, given: Any) -> None:
        for op in ({"op": "step_failed", "id": "s"}, {"op": "run_failed"}):
            parsed = read({**op, "error": "e", "retry_after": given})
            assert isinstance(parsed, StepFailed | RunFailed)
            assert (parsed.retry_after_ms, parsed.retry_at_ms) == (None, None)
            assert parsed.warning is not None
            assert "retry_after" in parsed.warning

    @pytest.mark.parametrize("given", [0, -1, 22, 1.5, "3", True])
    def test_a_bad_max_attempts_is_a_warning(self, given: Any) -> None:
        parsed = read({"op": "step_failed", "id": "s", "error": "e", "max_attempts": given})
        assert isinstance(parsed, StepFailed)
        assert parsed.max_attempts is None
        assert parsed.warning is not None
        assert "max_attempts" in parsed.warning

    @pytest.mark.parametrize(
        ("given", "kept"), [(12, 12), (12.6, 13), (0, 0), (-1, None), ("12", None), (True, None), (1e300, None)]
    )
    def test_a_bad_duration_ms_is_dropped(self, given: Any, kept: int | None) -> None:
        parsed = read({"op": "step_completed", "id": "s", "duration_ms": given})
        assert isinstance(parsed, StepCompleted)
        assert parsed.duration_ms == kept

    def test_a_long_input_is_dropped(self) -> None:
        for length, kept in ((32 * 1024 - 2, True), (32 * 1024 - 1, False)):
            parsed = read({"op": "step_completed", "id": "s", "input": "x" * length})
            assert isinstance(parsed, StepCompleted)
            assert (parsed.input is not None) == kept

    def test_errors_are_cut_on_whole_characters(self) -> None:
        error = {"name": "é" * 200, "message": "€" * 8192, "stack": "😀" * 32768}
        parsed = read({"op": "run_failed", "error": error})
        assert isinstance(parsed, RunFailed)
        assert parsed.error == OpError("é" * 100, "€" * 2730, "😀" * 8192)

    def test_what_postgres_cannot_hold_is_replaced(self) -> None:
        op = '{"op":"step_failed","id":"s","name":"a\\u0000","error":{"name":"\\ud800","message":"x\\u0000\\udfffy"}}'
        parsed = read(op)
        assert isinstance(parsed, StepFailed)
        assert parsed.name == "a\ufffd"
        assert parsed.error == OpError("\ufffd", "x\ufffd\ufffdy")

    def test_the_message_about_a_bad_field_can_be_stored(self) -> None:
        parsed = read('{"op":"sleep","id":"s","duration":"\\ud800\\u0000"}')
        assert isinstance(parsed, BadStep)
        parsed.error.message.encode()
        assert "\0" not in parsed.error.message


class TestProtocolErrors:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"garbage",
            b"<!doctype html><html><body>Welcome</body></html>",
            b"null",
            b"[]",
            b'"v1"',
            b"\xff\xfe{}",
            b"\xef\xbb\xbf" + answer('{"op":"run_completed"}'),
            b"{}",
            b'{"ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":"v2","ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":1,"ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":null,"ops":[{"op":"run_completed"}]}',
            b'{"runr_workflow":"v1"}',
            b'{"runr_workflow":"v1","ops":null}',
            b'{"runr_workflow":"v1","ops":{"op":"run_completed"}}',
            b'{"runr_workflow":"v1","ops":["run_completed"]}',
            answer(),
            answer('{"op":"run_completed"}', '{"op":"run_completed"}'),
            answer("{}"),
            answer('{"op":"run_paused"}'),
            answer('{"op":null}'),
            answer('{"op":["sleep"]}'),
            answer('{"op":"would_run","id":"a","name":"a","kind":"run"}'),
            answer('{"op":"step_completed"}'),
            answer('{"op":"step_completed","id":""}'),
            answer('{"op":"step_completed","id":5}'),
            answer('{"op":"step_completed","id":"a\\u0000"}'),
            answer('{"op":"step_completed","id":"\\ud800"}'),
            answer('{"op":"step_completed","id":"' + "x" * 256 + '"}'),
            answer('{"op":"step_failed","id":"a"}'),
            answer('{"op":"step_failed","id":"a","error":5}'),
            answer('{"op":"run_failed","error":null}'),
            answer('{"op":"run_failed","error":"e","non_retriable":"yes"}'),
            answer('{"op":"run_completed","output":NaN}'),
            answer('{"op":"run_completed","output":-Infinity}'),
            answer('{"op":"run_completed","output":1e400}'),
            answer('{"op":"run_completed","output":' + "1" * 5000 + "}"),
            answer('{"op":"run_completed","output":01}'),
            answer("{\"op\":'run_completed'}"),
            answer('{"op":"run_completed","op":"run_failed"}'),
            answer('{"op":"run_completed","output":{"a":1,"a":2}}'),
            answer('{"op":"run_completed","output":"\x01"}'),
            answer('{"op":"run_completed","output":' + "[" * 200_000 + "]" * 200_000 + "}"),
            answer('{"op":"run_completed","output":' + '{"a":' * 200_000),
            answer('{"op":"run_completed"}') + b"x",
            answer('{"op":"run_completed"}')[:-1],
        ],
    )
    def test_an_answer_that_is_not_the_protocol(self, body: bytes) -> None:
        raised = fault(body)
        assert raised.name == "ProtocolError"
        assert raised.message

    def test_the_message_says_what_was_found(self) -> None:
        assert "v2" in fault(b'{"runr_workflow":"v2","ops":[]}').message
        assert "2 ops" in fault(answer('{"op":"run_completed"}', '{"op":"run_completed"}')).message
        assert "run_paused" in fault(answer('{"op":"run_paused"}')).message
        assert "ops[0]" in fault(answer('{"op":"run_completed","output":{"a":1,"a":2}}')).message

    @given(st.binary(max_size=200))
    def test_no_bytes_raise_anything_else(self, body: bytes) -> None:
        assert fault(body).name == "ProtocolError"

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["runr_workflow", "ops", "statusCode", "body", "error", "events", "name"]), inner
                )
            ),
            max_leaves=8,
        ),
        st.sampled_from(
            ["step_completed", "step_failed", "sleep", "wait_for_event", "invoke", "send_event", "run_failed"]
        ),
        st.sampled_from(FIELDS),
    )
    def test_any_value_in_any_field_is_an_op_or_a_fault(self, value: Any, op: str, field: str) -> None:
        text = json.dumps({"op": op, "id": "s", "error": "e", field: value})
        with suppress(FunctionFault):
            assert not isinstance(read(text), RunCompleted)
        with pytest.raises(FunctionFault):
            parse_answer(200, json.dumps(value).encode(), limits=LIMITS)


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
