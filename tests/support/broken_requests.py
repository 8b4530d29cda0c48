"""Functions that break one rule each about signatures, envelopes and connections (protocol sections 1, 2 and 6)."""

from __future__ import annotations

import hmac
import json
import re
import time
from contextlib import suppress
from typing import Any

from tests.support.bare_function import bare


class Unverified(bare.Function):  # type: ignore[misc]
    """No signature is looked at."""

    def verify(self, signature: str | None, request: str) -> None:
        return


class WrittenAgain(bare.Function):  # type: ignore[misc]
    """The signature is held against the request as our own encoder writes it."""

    def verify(self, signature: str | None, request: str) -> None:
        with suppress(ValueError, RecursionError):
            request = json.dumps(json.loads(request), separators=(",", ":"), ensure_ascii=False)
        super().verify(signature, request)


class NoWindow(bare.Function):  # type: ignore[misc]
    """The time of a signature does not matter."""

    def verify(self, signature: str | None, request: str) -> None:
        match = re.fullmatch(r"t=([0-9]{1,15})((?:,v1=[0-9a-f]{64})+)", signature or "")
        if match is None:
            super().verify(signature, request)
            return
        held = [hmac.digest(key.encode(), f"{match[1]}.{request}".encode(), "sha256").hex() for key in self.keys]
        if not any(v1 in match[2] for v1 in held):
            raise bare.Refused(401, "the signature does not match")


class ShortWindow(bare.Function):  # type: ignore[misc]
    """A signature is good for a minute."""

    def verify(self, signature: str | None, request: str) -> None:
        super().verify(signature, request)
        match = re.search(r"t=([0-9]+)", signature or "")
        if match is not None and abs(time.time() - int(match[1])) > 60:
            raise bare.Refused(401, "the signature is too old")


class FirstSignature(bare.Function):  # type: ignore[misc]
    """Of several signatures the first is looked at."""

    def verify(self, signature: str | None, request: str) -> None:
        match = re.match(r"t=[0-9]+,v1=[0-9a-f]+", signature or "")
        super().verify(signature if match is None else match[0], request)


class OneKey(bare.Function):  # type: ignore[misc]
    """The fallback key is not used."""

    def __init__(self, workflows: Any, keys: list[str]) -> None:
        super().__init__(workflows, keys[:1])


class HeaderWins(bare.Function):  # type: ignore[misc]
    """Where there is a header, the signature inside is not looked at."""

    def verified(self, body: bytes, header: str | None) -> str:
        if header is not None:
            with suppress(ValueError, RecursionError, AttributeError):
                envelope = json.loads(body)
                if isinstance(envelope.get("signature"), str):
                    body = json.dumps({**envelope, "signature": header}).encode()
        made: str = super().verified(body, header)
        return made


class HeaderOnly(bare.Function):  # type: ignore[misc]
    """The signature inside the envelope is not used."""

    def verified(self, body: bytes, header: str | None) -> str:
        if header is None and b'"runr_workflow"' in body and b'"signature":5' not in body:
            raise bare.Refused(401, "no header")
        made: str = super().verified(body, header)
        return made


class Strict(bare.Function):  # type: ignore[misc]
    """Fields that are not known are refused."""

    def dispatch(self, request: dict[str, Any]) -> dict[str, Any]:
        known = {"type", "protocol", "ts", "workflow", "run", "event", "steps", "step_order"}
        if not request.keys() <= known:
            raise bare.Refused(400, "a field that is not known")
        made: dict[str, Any] = super().dispatch(request)
        return made


class TextErrors(bare.Function):  # type: ignore[misc]
    """What is refused is told in plain text."""

    def answer(self, body: bytes, header: str | None) -> tuple[int, bytes]:
        status, text = super().answer(body, header)
        return (status, text) if status == 200 else (status, b"no")


class NotFound(bare.Function):  # type: ignore[misc]
    """A workflow that is not served is 404."""

    def dispatch(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request.get("workflow")
        if request.get("type") == "execute" and isinstance(name, str) and name not in self.workflows:
            raise bare.Refused(404, f"{name} is not here")
        made: dict[str, Any] = super().dispatch(request)
        return made


class BadDefinitions(bare.Function):  # type: ignore[misc]
    """A definition has a timeout that is none."""

    def dispatch(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = super().dispatch(request)
        for workflow in answer.get("workflows", []):
            workflow["timeout"] = "soon"
        return {**answer}


class Crashes(bare.Function):  # type: ignore[misc]
    """What cannot be decoded is an error of the server."""

    def answer(self, body: bytes, header: str | None) -> tuple[int, bytes]:
        try:
            json.loads(json.loads(body)["request"])
        except Exception:
            return 500, b'{"error":"internal"}'
        made: tuple[int, bytes] = super().answer(body, header)
        return made


class Wrapped(bare.Function):  # type: ignore[misc]
    """No fault: answers as a runtime leaves them that does not unwrap what its handler returns."""

    def answer(self, body: bytes, header: str | None) -> tuple[int, bytes]:
        status, text = super().answer(body, header)
        inner = text.decode() if status == 200 else json.loads(text)
        return 200, json.dumps({"statusCode": status, "headers": {}, "body": inner}).encode()


def other_ids(function: Any) -> type[Any]:
    """Answers carry an id that is always the same."""

    class Handler(bare.handler(function)):  # type: ignore[misc]
        def send_header(self, keyword: str, value: str) -> None:
            super().send_header(keyword, "0" * 32 if keyword == "X-RunR-Request-Id" else value)

    return Handler


def no_ids_for_refusals(function: Any) -> type[Any]:
    """Only a 200 carries the id of its request."""

    class Handler(bare.handler(function)):  # type: ignore[misc]
        def send_response(self, code: int, message: str | None = None) -> None:
            self.code = code
            super().send_response(code, message)

        def send_header(self, keyword: str, value: str) -> None:
            if keyword != "X-RunR-Request-Id" or self.code == 200:
                super().send_header(keyword, value)

    return Handler


def one_read(function: Any) -> type[Any]:
    """A body is what comes with the first read."""

    class Handler(bare.handler(function)):  # type: ignore[misc]
        def do_POST(self) -> None:
            body = self.rfile.read1(int(self.headers["Content-Length"]))
            self._send(*function.answer(body, self.headers.get("X-RunR-Signature")), last=True)

    return Handler


def case_matters(function: Any) -> type[Any]:
    """Header names are compared with their capitals."""

    class Handler(bare.handler(function)):  # type: ignore[misc]
        def do_POST(self) -> None:
            named = dict(self.headers.items())
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(*function.answer(body, named.get("X-RunR-Signature")))

    return Handler
