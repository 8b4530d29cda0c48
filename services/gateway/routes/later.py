"""Routes of the product that this version does not have: each is known, asks for a token, and answers 501."""

from __future__ import annotations

from services.gateway.route import LaterRoute

ROUTES = (LaterRoute("GET", "/openapi.json", None, "This API's description", public=True),)
