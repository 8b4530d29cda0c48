"""Requests of protocol v1: user payloads byte for byte, everything around them as documented."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.envelope import (
    EventInfo,
    RunInfo,
    StepsFragment,
    error_json,
    execute_request,
    introspect_request,
    seal,
)
from services.core.domain.signature import signature_header, verify_envelope

RUN = RunInfo(id="01J8RUN", attempt=0, started_at=1_791_626_400_000, source="event")
EVENT = EventInfo(id="01J8EVT", name="order.created", data='{"order_id":"o-1"}', ts=1_760_000_000_000)
PAYLOADS = [
    "null",
    "1.0",
    "1.00000000000000000001e5",
    "123456789012345678901234567890",
    '{"b":1,"a":{}}',
    '"\\u0000"',
    '"\\ud800"',
    '"\\/"',
    "[ 1 ,\t2 ]",
    '"é😀\u2028"',
]


def request(steps: StepsFragment | None = None, **changes: object) -> str:
    steps = steps or StepsFragment()
    fields: dict[str, object] = {
        "workflow": "process-order",
        "run": RUN,
        "event": EVENT,
        "steps_fragment": steps.steps,
        "order_fragment": steps.order,
        "ts": 1_700_000_000,
        **changes,
    }
    return execute_request(**fields)  # type: ignore[arg-type]


class TestExecute:
    def test_a_first_request_is_the_documented_one(self) -> None:
        assert json.loads(request()) == {
            "type": "execute",
            "protocol": "v1",
            "ts": 1_700_000_000,
            "workflow": "process-order",
            "run": {
                "id": "01J8RUN",
                "attempt": 0,
                "started_at": "2026-10-10T10:00:00.000Z",
                "source": "event",
                "replay": False,
                "parent_run_id": None,
                "test": False,
            },
            "event": {
                "id": "01J8EVT",
                "name": "order.created",
                "data": {"order_id": "o-1"},
                "ts": 1_760_000_000_000,
            },
            "steps": {},
            "step_order": [],
        }

    def test_a_replayed_child_of_a_test_event_says_so(self) -> None:
        run = RunInfo(id="r", attempt=3, started_at=1, source="replay", parent_run_id="p", test=True)
        sent = json.loads(request(run=run))["run"]
        assert sent == {
            "id": "r",
            "attempt": 3,
            "started_at": "1970-01-01T00:00:00.001Z",
            "source": "replay",
            "replay": True,
            "parent_run_id": "p",
            "test": True,
        }

    def test_optional_fields_are_left_out_or_sent(self) -> None:
        assert json.loads(request(max_ops=50, budget_ms=5000)).items() >= {"max_ops": 50, "budget_ms": 5000}.items()
        assert not {"max_ops", "budget_ms", "dry"} & json.loads(request()).keys()

    def test_steps_stand_in_their_order(self) -> None:
        steps = StepsFragment()
        steps.completed("reserve", '{"r":1}')
        steps.failed("charge", error_json("Error", "declined"))
        steps.completed("cool-off", "null")
        sent = json.loads(request(steps))
        assert sent["steps"] == {
            "reserve": {"status": "completed", "output": {"r": 1}},
            "charge": {"status": "failed", "error": {"name": "Error", "message": "declined"}},
            "cool-off": {"status": "completed", "output": None},
        }
        assert sent["step_order"] == ["reserve", "charge", "cool-off"]

    def test_payloads_are_sent_as_they_were_written(self) -> None:
        for payload in PAYLOADS:
            steps = StepsFragment()
            steps.completed("a", payload)
            event = EventInfo(id="e", name="n", data=payload, ts=0)
            text = request(steps, event=event)
            assert f'"a":{{"status":"completed","output":{payload}}}' in text
            assert f'"data":{payload},"ts":0' in text
            json.loads(text)


class TestStepsFragment:
    @given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(PAYLOADS))))
    def test_growing_it_is_the_same_as_building_it(self, steps: list[tuple[str, str]]) -> None:
        """Reading it between the steps, as every round does, changes nothing."""
        grown, built = StepsFragment(), StepsFragment()
        for step_id, output in steps:
            grown.completed(step_id, output)
            assert grown.size == len(grown.steps.encode())
            assert len(json.loads(f"[{grown.order}]")) == len(grown.ids)
            built.completed(step_id, output)
        assert (grown.steps, grown.order) == (built.steps, built.order)
        first_of_each = {step_id: json.loads(output) for step_id, output in reversed(steps)}
        assert {key: step["output"] for key, step in json.loads(f"{{{grown.steps}}}").items()} == first_of_each

    def test_a_step_that_is_there_stays_as_it_is(self) -> None:
        steps = StepsFragment()
        steps.completed("a", "1")
        steps.completed("a", "2")
        assert steps.steps == '"a":{"status":"completed","output":1}'
        assert steps.order == '"a"'


class TestSeal:
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def test_a_function_reads_the_signed_text_again(self, text: str) -> None:
        header = signature_header(["key"], 1_700_000_000, text)
        body = json.loads(seal(text, header))
        assert body == {"runr_workflow": "v1", "signature": header, "request": text}
        assert verify_envelope(body, header, ["key"], 1_700_000_000).accepted

    def test_introspect_is_the_documented_request(self) -> None:
        assert introspect_request(1_700_000_000) == '{"type":"introspect","protocol":"v1","ts":1700000000}'
