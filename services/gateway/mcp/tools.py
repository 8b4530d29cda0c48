"""The tools of the MCP server, in the order in which agents are shown them (engine section 3)."""

from __future__ import annotations

from services.core.domain.event import MAX_ID_BYTES, MAX_NAME
from services.gateway.kinds import JSON_OBJECT, text
from services.gateway.mcp.tool import Tool
from services.gateway.route import Route
from services.gateway.routes import events, runs, workflows
from services.gateway.shape import Kind

_ROUTES = {route.rpc.rpartition("/")[2]: route for route in (*workflows.ROUTES, *runs.ROUTES, *events.ROUTES)}
_MAX_TS = 2**53 - 1


def _route(method: str) -> Route:
    return _ROUTES[method]


_PROJECT = "The project's slug."
_RUN = "The run's id."
_DEFAULTS = {"project": "default"}
_PAGE = {
    "limit": "How many at most.",
    "cursor": "`next_cursor` of the page before.",
}
# Read by the route itself, which knows all the rules of an event.
_TS = Kind({"type": "integer", "minimum": 0, "maximum": _MAX_TS}, lambda raw: raw.value)

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="workflows_list",
        title="List workflows",
        description="Lists the workflows of a project: what starts each, its limits, and whether it is paused.",
        route=_route("ListWorkflows"),
        words={"project": _PROJECT, "archived": "Also those that are declared no more.", **_PAGE},
        defaults=_DEFAULTS,
    ),
    Tool(
        name="workflow_run_start",
        title="Start a run",
        description="Starts a run of a workflow and answers at once with its id; see workflow_run_status for how it"
        " ends. Give an idempotency_key: with one that is known, the run that it started is the answer.",
        route=_route("StartRun"),
        words={
            "project": _PROJECT,
            "workflow": "The workflow's name.",
            "data": "The data of the event that the run works on.",
            "idempotency_key": "A second start with this key starts nothing.",
            "test": "Mark it as a test run.",
            "delay": "Start it later, as 10m, 2h30m or seconds.",
            "at": "Start it at a time, as 2026-10-31T08:00:00Z. Not with delay.",
            "tags": "Words by which runs can be found.",
        },
        defaults=_DEFAULTS,
        adds=True,
    ),
    Tool(
        name="workflow_runs_list",
        title="List runs",
        description="Lists runs of a project, newest first, without their steps.",
        route=_route("ListRuns"),
        words={
            "project": _PROJECT,
            "workflow": "Only runs of this workflow.",
            "status": "Only runs with one of these statuses.",
            "from": "Only runs created since, as 2026-10-31T08:00:00Z.",
            "to": "Only runs created before.",
            "q": "Only runs whose id, event or idempotency key is this.",
            "tag": "Only runs that have all these tags.",
            **_PAGE,
        },
        defaults=_DEFAULTS,
    ),
    Tool(
        name="workflow_run_status",
        title="Show a run",
        description="Shows a run: its status, output or error, and its steps with attempts, waits and child runs.",
        route=_route("GetRun"),
        words={"run_id": _RUN},
    ),
    Tool(
        name="workflow_run_cancel",
        title="Cancel a run",
        description="Cancels an active run and, unless told to keep them, its active child runs. What its steps have"
        " done stays done.",
        route=_route("CancelRun"),
        words={"run_id": _RUN, "children": "What becomes of its active child runs (default: cancel)."},
        changes=True,
        repeatable=True,
    ),
    Tool(
        name="workflow_run_retry",
        title="Retry a run",
        description="Lets a run that failed, timed out or was cancelled go on from where it stopped. Steps that have"
        " completed do not run again.",
        route=_route("RetryRun"),
        words={"run_id": _RUN},
        adds=True,
    ),
    Tool(
        name="workflow_run_replay",
        title="Replay a run",
        description="Starts a new run with the event of another one: from the start, where everything is done once"
        " more, or from a step, with the results of those before it. With an idempotency_key a second call within a day"
        " answers as the first one did.",
        route=_route("ReplayRun"),
        words={
            "run_id": _RUN,
            "from_step": "Keep the results of the steps before this one.",
            "data": "Other data of the event.",
            "idempotency_key": "A second replay with this key starts nothing.",
        },
        adds=True,
        named=True,
    ),
    Tool(
        name="event_send",
        title="Send an event",
        description="Sends an event: it starts the workflows that it triggers, and resumes and cancels the runs that"
        " wait for it. Give an id: a second event with one that is known does nothing.",
        route=_route("SendEvents"),
        words={
            "name": "The event's name, as order.created.",
            "data": "Its data.",
            "id": "Your id of it.",
            "ts": "When it happened, in unix milliseconds.",
            "test": "Runs that it starts are test runs.",
        },
        body={"name": text(MAX_NAME), "data": JSON_OBJECT, "id": text(MAX_ID_BYTES), "ts": _TS},
        required=("name",),
        adds=True,
    ),
)
