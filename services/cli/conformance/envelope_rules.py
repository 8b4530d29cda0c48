"""Rules about envelopes, requests that are wrong, introspection and limits (protocol sections 1, 2 and 6)."""

from __future__ import annotations

import json
from typing import Any

from services.cli.conformance.execution import Execution
from services.cli.conformance.post import Post, absent
from services.cli.conformance.probe import Probe
from services.cli.conformance.rule import Broken, Rule
from services.core.domain.errors import InvalidInput
from services.core.domain.workflow import validate_definitions

ABSENT = "conformance-absent"
"""The name of a workflow that nobody serves."""

_DEEP = 20_000
_LARGE_BYTES = 4 * 1024 * 1024
_TOO_LARGE_BYTES = 64 * 1024 * 1024 + 1


async def _no_envelope(probe: Probe) -> None:
    bodies = {
        "no body": b"",
        "a body that is no JSON": b"hello",
        "a body that ends too early": b'{"runr_workflow":"v1","request":"',
        "a list": b"[]",
        "a text": b'"v1"',
        "null": b"null",
        "an empty object": b"{}",
        "a body that is not UTF-8": b'{"runr_workflow":"v1","request":"\xff\xfe","signature":null}',
        f"{_DEEP} lists in one another": b"[" * _DEEP + b"]" * _DEEP,
    }
    for about, body in bodies.items():
        post = probe.signer().post(about, probe.introspect_text())
        await probe.refused(Post(about, post.headers, body), 400)
    await _still_serves(probe)


async def _other_version(probe: Probe) -> None:
    for version in ("v2", "V1", 1, None):
        await probe.refused(
            _enveloped(probe, f"an envelope of the version {json.dumps(version)}", runr_workflow=version), 400
        )


async def _wrong_types(probe: Probe) -> None:
    for name, value in (
        ("request", {"type": "introspect"}),
        ("request", None),
        ("signature", 5),
        ("signature", ["v1"]),
    ):
        about = f"an envelope whose {name} is {json.dumps(value)}"
        await probe.refused(_enveloped(probe, about, **{name: value}), 400)


async def _unknown_fields(probe: Probe) -> None:
    await probe.accepted(_enveloped(probe, "an envelope with fields that nobody knows", future={"a": [1]}, x=None))
    more = ',"future":{"a":[1,{}]},"max_parties":7'
    await probe.accepted(probe.signer().post("a request with fields that nobody knows", probe.introspect_text(more)))


async def _bare(probe: Probe) -> None:
    post = probe.signer(in_header=absent).post("a request whose headers did not come through", probe.introspect_text())
    await probe.accepted(Post(post.about, {"Content-Type": "application/json"}, post.body))


async def _header_case(probe: Probe) -> None:
    post = probe.signer(in_envelope=absent).post("header names in other capitals", probe.introspect_text())
    swapped = {name.swapcase(): value for name, value in post.headers.items() if not name.startswith("X-RunR-Request")}
    await probe.accepted(Post(post.about, swapped, post.body))


async def _request_not_json(probe: Probe) -> None:
    for text in ("", "{", "[]", "null", '"introspect"', '{"type":"introspect"', "[" * _DEEP):
        await probe.refused(probe.signer().post(f"a signed request that is {text[:20] or 'empty'}", text), 400)
    await _still_serves(probe)


async def _unknown_type(probe: Probe) -> None:
    for given in ("dance", "Introspect", None, 5):
        text = json.dumps({"type": given, "protocol": "v1"})
        await probe.refused(probe.signer().post(f"a request of the type {json.dumps(given)}", text), 400)


async def _request_wrong_types(probe: Probe) -> None:
    whole = json.loads(Execution.of(next(iter(sorted(probe.served)), ABSENT)).text(probe.signer().unix_s))
    changes: dict[str, Any] = {"run": 5, "steps": [], "event": "x", "workflow": {}}
    for name, value in changes.items():
        text = json.dumps({**whole, name: value})
        await probe.refused(probe.signer().post(f"an execute request whose {name} is {json.dumps(value)}", text), 400)
    for name in changes:
        text = json.dumps({key: value for key, value in whole.items() if key != name})
        await probe.refused(probe.signer().post(f"an execute request without {name}", text), 400)


async def _not_served(probe: Probe) -> None:
    post = probe.execute_post(Execution.of(ABSENT), "an execute request for a workflow that is not served")
    await probe.refused(post, 400, naming=ABSENT)


async def _definitions(probe: Probe) -> None:
    post = probe.signer().post("an introspect request", probe.introspect_text())
    introspection = await probe.accepted(post)
    try:
        validate_definitions(introspection.workflows, strict_unknown=False)
    except InvalidInput as error:
        faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.errors) or error.message
        raise Broken(post.shown(), "definitions that a sync accepts", faults) from error


async def _large(probe: Probe) -> None:
    more = f',"ballast":"{"x" * _LARGE_BYTES}"'
    await probe.accepted(probe.signer().post(f"a request of {_LARGE_BYTES} bytes", probe.introspect_text(more)))


async def _too_large(probe: Probe) -> None:
    post = probe.signer().post("", probe.introspect_text())
    body = post.body[:-1] + b" " * (_TOO_LARGE_BYTES - len(post.body)) + b"}"
    await probe.refused(Post(f"a body of {len(body)} bytes", post.headers, body), 413)
    await _still_serves(probe)


async def _still_serves(probe: Probe) -> None:
    await probe.accepted(probe.signer().post("a good request after the bad ones", probe.introspect_text()))


def _enveloped(probe: Probe, about: str, **changes: Any) -> Post:
    """An envelope in which members are others than they should be."""

    def encode(request: str, signature: str | None) -> bytes:
        return json.dumps({"runr_workflow": "v1", "signature": signature, "request": request, **changes}).encode()

    return probe.signer(encode=encode).post(about, probe.introspect_text())


RULES = (
    Rule("introspect-definitions", 2, _definitions),
    Rule("envelope-none", 2, _no_envelope),
    Rule("envelope-other-version", 2, _other_version),
    Rule("envelope-wrong-types", 6, _wrong_types),
    Rule("envelope-unknown-fields", 4, _unknown_fields),
    Rule("headers-absent", 1, _bare),
    Rule("headers-in-any-case", 1, _header_case),
    Rule("request-not-json", 6, _request_not_json),
    Rule("request-unknown-type", 2, _unknown_type),
    Rule("request-wrong-types", 2, _request_wrong_types),
    Rule("workflow-not-served", 2, _not_served),
    Rule("request-large", 2, _large),
    Rule("request-too-large", 2, _too_large),
)
"""In the order in which they are checked."""
