"""Answers of protocol v1: from the status and body of a response to ops or definitions (protocol section 2).

Whatever a function sends, the outcome is a value of the protocol or a `FunctionFault` with a name; no input raises
anything else. Payloads come out as the text they were sent in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from services.core.domain.envelope import PROTOCOL
from services.core.domain.function_field import Members, refuse, value_of
from services.core.domain.function_op import AnswerLimits, read_op
from services.core.domain.json_fault import MAX_DEPTH, JsonError
from services.core.domain.json_text import JsonValue, Raw, Reader
from services.core.domain.op import BadStep, FunctionFault, Op, Sleep, StepOp
from services.core.domain.plain_op import read_plain
from services.core.domain.safe_text import cut, storable

_SHOWN_BYTES = 1024
_SDK_BYTES = 100
_LATEST_MS = 10**15
_MAX_DEPTH = MAX_DEPTH + 5  # the payload of an event of an op of the list of an answer

_REFUSED = "SignatureRejected"
_MOSTLY = "it has another key, or another program answers on this port"
_OF_CLOCKS = "stale or from the future"

_PLAIN_HEAD = f'{{"runr_workflow":"{PROTOCOL}","ops":['
_PLAIN_TAIL = "}]}"

_Answer = dict[str, Raw | list[Members]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkInfo:
    """Who answers: shown beside the definitions. Empty where the function does not say."""

    name: str = ""
    language: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Introspection:
    """An introspect answer. `workflows` is decoded but not validated: that is the definitions' own business."""

    sdk: SdkInfo
    workflows: list[JsonValue]
    capabilities: frozenset[str]


def parse_answer(status: int, body: bytes, *, limits: AnswerLimits, max_ops: int = 1) -> list[Op]:
    """The 1 to `max_ops` ops of an execute answer, in order.

    Nothing follows a `BadStep`: what the function did after it, it did without knowing that the step failed.
    Raises FunctionFault: FunctionHttpError, SignatureRejected or ProtocolError.
    """
    plain = _plain(body, _PLAIN_HEAD, _PLAIN_TAIL, limits) if status == 200 else None
    if plain is not None:
        return [plain]
    answer = _protocol_members(status, body)
    entries = answer.get("ops")
    if not isinstance(entries, list):
        refuse('the answer has no list "ops"')
    if not 1 <= len(entries) <= max_ops:
        refuse(f"the answer has {len(entries)} ops, {'1 is' if max_ops == 1 else f'1 to {max_ops} are'} allowed")
    ops: list[Op] = []
    seen: set[str] = set()
    for index, members in enumerate(entries):
        if index < len(entries) - 1 and ("op" not in members or members["op"].value != "step_completed"):
            refuse(f"ops[{index}]: only step_completed may be followed by another op")
        op = read_op(members, limits)
        ops.append(op)
        if isinstance(op, BadStep):
            break
        if isinstance(op, StepOp):
            if op.id in seen:
                refuse(f"ops[{index}]: the answer has two ops for the step {op.id!r}")
            seen.add(op.id)
    return [*ops[:-1], _asked(ops[-1], _value(answer, "asked_at"))]


def parse_op(text: bytes, *, limits: AnswerLimits) -> Op:
    """One op as a worker reports it over its stream. Raises FunctionFault ProtocolError."""
    plain = _plain(text, "", "}", limits)
    if plain is not None:
        return plain
    try:
        reader = Reader.of(text, max_depth=_MAX_DEPTH)
        members = reader.read(reader.raw_members)
    except JsonError as error:
        refuse(f"the op is not JSON of protocol {PROTOCOL}: {error}")
    return _asked(read_op(members, limits), value_of(members, "asked_at"))


def parse_introspection(status: int, body: bytes) -> Introspection:
    """The definitions a function says it serves. Raises FunctionFault as `parse_answer` does.

    Whoever asks for definitions sets something up: the fault of a refused signature also says what it mostly is.
    """
    try:
        answer = _protocol_members(status, body)
    except FunctionFault as fault:
        if fault.name != _REFUSED or _OF_CLOCKS in fault.message:
            raise
        raise FunctionFault(_REFUSED, f"{fault.message} ({_MOSTLY})") from None
    workflows = _value(answer, "workflows")
    if not isinstance(workflows, list):
        refuse('the answer has no list "workflows"')
    sdk, capabilities = _value(answer, "sdk"), _value(answer, "capabilities")
    listed = capabilities if isinstance(capabilities, list) else []
    return Introspection(
        sdk=_sdk_info(sdk) if isinstance(sdk, dict) else SdkInfo(),
        workflows=workflows,
        capabilities=frozenset(each for each in listed if isinstance(each, str)),
    )


def _asked(op: Op, at: object) -> Op:
    """A sleep with when it was asked for, in unix milliseconds. What cannot be that says nothing."""
    if not isinstance(op, Sleep) or not isinstance(at, int | float) or isinstance(at, bool) or not 0 <= at < _LATEST_MS:
        return op
    return msgspec.structs.replace(op, asked_ms=float(at))


def _plain(body: bytes, head: str, tail: str, limits: AnswerLimits) -> Op | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    if not text.startswith(head):
        return None
    return read_plain(text, len(head), tail, output_bytes=limits.output_bytes, step_id_bytes=limits.step_id_bytes)


def http_fault(status: int, body: bytes) -> FunctionFault:
    """The fault that a status other than 200 is: its number, and the first KiB of what came with it."""
    name = _REFUSED if status == 401 else "FunctionHttpError"
    hint = " (redirects are not followed)" if 300 <= status < 400 else ""
    shown = storable(body[:_SHOWN_BYTES].decode(errors="replace")).strip()
    return FunctionFault(name, f"HTTP {status}{hint}: {shown}" if shown else f"HTTP {status}{hint}")


def _protocol_members(status: int, body: bytes) -> _Answer:
    """The members of the answer proper, taken out of a wrapping that a runtime left around it."""
    if status != 200:
        raise http_fault(status, body)
    answer = _read(body)
    if "statusCode" in answer and "runr_workflow" not in answer:
        answer = _unwrapped(answer)
    version = _raw(answer, "runr_workflow")
    if version is None:
        refuse('the answer is not protocol v1: it has no "runr_workflow"')
    if version.value != PROTOCOL:
        refuse(f"the answer is of protocol {version.text[:40]}, this engine speaks {PROTOCOL}")
    return answer


def _unwrapped(wrapping: _Answer) -> _Answer:
    status, body = _raw(wrapping, "statusCode"), _raw(wrapping, "body")
    assert status is not None, "it is how a wrapping is known"
    if not isinstance(status.value, int) or isinstance(status.value, bool):
        refuse(f"statusCode {status.text[:40]} is not an HTTP status")
    text = "" if body is None else body.value if isinstance(body.value, str) else body.text
    if status.value != 200:
        raise http_fault(status.value, text[:_SHOWN_BYTES].encode(errors="replace"))
    return _read(text)


def _read(payload: bytes | str) -> _Answer:
    """The members of an object; those of each op where one of them is `ops`."""
    try:
        reader = Reader.of(payload, max_depth=_MAX_DEPTH)
        return reader.read(lambda: reader.members(lambda key: _ops(reader) if key == "ops" else reader.raw()))
    except JsonError as error:
        refuse(f"the answer is not JSON of protocol {PROTOCOL}: {error}")


def _ops(reader: Reader) -> list[Members]:
    return reader.elements(reader.raw_members)


def _raw(answer: _Answer, key: str) -> Raw | None:
    member = answer.get(key)
    return member if isinstance(member, Raw) else None


def _value(answer: _Answer, key: str) -> JsonValue:
    member = _raw(answer, key)
    return None if member is None else member.value


def _sdk_info(sdk: Mapping[str, JsonValue]) -> SdkInfo:
    return SdkInfo(
        name=_short(sdk.get("name")), language=_short(sdk.get("language")), version=_short(sdk.get("version"))
    )


def _short(value: JsonValue) -> str:
    return cut(storable(value), _SDK_BYTES) if isinstance(value, str) else ""
