"""`signatures.json`: what the engine signs, and what a function accepts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from runr_workflows import signature as sdk_signature
from runr_workflows.protocol import RequestRefused, open_envelope

from services.core.domain.signature import sign, verify, verify_envelope
from tests.vectors.check import Check, expect
from tests.vectors.prose import made_text


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine and the Python SDK."""
    for row in document.get("vectors", []):
        yield Check(row["id"], partial(_check_signed, sign, row))
        yield Check(f"{row['id']} [sdk python]", partial(_check_signed, sdk_signature.sign, row))
    for row in document.get("verify", []):
        yield Check(row["id"], partial(check_verify, row))
        yield Check(f"{row['id']} [sdk python]", partial(check_sdk_verify, row))
    for row in document.get("envelope", []):
        yield Check(row["id"], partial(_check_envelope, row))
        yield Check(f"{row['id']} [sdk python]", partial(_check_sdk_envelope, row))


def _check_signed(signing: Callable[[str, int, str], str], row: Any) -> None:
    expect(signing(row["key"], row["t"], _request(row)), row["v1"])


def check_verify(row: Any) -> None:
    """A header against a request, as the engine's own rule judges it."""
    verdict = verify(row["header"], row["keys"], _request(row), row["now"])
    expect(_said(verdict.status), str(row["expected"]))


def check_sdk_verify(row: Any) -> None:
    """The same in the Python SDK."""
    expect(
        _sdk_status(
            lambda: sdk_signature.verify(
                header=row["header"], envelope=None, keys=row["keys"], request=_request(row), now=row["now"]
            )
        ),
        str(row["expected"]),
    )


def _check_envelope(row: Any) -> None:
    expect(_said(verify_envelope(row["body"], row["header"], row["keys"], row["now"]).status), str(row["expected"]))


def _check_sdk_envelope(row: Any) -> None:
    body = json.dumps(row["body"]).encode()
    expect(_sdk_status(lambda: open_envelope(body, row["header"], row["keys"], row["now"])), str(row["expected"]))


def _sdk_status(call: Callable[[], object]) -> str:
    try:
        call()
    except RequestRefused as refusal:
        return _said(refusal.status)
    return "accept"


def _said(status: int) -> str:
    return "accept" if status == 200 else str(status)


def _request(row: Any) -> str:
    return made_text(row["request_make"]) if row.get("request_make") else str(row["request"])
