"""`ssrf_urls.json`: which endpoints are called, with a stubbed resolver. No connection is ever opened."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from services.core.domain.endpoint import EndpointPolicy, check_address, check_url
from services.core.domain.errors import InvalidInput
from services.core.domain.function_answer import parse_answer
from services.core.domain.op import FunctionFault
from services.core.runtime.settings import WorkflowLimits
from tests.vectors.check import Check, Unhandled
from tests.vectors.prose import allowed, made_text


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine."""
    for row in document["cases"]:
        yield Check(row["id"], partial(_check_row, row))


def _check_row(row: Any) -> None:
    verdicts = allowed(row["expected"])
    if not verdicts:
        raise Unhandled(row["expected"])
    try:
        _call(row)
    except (InvalidInput, FunctionFault) as refusal:
        found, why = "error", str(refusal)
    else:
        found, why = "ok", "nothing refused it"
    assert found in verdicts, f"expected {row['expected']}: {why}"


def _call(row: Any) -> None:
    """Everything that stands between an endpoint and a packet to it, and the answer if the row has one."""
    url = row["url"]
    if isinstance(url, str) and url.startswith("make: "):
        url = made_text(url.removeprefix("make: "))
    policy = _policy(row.get("flag"))
    endpoint = check_url(url, policy)
    if endpoint.address is None and "dns" in row:
        _connect(row["dns"], policy)
        if "then" in row and "pooled" not in row.get("phase", ""):
            _connect(row["then"], policy)
    if "response" in row:
        parse_answer(row["response"]["status"], row["response"].get("body", "").encode(), limits=WorkflowLimits())


def _connect(addresses: list[str], policy: EndpointPolicy) -> None:
    if not addresses:
        raise InvalidInput("the name does not resolve")
    for address in addresses:
        check_address(address, policy)


def _policy(flag: str | None) -> EndpointPolicy:
    if flag is None:
        return EndpointPolicy()
    name, _, value = flag.partition("=")
    if name == "WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS":
        return EndpointPolicy(allow_private=value == "true")
    if name == "WORKFLOWS_ALLOWED_ENDPOINT_CIDRS":
        return EndpointPolicy.of(allow_private=False, allowed_cidrs=value.split(","))
    raise Unhandled(flag)
