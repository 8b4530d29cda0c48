"""What the workflows that `runr conformance` drives have in common (docs/how-to/conformance.md)."""

from __future__ import annotations

from typing import Any

from runr_workflows import NonRetriableError, RetryAfterError, StepError
from runr_workflows.definition import Checkpoint

CHECKPOINT: Checkpoint = {"max_steps": 50, "max_time": "5s"}


class ConformanceError(Exception):
    """What the workflows raise."""


def made(data: dict[str, Any]) -> Any:
    """The value that `conformance-values` is asked for."""
    match data["make"]:
        case "echo":
            return data["value"]
        case "nan":
            return float("nan")
        case "infinity":
            return [1, {"deep": float("-inf")}]
        case "unserializable":
            return {"deep": object()}
        case _:
            return None


def failure(data: dict[str, Any]) -> Exception:
    """The error that `conformance-errors` is asked for."""
    match data["kind"]:
        case "non_retriable":
            return NonRetriableError(data["message"])
        case "retry_after":
            return RetryAfterError(data["message"], data["retry_after"])
        case _:
            return ConformanceError(data["message"])


def fail(data: dict[str, Any]) -> None:
    """Raise it."""
    raise failure(data)


def seen(error: StepError) -> dict[str, str]:
    """A step's error as the code sees it."""
    return {"name": error.name, "message": error.message, "step_id": error.step_id}


def kind_arguments(data: dict[str, Any]) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Method, arguments and options of the step call that `conformance-kinds` is asked for."""
    match data["kind"]:
        case "sleep":
            return "sleep", (data["duration"],), {}
        case "sleep_until":
            return "sleep_until", (data["until"],), {}
        case "wait_for_event":
            options: dict[str, Any] = {name: data[name] for name in ("match", "timeout", "lookback") if name in data}
            return "wait_for_event", (data["event"],), options
        case "invoke":
            return "invoke", (data["workflow"],), {"data": data["data"], "timeout": data.get("timeout")}
        case _:
            return "send_event", (data["events"],), {}
