"""All routes of the REST API in one table: what is served, and what the API's description is made from."""

from __future__ import annotations

from services.gateway.route import Route
from services.gateway.routes import (
    bulk,
    events,
    members,
    projects,
    queue,
    runs,
    schedules,
    session,
    tokens,
    usage,
    workflows,
)

BASE = "/api"

ROUTES: tuple[Route, ...] = (
    *events.ROUTES,
    *runs.ROUTES,
    *workflows.ROUTES,
    *schedules.ROUTES,
    *bulk.ROUTES,
    *usage.ROUTES,
    *projects.ROUTES,
    *tokens.ROUTES,
    *members.ROUTES,
    *session.ROUTES,
    *queue.ROUTES,
)

# Names that no workflow can have, because they are paths of their own (engine section 1).
RESERVED_WORKFLOWS = ("app", "sync")
