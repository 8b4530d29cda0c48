"""Every metric of the engine (docs/operations.md, Metrics). All have the label `service`, and of several processes
under one parent `process`; none has a tenant, a workflow or a run: their number must not grow with what users do.
"""

from __future__ import annotations

from services.core.runtime.metrics import Metric

_QUICK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CALL_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

# Every service.
BUILD_INFO = Metric("runr_build_info", "gauge", "Always 1: its label is the version of the engine.", ("version",))
LOOP_LAG = Metric(
    "runr_event_loop_lag_seconds",
    "histogram",
    "How much later than asked the event loop woke up, looked at twice a second.",
    bounds=_QUICK_S,
)
POOL_CONNECTIONS = Metric(
    "runr_database_pool_connections", "gauge", "Connections to Postgres that a pool has open.", ("pool", "state")
)
POOL_LIMIT = Metric("runr_database_pool_limit", "gauge", "Connections that a pool may open.", ("pool",))
CLOCK_SKEW = Metric(
    "runr_clock_skew_seconds", "gauge", "How far Postgres's clock is ahead of this machine's, as last sampled."
)
NATS_CONNECTED = Metric("runr_nats_connected", "gauge", "1 while NATS is reachable, else 0.")
HINTS_DROPPED = Metric(
    "runr_hints_dropped", "counter", "Messages to other processes that were not sent: NATS was away or too slow."
)
GRPC_CALLS = Metric("runr_grpc_calls", "counter", "gRPC calls that have ended, streams included.", ("method", "code"))
GRPC_DURATION = Metric(
    "runr_grpc_call_duration_seconds", "histogram", "How long gRPC calls without streams took.", ("method",), _CALL_S
)

# The gateway.
HTTP_REQUESTS = Metric("runr_http_requests", "counter", "REST requests answered.", ("method", "route", "status"))
HTTP_DURATION = Metric(
    "runr_http_request_duration_seconds",
    "histogram",
    "From the head of a REST request to its answer; streams of events are not in it.",
    ("method", "route"),
    _CALL_S,
)

# Whoever accepts events, and starts and ends runs.
EVENTS_ACCEPTED = Metric("runr_events_accepted", "counter", "Events accepted and committed.", ("outcome",))
RUNS_STARTED = Metric("runr_runs_started", "counter", "Runs started, by what started them.", ("source",))
RUNS_ENDED = Metric("runr_runs_ended", "counter", "Runs ended, by how.", ("status",))
TIMER_LATENESS = Metric(
    "runr_timer_lateness_seconds",
    "histogram",
    "How long after it was due a sleep, backoff, delay or timeout was fired.",
    bounds=_QUICK_S,
)
RUNS_RECOVERED = Metric(
    "runr_runs_recovered",
    "counter",
    "Runs taken back from processes that died: queued, failed with their last attempt, or kept for their worker.",
    ("outcome",),
)

# Executors.
STEP_LATENCY = Metric(
    "runr_step_latency_seconds",
    "histogram",
    "From what a function said being decided until it was committed: what the engine adds to a step.",
    bounds=_QUICK_S,
)
STEP_EXECUTIONS = Metric(
    "runr_step_executions", "counter", "Attempts of steps, sleeps, waits, invokes and sends, as usage counts them."
)
STEP_FAILURES = Metric("runr_step_failures", "counter", "Failed attempts of steps, by the code of the workflows.")
FUNCTION_DURATION = Metric(
    "runr_function_call_duration_seconds", "histogram", "How long functions took to answer over HTTP.", bounds=_CALL_S
)
FUNCTION_ERRORS = Metric("runr_function_errors", "counter", "Invocations that failed, by the fault.", ("kind",))
BATCH_SIZE = Metric(
    "runr_pipeline_batch_size",
    "histogram",
    "Commits in one transaction of the pipeline.",
    bounds=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0),
)
BATCH_DURATION = Metric(
    "runr_pipeline_batch_duration_seconds",
    "histogram",
    "How long one transaction of the pipeline took.",
    bounds=_QUICK_S,
)
PIPELINE_WAITING = Metric("runr_pipeline_waiting", "gauge", "Commits that wait for the next transaction.")
COMMITS_FENCED = Metric("runr_commits_fenced", "counter", "Commits refused because the run was not held any more.")
COMMITS_REFUSED = Metric("runr_commits_refused", "counter", "Commits that the database could not store.")
SLOTS = Metric("runr_executor_slots", "gauge", "Runs that the executor holds at most (RUNR_EXECUTOR_SLOTS).")
SLOTS_TAKEN = Metric("runr_executor_slots_taken", "gauge", "Runs that the executor holds.")
WORKER_STREAMS = Metric("runr_worker_streams", "gauge", "Workers connected over their stream.")
OWNERS_LOST = Metric(
    "runr_executor_lives_lost", "counter", "Times that this executor was declared dead and began anew."
)
PROCESSES = Metric("runr_executor_processes", "gauge", "Processes that run under the parent of `--processes N`.")

# Schedulers. The first four are measured by one of them, for the whole engine; the others do not tell them.
QUEUE_AGE = Metric(
    "runr_queue_oldest_age_seconds",
    "gauge",
    "How long the oldest ready run has waited for an executor (`any`), or for a worker that serves it (`workers`).",
    ("served_by",),
)
QUEUE_LENGTH = Metric("runr_queue_length", "gauge", "Ready runs that wait, counted up to 10,000.", ("served_by",))
TIMERS_OVERDUE = Metric(
    "runr_timers_overdue_seconds", "gauge", "How long the oldest due timer, or timeout of a run, is due."
)
MARKS_AGE = Metric(
    "runr_marks_oldest_age_seconds", "gauge", "How long the oldest effect of a commit waits to be carried out."
)
DUTY_FAILURES = Metric("runr_duty_failures", "counter", "Rounds of a scheduler's duty that failed.", ("duty",))
DUTY_WORK = Metric(
    "runr_duty_work",
    "counter",
    "What a scheduler's duties did: `rehint`, `hinted` counts hints found lost, `rescue`, `buried` dead processes.",
    ("duty", "what"),
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
