"""What each environment variable means, in words: the part of the configuration page that no dataclass holds."""

from __future__ import annotations

TITLES = {
    "DatabaseSettings": "Postgres",
    "NatsSettings": "NATS",
    "ProcessSettings": "The process",
    "LogSettings": "Logs",
    "ListenSettings": "Where a service listens",
    "PeerSettings": "Where the services find each other",
    "PublicSettings": "As seen from outside",
    "McpSettings": "Agents",
    "RpcSecuritySettings": "Security of gRPC",
    "EncryptionSettings": "Secrets at rest",
    "AccessSettings": "The first token",
    "SessionSettings": "Signing in",
    "CookieSettings": "Cookies",
    "LeaseSettings": "Leases",
    "ExecutorSettings": "Executor",
    "FunctionSettings": "Calling functions",
    "QueueSettings": "Queue streams",
    "WorkflowLimits": "Limits",
    "RateSettings": "Rate limit",
    "RetentionSettings": "Retention",
    "TelemetrySettings": "Traces",
}
"""Title of each settings class, in the order of the page."""

WITHOUT_EFFECT = frozenset[str]()
"""Variables that are read and checked, and change nothing in this version."""

MEANINGS = {
    "RUNR_RATE_LIMIT": "Requests a second that a token may make of each gateway; 0 is no limit. See the API's page.",
    "RUNR_RATE_BURST": "Requests that a token may make at once where there is a limit.",
    "DATABASE_URL": "The database. Its user owns the schemas `rt` and `t_<n>`. PgBouncer only in session mode.",
    "NATS_URL": "The NATS server, with JetStream.",
    "RUNR_NATS_PREFIX": "What every stream and subject begins with; keeps stacks apart that share a NATS server.",
    "RUNR_GRACE": "How long a drain may take before what is left is given back and the process ends.",
    "RUNR_DRAIN_DELAY": "How long a process that is asked to stop goes on serving with readiness off, so that balancers"
    " notice.",
    "RUNR_HEALTH_ADDR": "Where `/healthz` and `/readyz` are served. Without it: 127.0.0.1 with port 7200 for gateway,"
    " 7201 for ingest, 7202 for scheduler, 7203 for executor; 7200 for `serve all`.",
    "RUNR_LOG_LEVEL": "Lines below this level are not written.",
    "RUNR_LOG_FORMAT": "`auto` is text on a terminal and JSON elsewhere.",
    "RUNR_HTTP_ADDR": "Where the gateway listens.",
    "RUNR_GRPC_ADDR": "Where this process listens for gRPC. Without it: the service's own address of the three below."
    " Not for `serve all`: three servers cannot share it.",
    "RUNR_INGEST_ADDR": "Where ingest is: the gateway calls it there, and ingest listens there.",
    "RUNR_SCHEDULER_ADDR": "The same of the scheduler.",
    "RUNR_EXECUTOR_ADDR": "The same of the executor.",
    "RUNR_GRPC_TLS_CERT": "PEM file: this process's certificate. The three files are set together.",
    "RUNR_GRPC_TLS_KEY": "PEM file: its key.",
    "RUNR_GRPC_TLS_CA": "PEM file: the authority that peers' certificates must come from.",
    "RUNR_GRPC_PLAINTEXT": "Serve gRPC without TLS on any address, because the network itself is trusted.",
    "RUNR_ENCRYPTION_KEY": "Encrypts the projects' signing keys (AES-256-GCM). **Keep it**: without it they cannot be"
    " opened.",
    "RUNR_FORMER_ENCRYPTION_KEYS": "Keys that were RUNR_ENCRYPTION_KEY before: they open what they sealed, and seal"
    " nothing. `runr admin reseal` makes them needless.",
    "RUNR_BOOTSTRAP_TOKEN": "A token with all permissions in the tenant `default`. Another value replaces it; without"
    " one none is made.",
    "RUNR_SESSION_TTL": "How long a session lasts from its beginning, however much it is used or its secret rotates.",
    "RUNR_LOGIN_ATTEMPTS": "So many attempts to sign in with one address are looked at in a window, over all replicas.",
    "RUNR_LOGIN_WINDOW": "How long a window of attempts lasts, from its first one.",
    "RUNR_COOKIE_SECURE": "Browsers send the session's cookie over https alone. `false` only where there is no https.",
    "WORKFLOWS_LEASE_TTL": "A process that has been silent for this long is dead, whatever its database session says."
    " Half of it without an answer from the database, and a process begins no new invocation.",
    "WORKFLOWS_HEARTBEAT": "How often a process says that it lives; at most a third of the TTL.",
    "RUNR_WORKER_RESUME_GRACE": "How long the runs of a worker whose stream broke are kept for it, without an attempt.",
    "RUNR_EXECUTOR_SLOTS": "Runs that one executor process holds at once, each with a request to its function.",
    "WORKFLOWS_REQUEST_TIMEOUT": "How long a function may take to answer. Keep it at or below the platform's own.",
    "WORKFLOWS_CONNECT_TIMEOUT": "How long a connection to a function may take.",
    "WORKFLOWS_VERIFY_TLS": "Verify the certificates of functions.",
    "WORKFLOWS_ENDPOINT_PATH": "Path of functions below the function domain.",
    "WORKFLOWS_FUNCTION_DOMAIN": "A project without an endpoint of its own is called at `https://<slug>.<domain>`.",
    "WORKFLOWS_ALLOW_PRIVATE_ENDPOINTS": "Allow functions on loopback and private addresses. `runr dev` sets it.",
    "WORKFLOWS_ALLOWED_ENDPOINT_CIDRS": "Allow functions in these ranges, otherwise refused.",
    "WORKFLOWS_PUBLIC_API_URL": "The API's URL as seen from outside, for the URL of the queue bridge. Without it that"
    " is where the gateway listens.",
    "RUNR_MCP_ORIGINS": "Web pages that may use `/mcp`, beside those of the URL before and, where the gateway listens"
    " on loopback, those of this machine. Agents that are no web pages need none.",
    "WORKFLOWS_QUEUE_MAX_DELIVER": "A message of a JetStream stream that fails becomes a dead letter when it was"
    " delivered this often.",
    "WORKFLOWS_QUEUE_ACK_WAIT": "A message that a process took and did not account for comes again after this time.",
    "WORKFLOWS_KEY_ROTATION_GRACE": "How long the signing key before the current one signs along after a rotation.",
    "WORKFLOWS_RUN_RETENTION_DAYS": "How long ended runs are kept, in days.",
    "WORKFLOWS_EVENT_RETENTION_DAYS": "How long events are kept, in days; their ids deduplicate as long.",
    "WORKFLOWS_USAGE_RETENTION_DAYS": "How long usage is kept, in days.",
    "WORKFLOWS_AUDIT_RETENTION_DAYS": "How long lines of the audit log are kept, in days.",
    "WORKFLOWS_MAX_EVENT_SIZE": "Name and data of one event.",
    "WORKFLOWS_MAX_EVENTS_PER_REQUEST": "Events in one request.",
    "WORKFLOWS_MAX_OUTPUT_SIZE": "Output of a step, output of a run, data of an invoke; each.",
    "WORKFLOWS_MAX_START_SIZE": "Data of a start or replay.",
    "WORKFLOWS_MAX_STATE_SIZE": "Memoized results of one run.",
    "WORKFLOWS_MAX_STEPS": "Steps of one run.",
    "WORKFLOWS_MAX_STEP_ID_BYTES": "Bytes of a step id without its counter; with it there is room for 255.",
    "WORKFLOWS_MAX_IDEMPOTENCY_KEY_BYTES": "Bytes of an idempotency key.",
    "WORKFLOWS_MAX_WORKFLOWS": "Workflows of one project.",
    "WORKFLOWS_MAX_BODY_SIZE": "Body of a request.",
    "WORKFLOWS_MAX_EVENTS_BODY_SIZE": "Body of `POST /api/events`.",
    "WORKFLOWS_MAX_SCANNED_WAITS": "Open waits for one event name in a tenant under conditions that no equality finds.",
    "WORKFLOWS_WAIT_TIMEOUT": "How long a wait for an event, or an invoke, lasts that names no timeout.",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "Where spans are sent: the base URL of a collector.",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "The same for traces alone, the whole URL.",
    "OTEL_TRACES_EXPORTER": "`otlp`, `console`, or `none`.",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "Only `http/protobuf` is sent; another value stops the start.",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "The same for traces alone.",
    "OTEL_SERVICE_NAME": "The name in spans; the service's own by default.",
    "OTEL_TRACES_SAMPLER": "How it is decided which traces are recorded.",
    "OTEL_TRACES_SAMPLER_ARG": "The share of the ratio samplers.",
    "OTEL_SDK_DISABLED": "Switches traces off, whatever else is set.",
}
"""Variable → meaning, Markdown."""

OUTSIDE = (
    (
        "RUNR_HOME",
        "`runr dev`, `doctor`, `workflows`, `runs`, `events`",
        "The folder of data, ports and passwords; `.runr` in the current one.",
    ),
    (
        "RUNR_API_URL",
        "`runr workflows`, `runs`, `events`, `tokens`; the client of an SDK",
        "The API, as `https://runr.example.com`, with or without `/api`; the command falls back to the stack that"
        " RUNR_HOME names, to the current context of `runr login`, and to the stack in the folder.",
    ),
    ("RUNR_TOKEN", "`runr workflows`, `runs`, `events`, `tokens`; the client of an SDK", "A token for it."),
    ("RUNR_CONTEXT", "the same commands", "Which context of `runr login` is meant; `dev` is RUNR_HOME's stack."),
    (
        "RUNR_CONFIG",
        "the same commands, `runr login`",
        "The file of contexts; `runr/contexts.json` in XDG_CONFIG_HOME or `~/.config`.",
    ),
    ("RUNR_TRACEBACK", "every command", "`1`: a fault of the command itself says where in the code it happened."),
    (
        "RUNR_QUEUE_REDIS",
        "`runr queue consume`",
        "The Redis, as `redis://`, `rediss://` or `unix://`; without it `redis://127.0.0.1:6379`.",
    ),
    (
        "RUNR_QUEUE_URL",
        "`runr queue consume`",
        "The URL of the queue bridge, a secret. Without it the API is asked for it.",
    ),
    ("RUNR_QUEUE_STREAM", "`runr queue consume`", "The stream in Redis. Without it the project's queue stream."),
    ("RUNR_QUEUE_GROUP", "`runr queue consume`", "The consumer group. Without it `runr:<tenant>:<project>`."),
    (
        "RUNR_QUEUE_CONSUMER",
        "`runr queue consume`",
        "The consumer's name in the group. Without it a new one each time.",
    ),
    ("RUNR_QUEUE_DEAD_STREAM", "`runr queue consume`", "Where dead letters go. Without it `<stream>:dead`."),
    ("RUNR_QUEUE_IN_FLIGHT", "`runr queue consume`", "Deliveries at once; 16 without it, at most 1000."),
    (
        "RUNR_QUEUE_MAX_DELIVERIES",
        "`runr queue consume`",
        "A message becomes a dead letter when the delivery that fails is this one; 5 without it.",
    ),
    (
        "RUNR_QUEUE_CLAIM_AFTER",
        "`runr queue consume`",
        "Entries of a consumer that was silent for so long are taken over; 60 s without it.",
    ),
    ("RUNR_POSTGRES_BIN", "`runr dev`, tests", "A `bin` folder of Postgres 15 or newer instead of the wheel's."),
    ("RUNR_NATS_BIN", "`runr dev`, tests", "A `nats-server` program instead of the wheel's."),
    ("RUNR_WORKFLOW_SIGNING_KEY", "the function (SDK)", "The project's signing key. Without it all requests get 500."),
    ("RUNR_WORKFLOW_SIGNING_KEY_FALLBACK", "the function (SDK)", "A second key that is accepted, during a rotation."),
    ("RUNR_WORKFLOW_PROTOCOL", "the function (SDK)", "`v1`, or not set. Another value stops the start."),
    ("RUNR_WORKER_URL", "a worker (SDK)", "`host:port` of the executor that `wf.connect()` connects to."),
    ("RUNR_PROJECT", "a worker (SDK)", "Slug of the worker's project; `default` without it."),
    ("RUNR_TENANT", "a worker (SDK)", "Slug of its tenant; `default` without it."),
    (
        "RUNR_WORKER_TLS_CA",
        "a worker (SDK)",
        "PEM file: the authority of the executor's certificate. Without it the system's.",
    ),
    ("RUNR_WORKER_TLS_CERT", "a worker (SDK)", "PEM file: a certificate of the worker's own."),
    ("RUNR_WORKER_TLS_KEY", "a worker (SDK)", "PEM file: its key."),
    (
        "RUNR_WORKER_PLAINTEXT",
        "a worker (SDK)",
        "`true`: connect without TLS to any address, because the network is trusted.",
    ),
    ("PORT", "the function (SDK)", "Where `wf.serve()` listens when it is given no port; 8000 by default."),
)
"""Variables that no service reads: name, who reads it, meaning."""
