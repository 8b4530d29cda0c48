"""The settings that more than one service reads; each default is written here and nowhere else.

A service nests what it needs in its own frozen dataclass and builds it with `config.load`:

    @dataclass(frozen=True)
    class IngestSettings:
        database: DatabaseSettings
        nats: NatsSettings
        limits: WorkflowLimits
"""

from __future__ import annotations

from dataclasses import dataclass

from services.core.runtime import parse
from services.core.runtime.config import setting
from services.core.runtime.parse import Address, Network

_KIB = 1 << 10
_MIB = 1 << 20
_DAY_MS = 86_400_000
_HUGE = 1 << 40
_OTLP_PROTOCOLS = ("http/protobuf", "http/json", "grpc")


@dataclass(frozen=True)
class DatabaseSettings:
    """Where the only truth is."""

    url: str = setting("DATABASE_URL", parse.url("postgresql", "postgres"), url=True)


@dataclass(frozen=True)
class NatsSettings:
    """Where hints travel. `prefix` keeps stacks apart that share a NATS server: it starts every stream and subject."""

    url: str = setting("NATS_URL", parse.url("nats", "tls"), url=True)
    prefix: str = setting("RUNR_NATS_PREFIX", parse.name, "runr")


@dataclass(frozen=True)
class TelemetrySettings:
    """Traces. They are off unless one of the first three is set; OTEL_* that are not here are the SDK's own."""

    endpoint: str = setting("OTEL_EXPORTER_OTLP_ENDPOINT", parse.url("http", "https"), "", url=True)
    traces_endpoint: str = setting("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", parse.url("http", "https"), "", url=True)
    traces_exporter: str = setting("OTEL_TRACES_EXPORTER", parse.choice("otlp", "console", "none"), "")
    protocol: str = setting("OTEL_EXPORTER_OTLP_PROTOCOL", parse.choice(*_OTLP_PROTOCOLS), "http/protobuf")
    traces_protocol: str = setting("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", parse.choice(*_OTLP_PROTOCOLS), "")
    service_name: str = setting("OTEL_SERVICE_NAME", str, "")
    sampler: str = setting(
        "OTEL_TRACES_SAMPLER",
        parse.choice(
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
            "always_on",
            "always_off",
            "traceidratio",
        ),
        "parentbased_always_on",
    )
    sample_ratio: float = setting("OTEL_TRACES_SAMPLER_ARG", parse.ratio, 1.0)
    sdk_disabled: bool = setting("OTEL_SDK_DISABLED", parse.boolean, False)

    def __post_init__(self) -> None:
        chosen = self.traces_protocol or self.protocol
        if chosen != "http/protobuf":
            variable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" if self.traces_protocol else "OTEL_EXPORTER_OTLP_PROTOCOL"
            raise ValueError(f"{variable} must be http/protobuf: spans are sent by nothing else (got {chosen!r})")


@dataclass(frozen=True)
class LogSettings:
    """Log lines: JSON unless a person watches."""

    level: str = setting("RUNR_LOG_LEVEL", parse.choice("debug", "info", "warning", "error"), "info")
    format: str = setting("RUNR_LOG_FORMAT", parse.choice("auto", "json", "text"), "auto")


@dataclass(frozen=True)
class ProcessSettings:
    """The life of a service process. `health` None means the service's own port in `HEALTH_PORTS`."""

    grace_s: float = setting("RUNR_GRACE", parse.seconds(0, 3_600), 30.0)
    drain_delay_s: float = setting("RUNR_DRAIN_DELAY", parse.seconds(0, 300), 0.0)
    health: Address | None = setting("RUNR_HEALTH_ADDR", parse.address, None)


@dataclass(frozen=True)
class PeerSettings:
    """Where the gRPC services are. The gateway calls them there; each listens there unless RUNR_GRPC_ADDR differs."""

    ingest: Address = setting("RUNR_INGEST_ADDR", parse.address, Address("127.0.0.1", 7101))
    scheduler: Address = setting("RUNR_SCHEDULER_ADDR", parse.address, Address("127.0.0.1", 7102))
    executor: Address = setting("RUNR_EXECUTOR_ADDR", parse.address, Address("127.0.0.1", 7103))


@dataclass(frozen=True)
class ListenSettings:
    """Where this process listens. `grpc` None means the service's own address in `PeerSettings`."""

    http: Address = setting("RUNR_HTTP_ADDR", parse.address, Address("127.0.0.1", 8080))
    grpc: Address | None = setting("RUNR_GRPC_ADDR", parse.address, None)


@dataclass(frozen=True)
class PublicSettings:
    """How the API is seen from outside."""

    api_url: str = setting("WORKFLOWS_PUBLIC_API_URL", parse.url("http", "https"), "")


@dataclass(frozen=True)
class McpSettings:
    """From which web pages agents may ask for tools."""

    origins: tuple[str, ...] = setting("RUNR_MCP_ORIGINS", parse.origins, ())


@dataclass(frozen=True)
class RpcSecuritySettings:
    """How gRPC between the services is protected (engine section 10): files of PEM for mutual TLS.

    With none of them only loopback is served, unless `plaintext` says that the network itself is trusted, as in a mesh.
    """

    certificate: str = setting("RUNR_GRPC_TLS_CERT", parse.file, "")
    key: str = setting("RUNR_GRPC_TLS_KEY", parse.file, "")
    authority: str = setting("RUNR_GRPC_TLS_CA", parse.file, "")
    plaintext: bool = setting("RUNR_GRPC_PLAINTEXT", parse.boolean, False)

    def __post_init__(self) -> None:
        given = [bool(self.certificate), bool(self.key), bool(self.authority)]
        if any(given) and not all(given):
            raise ValueError("RUNR_GRPC_TLS_CERT, RUNR_GRPC_TLS_KEY and RUNR_GRPC_TLS_CA must be set together")
        if all(given) and self.plaintext:
            raise ValueError("RUNR_GRPC_PLAINTEXT must be false when RUNR_GRPC_TLS_CERT is set")


@dataclass(frozen=True)
class EncryptionSettings:
    """The key that encrypts signing keys at rest (engine section 10): 32 bytes, AES-256-GCM. `former` ones still open
    what they have sealed.
    """

    key: bytes = setting("RUNR_ENCRYPTION_KEY", parse.key, secret=True)
    former: tuple[bytes, ...] = setting("RUNR_FORMER_ENCRYPTION_KEYS", parse.keys, (), secret=True)


@dataclass(frozen=True)
class AccessSettings:
    """`bootstrap_token` is a token with all permissions in the default tenant: how a fresh stack is entered."""

    bootstrap_token: str = setting("RUNR_BOOTSTRAP_TOKEN", parse.token, "", secret=True)


@dataclass(frozen=True)
class SessionSettings:
    """Sessions of users who sign in, and how often somebody may try to (engine section 10)."""

    session_ttl_ms: int = setting("RUNR_SESSION_TTL", parse.milliseconds(60_000, 30 * _DAY_MS), _DAY_MS // 2)
    login_attempts: int = setting("RUNR_LOGIN_ATTEMPTS", parse.integer(1, 1_000), 10)
    login_window_ms: int = setting("RUNR_LOGIN_WINDOW", parse.milliseconds(1_000, _DAY_MS), 900_000)


@dataclass(frozen=True)
class CookieSettings:
    """The cookie that carries a session to the gateway. `secure`: browsers send it over https alone."""

    secure: bool = setting("RUNR_COOKIE_SECURE", parse.boolean, True)


@dataclass(frozen=True)
class LeaseSettings:
    """How a dead executor is noticed: no heartbeat for `ttl_s`, or a closed database session."""

    ttl_s: float = setting("WORKFLOWS_LEASE_TTL", parse.seconds(1, 600), 30.0)
    heartbeat_s: float = setting("WORKFLOWS_HEARTBEAT", parse.seconds(0.1, 60), 3.0)

    def __post_init__(self) -> None:
        if self.heartbeat_s * 3 > self.ttl_s:
            raise ValueError(
                f"WORKFLOWS_HEARTBEAT must be at most a third of WORKFLOWS_LEASE_TTL"
                f" (got {self.heartbeat_s:g} s and {self.ttl_s:g} s)"
            )


@dataclass(frozen=True)
class FunctionSettings:
    """How functions are called, and which endpoints are allowed (engine sections 10 and 11)."""

    request_timeout_s: float = setting("WORKFLOWS_REQUEST_TIMEOUT", parse.seconds(1, 3_600), 300.0)
    connect_timeout_s: float = setting("WORKFLOWS_CONNECT_TIMEOUT", parse.seconds(0.1, 300), 10.0)
    verify_tls: bool = setting("WORKFLOWS_VERIFY_TLS", parse.boolean, True)
    endpoint_path: str = setting("WORKFLOWS_ENDPOINT_PATH", parse.url_path, "")
    domain: str = setting("WORKFLOWS_FUNCTION_DOMAIN", parse.domain, "")
    allow_private: bool = setting("WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS", parse.boolean, False)
    allowed_networks: tuple[Network, ...] = setting("WORKFLOWS_ALLOWED_ENDPOINT_CIDRS", parse.networks, ())
    key_rotation_grace_ms: int = setting("WORKFLOWS_KEY_ROTATION_GRACE", parse.milliseconds(0, 30 * _DAY_MS), _DAY_MS)


@dataclass(frozen=True)
class RetentionSettings:
    """Days that finished things are kept; active runs are never pruned."""

    run_days: int = setting("WORKFLOWS_RUN_RETENTION_DAYS", parse.integer(1, 36_500), 30)
    event_days: int = setting("WORKFLOWS_EVENT_RETENTION_DAYS", parse.integer(1, 36_500), 7)
    usage_days: int = setting("WORKFLOWS_USAGE_RETENTION_DAYS", parse.integer(1, 36_500), 400)
    audit_days: int = setting("WORKFLOWS_AUDIT_RETENTION_DAYS", parse.integer(1, 36_500), 400)


@dataclass(frozen=True)
class WorkflowLimits:
    """The platform-wide limits of engine section 8; sizes in bytes."""

    event_bytes: int = setting("WORKFLOWS_MAX_EVENT_SIZE", parse.size(1, _HUGE), 256 * _KIB)
    events_per_request: int = setting("WORKFLOWS_MAX_EVENTS_PER_REQUEST", parse.integer(1, 10_000), 100)
    output_bytes: int = setting("WORKFLOWS_MAX_OUTPUT_SIZE", parse.size(1, _HUGE), _MIB)
    start_bytes: int = setting("WORKFLOWS_MAX_START_SIZE", parse.size(1, _HUGE), _MIB)
    state_bytes: int = setting("WORKFLOWS_MAX_STATE_SIZE", parse.size(1, _HUGE), 16 * _MIB)
    steps_per_run: int = setting("WORKFLOWS_MAX_STEPS", parse.integer(1, 1_000_000), 10_000)
    step_id_bytes: int = setting("WORKFLOWS_MAX_STEP_ID_BYTES", parse.integer(1, 200), 200)
    idempotency_key_bytes: int = setting("WORKFLOWS_MAX_IDEMPOTENCY_KEY_BYTES", parse.integer(1, 255), 255)
    workflows_per_project: int = setting("WORKFLOWS_MAX_WORKFLOWS", parse.integer(1, 100_000), 500)
    body_bytes: int = setting("WORKFLOWS_MAX_BODY_SIZE", parse.size(1, _HUGE), 4 * _MIB)
    events_body_bytes: int = setting("WORKFLOWS_MAX_EVENTS_BODY_SIZE", parse.size(1, _HUGE), 26 * _MIB)
    scanned_waits: int = setting("WORKFLOWS_MAX_SCANNED_WAITS", parse.integer(1, 1_000_000), 10_000)
    wait_timeout_ms: int = setting("WORKFLOWS_WAIT_TIMEOUT", parse.milliseconds(1_000, 366 * _DAY_MS), 7 * _DAY_MS)


HEALTH_PORTS = {"gateway": 7200, "ingest": 7201, "scheduler": 7202, "executor": 7203}
