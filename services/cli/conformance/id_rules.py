"""Rules about step ids (protocol section 7)."""

from __future__ import annotations

import json
from functools import partial

from services.cli.conformance.execution import Execution
from services.cli.conformance.probe import Probe
from services.cli.conformance.replay_rules import is_step, output_of
from services.cli.conformance.rule import Rule
from services.cli.conformance.workflows import IDS
from services.core.domain.op import RunCompleted, RunFailed

_LONGEST = 200


async def _sequence(probe: Probe, *, calls: list[str], ids: list[str]) -> None:
    """Step calls with the user's ids `calls` have `ids`, one invocation after another to the end."""
    run = Execution.of(IDS, ids=calls)
    for index, step_id in enumerate(ids):
        answered = await probe.execute(run, f"step calls with the ids {_json(calls)}, {index} of them memoized")
        answered.expect(is_step(answered, step_id), f"step_completed with the id {_json(step_id)}")
        # Not what the body returns: so the answer shows which result each call was given.
        run = run.completed(step_id, str(1000 + index))
    answered = await probe.execute(run, f"step calls with the ids {_json(calls)}, all of them memoized")
    expected = [1000 + index for index in range(len(ids))]
    answered.expect(
        isinstance(answered.op, RunCompleted) and output_of(answered) == expected,
        f"run_completed with the output {expected}: each call has its own result",
    )


async def _bad(probe: Probe) -> None:
    cases = {
        "empty": "",
        "blank": "  ",
        f"of {_LONGEST + 1} bytes": "a" * (_LONGEST + 1),
        f"of 101 characters and {_LONGEST + 2} bytes": "é" * 101,
        "with a NUL": "a\0b",
        "with a lone surrogate": "a\ud800",
    }
    for about, step_id in cases.items():
        answered = await probe.execute(Execution.of(IDS, ids=[step_id]), f"a step call with an id that is {about}")
        answered.expect(
            isinstance(answered.op, RunFailed) and answered.op.non_retriable,
            "run_failed that is non_retriable: the id is refused before anything runs",
        )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


_SEQUENCES = (
    ("step-id-repeats", ["add", "b", "add", "b", "add"], ["add", "b", "add:1", "b:1", "add:2"]),
    ("step-id-taken-before", ["add:1", "add", "add"], ["add:1", "add", "add:2"]),
    ("step-id-taken-after", ["a", "a", "a:1", "a:1"], ["a", "a:1", "a:1:1", "a:1:2"]),
    ("step-id-blanks-kept", [" a", "a", "a ", "a b"], [" a", "a", "a ", "a b"]),
    ("step-id-not-normalized", ["é", "e\u0301", "é", "😀"], ["é", "e\u0301", "é:1", "😀"]),
    (
        "step-id-any-name",
        ["__proto__", "constructor", "0", "__proto__"],
        ["__proto__", "constructor", "0", "__proto__:1"],
    ),
    ("step-id-special-characters", ['"\\\n\t/', "a,b", "<&>"], ['"\\\n\t/', "a,b", "<&>"]),
    ("step-id-longest", ["a" * _LONGEST, "a" * _LONGEST], ["a" * _LONGEST, "a" * _LONGEST + ":1"]),
)

RULES = (
    *(Rule(name, 7, partial(_sequence, calls=calls, ids=ids), IDS) for name, calls, ids in _SEQUENCES),
    Rule("step-id-refused", 7, _bad, IDS),
)
"""In the order in which they are checked."""
