"""What a worker says that reaches no engine: the setting to look at, what is new at once, the same once a minute."""

from __future__ import annotations

import pytest

from runr_workflows.connect.target import Target
from runr_workflows.connect.unreachable import Unreachable

REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: connect: Connection refused (111)"


class Clock:
    """Seconds, moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (REFUSED, "nothing listens there (connection refused)"),
        ("errors resolving nowhere:1: [field:hostname lookup error]", "there is no host of that name"),
        ("Failed parsing HTTP/2", "what listens there does not speak gRPC, as the API does not"),
        (
            "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED",
            "its certificate is by no authority that this worker knows",
        ),
        ("something else.", "something else"),
    ],
)
def test_the_reason_and_the_setting_are_told(lost: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    Unreachable(Target("executor", 1, None)).tell(lost, was_connected=False)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(f"no connection to executor:1: {told}")
    assert "Is RUNR_WORKER_URL the address of an executor" in line


def test_the_same_is_told_once_a_minute_and_again_after_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    unreachable = Unreachable(Target("executor", 1, None), clock)

    def told(lost: str = REFUSED, *, was_connected: bool = True) -> int:
        caplog.clear()
        unreachable.tell(lost, was_connected=was_connected)
        return len(caplog.records)

    assert [told(), told(), told("another"), told(), told("another")] == [1, 0, 1, 0, 0], "where two take turns too"
    clock.now += 59
    assert told() == 0
    clock.now += 1
    assert told() == 1
    unreachable.over()
    assert told() == 1
    assert "RUNR_WORKER_URL" not in caplog.text


def test_an_engine_that_takes_no_worker_is_told_as_often(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    unreachable = Unreachable(Target("executor", 1, None), clock)
    for _ in range(7):
        unreachable.refused("SHUTDOWN this executor is being stopped")
        unreachable.tell(REFUSED, was_connected=True)
        clock.now += 10
    refused = "the engine does not take the worker now: SHUTDOWN this executor is being stopped. Trying again"
    assert caplog.messages.count(refused) == 2
    assert len(caplog.messages) == 4


def test_what_is_remembered_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    unreachable = Unreachable(Target("executor", 1, None), Clock())
    for number in range(1_000):
        unreachable.refused(f"QUOTA {number}")
    unreachable.refused("QUOTA 999")
    assert len(caplog.messages) == 1_000
