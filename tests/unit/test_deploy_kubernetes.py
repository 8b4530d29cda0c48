"""`deploy/kubernetes`: what the schemas of Kubernetes say, and what the program itself says to its manifests."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from services.cli.serve import SERVICES
from services.core.bus.subjects import CONSUMER, Subjects
from services.core.runtime.config import ConfigError
from tests.support.manifests import (
    DEPLOY,
    FORCED_AFTER_GRACE_S,
    SECRETS,
    check_start,
    documents,
    kustomized,
    of_kind,
    values,
    yaml_documents,
)

KUBERNETES = DEPLOY / "kubernetes"
PRODUCTION = KUBERNETES / "overlays" / "production"
OBJECTS = kustomized(PRODUCTION)
DEPLOYMENTS = of_kind(OBJECTS, "Deployment")
JOBS = of_kind(OBJECTS, "Job")
PODS = {name: each["spec"]["template"] for name, each in (DEPLOYMENTS | JOBS).items()}
FUNCTION = documents(DEPLOY / "knative" / "function.yaml")
CUSTOM = {"ScaledObject", "PodMonitor", "PrometheusRule", "serving.knative.dev/v1"}
OLDEST, NEWEST = "1.27", "1.37"


def _is_core(each: Any) -> bool:
    return not {each["kind"], each["apiVersion"]} & CUSTOM


def _name(each: Any) -> str:
    return f"{each['kind']}/{each['metadata']['name']}"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("each", [each for each in [*OBJECTS, *FUNCTION] if _is_core(each)], ids=_name)
def test_core_kinds_follow_their_schemas(each: Any, version: str) -> None:
    kubernetes_validate.validate(each, version, strict=True)


def test_a_field_that_does_not_exist_is_found() -> None:
    wrong = DEPLOYMENTS["gateway"] | {"spec": DEPLOYMENTS["gateway"]["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


def test_every_service_has_what_it_needs_to_run() -> None:
    assert set(DEPLOYMENTS) == set(SERVICES)
    for kind in ("Service", "PodDisruptionBudget"):
        assert set(of_kind(OBJECTS, kind)) == set(SERVICES), kind
    assert set(of_kind(OBJECTS, "ServiceAccount")) == set(PODS) == {*SERVICES, "migrate"}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_starts_with_its_command_and_environment(name: str, tmp_path: Path) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    grace_s = check_start(container["args"], _environment(container, tmp_path))

    assert container["args"] == (["migrate"] if name == "migrate" else ["serve", name])
    if name in SERVICES:
        assert PODS[name]["spec"]["terminationGracePeriodSeconds"] >= grace_s + FORCED_AFTER_GRACE_S


def test_a_variable_that_was_renamed_is_found(tmp_path: Path) -> None:
    (container,) = PODS["executor"]["spec"]["containers"]
    environ = _environment(container, tmp_path)

    with pytest.raises(AssertionError, match="RUNR_NO_SUCH"):
        check_start(["serve", "executor"], environ | {"RUNR_NO_SUCH": "1"})
    del environ["NATS_URL"]
    with pytest.raises(ConfigError, match="NATS_URL is not set"):
        check_start(["serve", "executor"], environ)
    with pytest.raises(SystemExit):
        check_start(["serve", "worker"], environ)


def _environment(container: Any, files: Path) -> dict[str, str]:
    """What the container's process sees; files of its mounts are put below `files`."""
    settings = of_kind(OBJECTS, "ConfigMap")
    environ: dict[str, str] = {}
    for source in container.get("envFrom", []):
        environ |= settings[source["configMapRef"]["name"]]["data"]
    for each in container.get("env", []):
        reference = each["valueFrom"]["secretKeyRef"]
        assert reference["name"] == "runr"
        assert reference["key"] == each["name"]
        environ[each["name"]] = SECRETS[each["name"]]
    for mount in container.get("volumeMounts", []):
        for name, value in environ.items():
            if value.startswith(f"{mount['mountPath']}/"):
                file = files / Path(value).name
                file.write_text("PEM")
                environ[name] = str(file)
    return environ


@pytest.mark.parametrize("name", PODS)
def test_a_pod_may_do_nothing_that_it_does_not_need(name: str) -> None:
    pod = PODS[name]["spec"]
    (container,) = pod["containers"]

    assert pod["serviceAccountName"] == name
    assert pod["automountServiceAccountToken"] is False
    assert of_kind(OBJECTS, "ServiceAccount")[name]["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert container["resources"]["limits"] == {"memory": container["resources"]["requests"]["memory"]}


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_asked_where_it_answers(name: str) -> None:
    (container,) = PODS[name]["spec"]["containers"]
    (settings,) = of_kind(OBJECTS, "ConfigMap").values()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    door = "http" if name == "gateway" else "grpc"

    assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}
    for port, variable in (("health", "RUNR_HEALTH_ADDR"), (door, f"RUNR_{door.upper()}_ADDR")):
        assert settings["data"][variable] == f"0.0.0.0:{ports[port]}"
    (service,) = of_kind(OBJECTS, "Service")[name]["spec"]["ports"]
    assert service["targetPort"] == door
    if name != "gateway":
        assert settings["data"][f"RUNR_{name.upper()}_ADDR"] == f"{name}:{service['port']}"
        assert of_kind(OBJECTS, "Service")[name]["spec"]["clusterIP"] == "None", "clients spread calls over addresses"


@pytest.mark.parametrize("name", SERVICES)
def test_selectors_choose_the_pods_of_their_service(name: str) -> None:
    labels = PODS[name]["metadata"]["labels"]
    budget = of_kind(OBJECTS, "PodDisruptionBudget")[name]["spec"]

    assert DEPLOYMENTS[name]["spec"]["selector"]["matchLabels"] == labels
    assert of_kind(OBJECTS, "Service")[name]["spec"]["selector"] == labels
    assert budget["selector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] == 1
    assert DEPLOYMENTS[name]["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_executors_are_scaled_by_the_backlog_of_their_consumer() -> None:
    (scaled,) = of_kind(OBJECTS, "ScaledObject").values()
    backlog, cpu = scaled["spec"]["triggers"]

    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    assert scaled["spec"].keys() == {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "advanced",
        "triggers",
    }
    assert scaled["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "executor"}
    assert 2 <= scaled["spec"]["minReplicaCount"] < scaled["spec"]["maxReplicaCount"]
    assert backlog["type"] == "nats-jetstream"
    assert backlog["metadata"].keys() == {
        "natsServerMonitoringEndpoint",
        "account",
        "stream",
        "consumer",
        "lagThreshold",
    }
    assert all(isinstance(value, str) for trigger in (backlog, cpu) for value in trigger["metadata"].values())
    assert (backlog["metadata"]["stream"], backlog["metadata"]["consumer"]) == (Subjects().stream, CONSUMER)
    assert (cpu["type"], cpu["metricType"], cpu["metadata"].keys()) == ("cpu", "Utilization", {"value"})


def test_the_behaviour_that_keda_hands_on_is_one_of_an_autoscaler() -> None:
    (scaled,) = of_kind(OBJECTS, "ScaledObject").values()
    autoscaler = of_kind(OBJECTS, "HorizontalPodAutoscaler")["gateway"]
    behaviour = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    combined = autoscaler | {"spec": autoscaler["spec"] | {"behavior": behaviour}}

    kubernetes_validate.validate(combined, NEWEST, strict=True)


def test_who_is_scaled_has_no_number_of_its_own() -> None:
    scalers = [*of_kind(OBJECTS, "HorizontalPodAutoscaler").values(), *of_kind(OBJECTS, "ScaledObject").values()]
    targets = {each["spec"]["scaleTargetRef"]["name"] for each in scalers}
    freed: set[str] = set()
    for folder in (PRODUCTION, KUBERNETES / "components" / "keda"):
        (kustomization,) = documents(folder / "kustomization.yaml")
        for patch in kustomization["patches"]:
            assert patch["target"]["kind"] == "Deployment"
            assert yaml.safe_load(patch["patch"]) == [{"op": "remove", "path": "/spec/replicas"}]
            freed |= set(patch["target"]["name"].split("|"))

    assert targets == freed
    assert all(each["spec"]["replicas"] == 2 for each in DEPLOYMENTS.values())


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_builds_what_was_read_here() -> None:
    build = subprocess.run(["kubectl", "kustomize", PRODUCTION], capture_output=True, text=True, check=True, timeout=60)
    built = yaml_documents(build.stdout)

    assert sorted(map(_name, built)) == sorted(map(_name, OBJECTS))
    assert {name for name, each in of_kind(built, "Deployment").items() if "replicas" in each["spec"]} == {"scheduler"}
    for each in built:
        assert each["kind"] == "Namespace" or each["metadata"]["namespace"] == "runr"
        if _is_core(each):
            kubernetes_validate.validate(each, NEWEST, strict=True)


def test_no_manifest_holds_a_secret() -> None:
    everything = [*OBJECTS, *FUNCTION]

    assert not of_kind(everything, "Secret")
    for value in values(everything):
        assert not re.search(r"://[^/\s]*:[^/\s]*@", str(value)), value
    for pod in PODS.values():
        for container in pod["spec"]["containers"]:
            assert all("value" not in each for each in container.get("env", []))


def test_the_function_is_one_that_knative_takes() -> None:
    service = FUNCTION[0]
    pod = service["spec"]["template"]["spec"]

    assert (service["apiVersion"], service["kind"]) == ("serving.knative.dev/v1", "Service")
    assert service["spec"].keys() == {"template"}
    # Of a pod's fields Knative takes few; these it has always taken.
    assert pod.keys() == {"timeoutSeconds", "serviceAccountName", "containers"}
    assert pod["serviceAccountName"] in of_kind(FUNCTION, "ServiceAccount")
    annotations = service["spec"]["template"]["metadata"]["annotations"]
    assert annotations
    assert all(name.startswith("autoscaling.knative.dev/") for name in annotations)
    assert all(isinstance(value, str) for value in annotations.values())
