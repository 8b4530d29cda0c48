"""`deploy/kubernetes/components/queue-consumer`: it starts what the program is, and may do no more than it needs."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from services.cli.main import parser
from services.cli.queue.app import Settings
from services.core.runtime.config import load, variables
from services.core.runtime.settings import LogSettings, ProcessSettings
from tests.support.bridge_sink import PATH
from tests.support.manifests import DEPLOY, FORCED_AFTER_GRACE_S, kustomized, of_kind

COMPONENT = DEPLOY / "kubernetes" / "components" / "queue-consumer"
OBJECTS = kustomized(COMPONENT)
NAME = "queue-consumer"
SECRETS = {
    "RUNR_QUEUE_REDIS": "rediss://consumer:secret@redis.example.com:6379",
    "RUNR_QUEUE_URL": f"https://api.example.com{PATH}",
}


def deployment() -> Any:
    return of_kind(OBJECTS, "Deployment")[NAME]["spec"]


@pytest.mark.parametrize("version", ["1.27", "1.37"])
@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each["kind"])
def test_its_objects_follow_their_schemas(each: Any, version: str) -> None:
    kubernetes_validate.validate(each, version, strict=True)


def test_it_starts_with_its_command_its_settings_and_two_secrets() -> None:
    pod = deployment()["template"]["spec"]
    (container,) = pod["containers"]
    given = parser().parse_args(container["args"])
    assert (given.command, given.verb) == ("queue", "consume")
    assert container["envFrom"] == [{"configMapRef": {"name": NAME}}, {"secretRef": {"name": NAME}}]
    environ = of_kind(OBJECTS, "ConfigMap")[NAME]["data"] | SECRETS
    assert set(environ) <= {*variables(Settings), *variables(ProcessSettings), *variables(LogSettings)}
    settings = load(Settings, environ)
    assert settings.redis_url == SECRETS["RUNR_QUEUE_REDIS"]
    assert pod["terminationGracePeriodSeconds"] >= load(ProcessSettings, environ).grace_s + FORCED_AFTER_GRACE_S
    said = (COMPONENT / "kustomization.yaml").read_text()
    assert all(f"{name}=" in said for name in SECRETS)


def test_it_is_asked_where_it_answers() -> None:
    (container,) = deployment()["template"]["spec"]["containers"]
    (port,) = container["ports"]
    settings = of_kind(OBJECTS, "ConfigMap")[NAME]["data"]
    assert settings["RUNR_HEALTH_ADDR"] == f"0.0.0.0:{port['containerPort']}"
    probes = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",  # it waits for Redis and for the engine, however long: no reason to be killed
        "readiness": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} == {port["name"]}


def test_it_may_do_nothing_that_it_does_not_need() -> None:
    pod = deployment()["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert of_kind(OBJECTS, "ServiceAccount")[NAME]["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"] == {"memory": container["resources"]["requests"]["memory"]}


def test_its_pods_are_chosen_by_their_labels_and_closed_like_those_of_the_engine() -> None:
    labels = deployment()["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "runr"  # the policy `closed` is for all of them
    policy = of_kind(OBJECTS, "NetworkPolicy")[NAME]["spec"]
    assert policy["policyTypes"] == ["Egress"]
    chosen = [
        deployment()["selector"],
        of_kind(OBJECTS, "PodDisruptionBudget")[NAME]["spec"]["selector"],
        policy["podSelector"],
    ]
    assert [each["matchLabels"] for each in chosen] == [labels] * 3
