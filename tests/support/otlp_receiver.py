"""A receiver of OTLP over HTTP inside the test process: what services export, as spans that a test can look at."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1 import trace_pb2

GUARD_S = 20.0


@dataclass(frozen=True, slots=True)
class Received:
    """A span as it was exported. Ids are hex, times unix nanoseconds; `error` is the text of a failed span."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    kind: str
    error: str | None
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]

    @property
    def run(self) -> Any:
        """The run it belongs to."""
        return self.attributes.get("runr.run_id")

    @property
    def traceparent(self) -> str:
        """What its children name as their parent."""
        return f"00-{self.trace_id}-{self.span_id}-01"


class OtlpReceiver:
    """Collects spans. `endpoint` is the value of OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._spans: list[Received] = []
        self._paths: set[str] = set()
        self._listening = threading.Event()
        self._listening.set()
        self._changed = threading.Condition()

    @property
    def spans(self) -> list[Received]:
        """All spans so far."""
        with self._changed:
            return list(self._spans)

    @property
    def paths(self) -> set[str]:
        """The paths that were posted to."""
        with self._changed:
            return set(self._paths)

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Meanwhile requests are read and get no answer; they get it at the end."""
        self._listening.clear()
        try:
            yield
        finally:
            self._listening.set()

    def until(self, holds: Callable[[Sequence[Received]], bool], *, timeout_s: float = GUARD_S) -> list[Received]:
        """Block until the spans are as the test wants them; all of them. Call it off the event loop."""
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self._spans), timeout_s), (
                f"not so within {timeout_s:g} s; the spans were:\n{tree(self._spans)}"
            )
            return list(self._spans)

    def take(self, path: str, body: bytes) -> None:
        """One export request."""
        self._listening.wait()
        request = ExportTraceServiceRequest.FromString(body)
        received = [
            _received(span, _values(resource.resource.attributes)["service.name"])
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        with self._changed:
            self._paths.add(path)
            self._spans += received
            self._changed.notify_all()


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            with suppress(OSError):  # the sender has given up
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def tree(spans: Sequence[Received]) -> str:
    """The spans as an indented text, in the order of their beginnings."""
    known = {span.span_id for span in spans}
    lines: list[str] = []

    def show(span: Received, depth: int) -> None:
        error = f" ERROR {span.error}" if span.error is not None else ""
        lines.append(f"{'  ' * depth}{span.name} ({span.service}){error}")
        for child in sorted(spans, key=lambda each: each.start_ns):
            if child.parent_id == span.span_id:
                show(child, depth + 1)

    for span in sorted(spans, key=lambda each: each.start_ns):
        if span.parent_id not in known:
            show(span, 0)
    return "\n".join(lines)


def _received(span: trace_pb2.Span, service: str) -> Received:
    failed = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    return Received(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        error=span.status.message if failed else None,
        attributes=_values(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    if value.HasField("array_value"):
        return [_value(each) for each in value.array_value.values]
    return getattr(value, value.WhichOneof("value"))
