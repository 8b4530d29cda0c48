"""What the services of a stack logged is shown with a test that failed on it. A conftest takes the hook in."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.stack import Stack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the services logged."""
    report = yield
    stack = item.funcargs.get("stack")
    if report.failed and isinstance(stack, Stack):
        report.sections.append(("services", stack.log_tails()))
    return report
