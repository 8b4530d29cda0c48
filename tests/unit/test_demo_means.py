"""The demo shows what a user can do: it has no means but the commands and the public API."""

from __future__ import annotations

import ast
import inspect
import re

from services.cli import demo, function
from services.gateway.routes.table import BASE, ROUTES

ALLOWED = {
    # Commands, and how they call the API.
    *("services.cli.api", "services.cli.failure", "services.cli.function", "services.cli.timeline"),
    # Starting `runr dev` and reading the stack.json that it writes for everybody.
    *("services.core.runtime.parent", "services.core.runtime.python_child", "services.core.runtime.service"),
    *("services.embedded.home", "services.embedded.identity"),
}


def test_the_demo_imports_nothing_of_the_engine() -> None:
    tree = ast.parse(inspect.getsource(demo))
    nodes = list(ast.walk(tree))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    assert "services.cli.api" in imported
    assert {name for name in imported if name.startswith(("services", "runr"))} <= ALLOWED
    assert not {name.partition(".")[0] for name in imported} & {"asyncpg", "nats"}


def test_the_demo_calls_routes_of_the_api() -> None:
    called = _calls(inspect.getsource(demo)) | {("PATCH", function.APP), ("POST", function.SYNC)}
    assert len(called) > 4
    for method, path in called:
        assert any(route.method == method and _fits(route.path, path) for route in ROUTES), f"{method} {path}"


def test_the_demo_starts_a_command() -> None:
    assert 'python_command("services.cli.main", "dev")' in inspect.getsource(demo)


def _calls(source: str) -> set[tuple[str, str]]:
    """Method and path of each call, with what is filled in as one word."""
    found = re.findall(r'api\.call\(\s*"([A-Z]+)", f?"([^"]+)"', source)
    return {(method, re.sub(r"\{\w+\}", "x", path.replace("{APP}", function.APP))) for method, path in found}


def _fits(template: str, path: str) -> bool:
    pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(BASE + template))
    return re.fullmatch(pattern, path.partition("?")[0]) is not None
