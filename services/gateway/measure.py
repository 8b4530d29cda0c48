"""Counts every HTTP request by route and status, and how long it took, for the gateway's metrics."""

from __future__ import annotations

import time

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from services.core.runtime.metric_table import HTTP_DURATION, HTTP_REQUESTS
from services.core.runtime.metrics import OTHER, Counter, Histogram, Metrics
from services.gateway.observe import PROBES, route_of

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_CUT_OFF = "cut_off"


def measuring(metrics: Metrics) -> Middleware:
    """A middleware around the observing one, which has turned errors into answers. Probes are not counted."""
    requests: dict[tuple[str, str, str], Counter] = {}
    durations: dict[tuple[str, str], Histogram] = {}

    def counted(place: tuple[str, str], status: str) -> None:
        key = (*place, status)
        counter = requests.get(key)
        if counter is None:
            counter = requests[key] = metrics.counter(HTTP_REQUESTS, *key)
        counter.value += 1

    def lasted(place: tuple[str, str], took_s: float) -> None:
        histogram = durations.get(place)
        if histogram is None:
            histogram = durations[place] = metrics.histogram(HTTP_DURATION, *place)
        histogram.observe(took_s)

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        begun_s = time.monotonic()
        route = route_of(request)
        # What callers may write as they like must not become a label.
        place = (request.method if request.method in _METHODS else OTHER, route)
        try:
            response = await handler(request)
        except BaseException:  # its connection is gone: whatever it would have been answered, nobody was
            counted(place, _CUT_OFF)
            raise
        if not route.endswith(PROBES):
            counted(place, str(response.status))
            if isinstance(response, web.Response):  # a stream lasts as long as its reader likes
                lasted(place, time.monotonic() - begun_s)
        return response

    return measure
