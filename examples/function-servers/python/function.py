"""A function server for RunR workflows in one file, with the standard library alone and no SDK.

It follows docs/protocol.md, whose sections the comments name, and serves an order and the workflows that
`runr conformance` drives:

    RUNR_WORKFLOW_SIGNING_KEY=… python function.py [PORT]
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_BYTES = 64 * 1024 * 1024
WINDOW_S = 300
LINGER_S = 2.0

Request = dict[str, Any]
Op = dict[str, Any]


class Refused(Exception):
    """A request that is answered with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Interrupt(BaseException):
    """Leaves the workflow once its op is known. Not an Exception: `except Exception` must let it pass (section 7)."""


class StepError(Exception):
    """A step has failed for good."""

    def __init__(self, step_id: str, name: str, message: str) -> None:
        super().__init__(message)
        self.step_id, self.name, self.message = step_id, name, message


class NonRetriable(Exception):
    """Fails a step or a run without further attempts."""


class RetryAfter(Exception):
    """Says when the next attempt is made: a duration or a time (section 5)."""

    def __init__(self, message: str, retry_after: Any) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Step:
    """The step calls of one invocation (section 7)."""

    def __init__(self, memo: dict[str, Any]) -> None:
        self.op: Op | None = None
        """The op that is answered: whatever comes after the first one is ignored."""
        self._memo = memo
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}
        self._executing: str | None = None

    def run(self, user_id: str, fn: Callable[..., Any], *args: Any) -> Any:
        """The result of a function: the stored one, else it is called now and its result is the op."""
        step_id = self._begin(user_id)
        if step_id in self._memo:
            return self.recall(step_id)
        self._executing = step_id
        try:
            op = {"op": "step_completed", "id": step_id, "name": user_id, "output": storable(fn(*args))}
        except Exception as error:
            op = {"op": "step_failed", "id": step_id, "name": user_id, **failure(error)}
        finally:
            self._executing = None
        return self.end(op)

    def ask(self, user_id: str, op: str, **fields: Any) -> Any:
        """The result of what the engine does: a sleep, wait_for_event, invoke or send_event with its own fields."""
        step_id = self._begin(user_id)
        if step_id in self._memo:
            return self.recall(step_id)
        return self.end({"op": op, "id": step_id, "name": user_id, **fields})

    def recall(self, step_id: str) -> Any:
        """The stored result of a step, or the error that it has failed with."""
        stored = self._memo[step_id]
        if stored["status"] == "completed":
            return stored.get("output")
        error = stored["error"]
        raise StepError(step_id, error.get("name", "Error"), error.get("message", ""))

    def end(self, op: Op) -> Any:
        """The first op is the one that is answered."""
        self.op = self.op or op
        raise Interrupt

    def finish(self, op: Op) -> None:
        """The workflow has returned or raised: that counts if no step came first."""
        self.op = self.op or op

    def next_id(self, user_id: str) -> str:
        """`add`, `add:1`, `add:2`; a number that is taken is passed over."""
        count = self._counts.get(user_id, 0)
        step_id = f"{user_id}:{count}" if count else user_id
        while step_id in self._used:
            count += 1
            step_id = f"{user_id}:{count}"
        self._used.add(step_id)
        self._counts[user_id] = count + 1
        return step_id

    def _begin(self, user_id: str) -> str:
        if self._executing is not None:
            error = NonRetriable(f"step {user_id!r} was called inside step {self._executing!r}")
            self.end({"op": "run_failed", **failure(error)})
        if self.op is not None:
            raise Interrupt
        check_id(user_id)
        return self.next_id(user_id)


def check_id(user_id: Any) -> None:
    """1 to 200 bytes of UTF-8, not blank, no NUL, no lone surrogate; neither trimmed nor normalized."""
    if not isinstance(user_id, str) or not user_id.strip() or "\0" in user_id:
        raise NonRetriable(f"{user_id!r} is no step id")
    try:
        size = len(user_id.encode())
    except UnicodeEncodeError:
        raise NonRetriable(f"{user_id!r} holds a lone surrogate") from None
    if size > 200:
        raise NonRetriable(f"a step id has at most 200 bytes, this one {size}")


def failure(error: Exception) -> Op:
    """The fields of a step_failed or run_failed (section 3)."""
    if isinstance(error, StepError):
        return {"error": {"name": error.name, "message": error.message}, "non_retriable": True}
    described = {"name": type(error).__name__, "message": str(error)}
    if isinstance(error, NonRetriable):
        return {"error": described, "non_retriable": True}
    if isinstance(error, RetryAfter):
        return {"error": described, "retry_after": error.retry_after}
    return {"error": described}


def encode(value: Any) -> bytes:
    """JSON in ASCII: lone surrogates stay escapes. NaN and infinity are refused."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def storable(value: Any) -> Any:
    """The value of a step or a workflow. What JSON cannot hold would be met again by the next attempt."""
    try:
        encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NonRetriable(f"JSON cannot hold the result: {error}") from None
    return value


def decode(text: str | bytes) -> Any:
    """The value of a JSON text that came from outside."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refused(400, "not JSON") from None


Workflow = Callable[[Request, Step], Any]


class Function:
    """Answers requests for some workflows."""

    step = Step

    def __init__(self, workflows: dict[str, Workflow], keys: list[str]) -> None:
        self.workflows = workflows
        self.keys = [key for key in keys if key]

    def answer(self, body: bytes, header: str | None) -> tuple[int, bytes]:
        """Status and body for the body of a request and its header X-RunR-Signature."""
        try:
            request = decode(self.verified(body, header))
            if not isinstance(request, dict):
                raise Refused(400, "the request is no object")
            return 200, encode(self.dispatch(request))
        except Refused as refusal:
            return refusal.status, encode({"error": str(refusal)})

    def verified(self, body: bytes, header: str | None) -> str:
        """The request in an envelope, in the order of section 6."""
        envelope = decode(body)
        if not isinstance(envelope, dict) or envelope.get("runr_workflow") != "v1":
            raise Refused(400, "not an envelope of v1")
        request, inner = envelope.get("request"), envelope.get("signature")
        if not isinstance(request, str) or not isinstance(inner, str | None):
            raise Refused(400, "request is a string, signature a string or null")
        if not self.keys:
            raise Refused(500, "RUNR_WORKFLOW_SIGNING_KEY is not set")
        if header is not None and inner is not None and header != inner:
            raise Refused(401, "the signatures of header and envelope differ")
        self.verify(header if header is not None else inner, request)
        return request

    def verify(self, signature: str | None, request: str) -> None:
        """Raise Refused unless the signature is of one of our keys, over exactly this request."""
        if signature is None:
            raise Refused(401, "not signed")
        parts = [part.lstrip(" ") if index else part for index, part in enumerate(signature.split(","))]
        pairs = [part.partition("=") for part in parts]
        times = [value for name, _, value in pairs if name == "t"]
        given = [value for name, _, value in pairs if name == "v1" and re.fullmatch("[0-9a-f]{64}", value)]
        if not all(equals for _, equals, _ in pairs) or len(times) != 1 or not re.fullmatch("[0-9]{1,15}", times[0]):
            raise Refused(401, "the signature is malformed")
        if abs(time.time() - int(times[0])) > WINDOW_S:
            raise Refused(401, "the signature is too old, or from the future")
        message = f"{times[0]}.{request}".encode(errors="surrogatepass")
        held = [hmac.digest(key.encode(), message, "sha256").hex() for key in self.keys]
        if not any([hmac.compare_digest(one, other) for one in held for other in given]):
            raise Refused(401, "the signature does not match")

    def dispatch(self, request: Request) -> dict[str, Any]:
        """The answer to a verified request (section 2)."""
        if request.get("type") == "introspect":
            sdk = {"name": "bare-python", "language": "python", "version": "1"}
            return {"runr_workflow": "v1", "sdk": sdk, "workflows": [{"name": name} for name in self.workflows]}
        if request.get("type") != "execute":
            raise Refused(400, f"the type {request.get('type')!r} is not known")
        for name, kind in (("workflow", str), ("run", dict), ("event", dict), ("steps", dict)):
            if not isinstance(request.get(name), kind):
                raise Refused(400, f"the request's {name} is missing, or of another type")
        workflow = self.workflows.get(request["workflow"])
        if workflow is None:
            raise Refused(400, f"the workflow {request['workflow']} is not served here")
        return {"runr_workflow": "v1", "ops": [self.invoke(workflow, request)]}

    def invoke(self, workflow: Workflow, request: Request) -> Op:
        """Run the workflow from the top, up to the first step without a result."""
        step = self.step(request["steps"])
        try:
            step.finish({"op": "run_completed", "output": storable(workflow(request, step))})
        except Interrupt:
            pass
        except Exception as error:
            step.finish({"op": "run_failed", **failure(error)})
        assert step.op is not None
        return step.op


def handler(function: Function) -> type[BaseHTTPRequestHandler]:
    """What `http.server` makes for each connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = (
            "HTTP/1.1"  # connections are kept, because answers repeat the id of their request (section 1)
        )

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length > MOST_BYTES:
                self._send(413, encode({"error": f"a body has at most {MOST_BYTES} bytes"}), last=True)
                self._drain()
                return
            self._send(*function.answer(self.rfile.read(length), self.headers.get("X-RunR-Signature")))

        def _send(self, status: int, body: bytes, *, last: bool = False) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if (request_id := self.headers.get("X-RunR-Request-Id")) is not None:
                self.send_header("X-RunR-Request-Id", request_id)
            if last:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def _drain(self) -> None:
            """Read what still comes: closed at once, the connection would be reset, and the answer lost."""
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER_S)
            with suppress(OSError):
                while self.connection.recv(65536):
                    pass

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    return Handler


def order(request: Request, step: Step) -> Any:
    """Reserve, wait for the shipping, and say what has become of the order."""
    data = request["event"]["data"]
    reserved = step.run("reserve", lambda: {"reservation": f"r-{data['order_id']}"})
    step.ask("cool-off", "sleep", duration="10m")
    fields = {"event": "order.shipped", "match": "data.order_id", "timeout": "3d"}
    shipped = step.ask("shipped", "wait_for_event", **fields)
    return {"status": "lost" if shipped is None else "done", **reserved}


class ConformanceError(Exception):
    """What the workflows of `runr conformance` raise (docs/how-to/conformance.md)."""


def replay(request: Request, step: Step) -> Any:
    data, executed = request["event"]["data"], []

    def body(name: str) -> Any:
        executed.append(name)
        time.sleep(data.get("pause_ms", 0) / 1000)
        return {"step": name, "executed": executed, "attempt": request["run"]["attempt"], "tag": data.get("tag")}

    first = step.run("first", body, "first")
    second = step.run("second", body, "second")
    return {"first": first, "second": second, "executed": executed}


def ids(request: Request, step: Step) -> Any:
    return [step.run(step_id, int, index) for index, step_id in enumerate(request["event"]["data"]["ids"])]


def errors(request: Request, step: Step) -> Any:
    data = request["event"]["data"]

    def fail() -> None:
        kinds = {"plain": ConformanceError(data["message"]), "non_retriable": NonRetriable(data["message"])}
        raise kinds.get(data["kind"]) or RetryAfter(data["message"], data["retry_after"])

    if data["where"] == "workflow":
        fail()
    try:
        return step.run("risky", fail)
    except StepError as error:
        if not data["catch"]:
            raise
        seen = {"name": error.name, "message": error.message, "step_id": error.step_id}
        step.run("compensate", lambda: seen)
        return seen


def kinds(request: Request, step: Step) -> Any:
    fields = dict(request["event"]["data"])
    kind = fields.pop("kind").replace("sleep_until", "sleep")
    try:
        return {"result": step.ask("it", kind, **fields)}
    except StepError as error:
        return {"error": {"name": error.name, "message": error.message, "step_id": error.step_id}}


def values(request: Request, step: Step) -> Any:
    data = request["event"]["data"]
    made = {"echo": data.get("value"), "nan": float("nan"), "infinity": float("inf"), "unserializable": object()}
    value = made.get(data["make"])
    return value if data.get("where") == "workflow" else {"value": step.run("value", lambda: value)}


def swallow(request: Request, step: Step) -> Any:
    then = request["event"]["data"]["then"]
    for step_id in ("first", "second") if then == "step" else ("first",):
        with suppress(BaseException):  # the rule is about code that catches all it can
            step.run(step_id, int)
    if then == "raise":
        raise ConformanceError("after the swallowing")
    return "swallowed"


def nested(request: Request, step: Step) -> Any:
    return step.run("outer", lambda: step.run("inner", int))


CONFORMANCE = {
    f"conformance-{workflow.__name__}": workflow for workflow in (replay, ids, errors, kinds, values, swallow, nested)
}


def main() -> None:
    """Serve until interrupted."""
    variable = "RUNR_WORKFLOW_SIGNING_KEY"
    function = Function(
        {"order": order, **CONFORMANCE}, [os.environ.get(variable + more, "") for more in ("", "_FALLBACK")]
    )
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    with ThreadingHTTPServer(("127.0.0.1", port), handler(function)) as server:
        print(f"serving on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
