"""`deploy/kubernetes/base/network.yaml`: who may talk to whom is what the services do, and nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from services.cli.serve import SERVICES
from services.core.runtime.config import variables
from tests.support.manifests import DEPLOY, documents

POLICIES = [each["spec"] for each in documents(DEPLOY / "kubernetes" / "base" / "network.yaml")]
GRPC, HTTP, POSTGRES, NATS, OTLP, DNS = 7100, 8080, 5432, 4222, 4318, 53
READS = {name: set(variables(import_module(f"services.{name}.app").Settings)) for name in SERVICES} | {
    "migrate": {"DATABASE_URL"}
}
GRPC_SERVERS = ("ingest", "scheduler", "executor")
WORKER = {"runr-worker": "true"}
CLIENT = {"runr-grpc-client": "true"}
Labels = Mapping[str, str]


def pod(component: str) -> Labels:
    """The labels of a pod of the engine."""
    return {"app.kubernetes.io/name": "runr", "app.kubernetes.io/component": component}


def _chosen(selector: Any, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )


def _is_peer(peer: Any, other: Labels | str, *, same_namespace: bool) -> bool:
    if isinstance(other, str):
        block = peer.get("ipBlock")
        address = ipaddress.ip_address(other)
        return block is not None and (
            address in ipaddress.ip_network(block["cidr"])
            and not any(address in ipaddress.ip_network(each) for each in block["except"])
        )
    if "podSelector" not in peer or not (same_namespace or "namespaceSelector" in peer):
        return False
    return _chosen(peer["podSelector"], other)


def _allows(
    direction: str, owner: Labels, other: Labels | str, port: int, *, protocol: str = "TCP", same_namespace: bool = True
) -> bool:
    """What NetworkPolicies mean: a pod that none chooses is open; else one rule of any that chooses it must fit."""
    applied = [each for each in POLICIES if _chosen(each["podSelector"], owner) and direction in each["policyTypes"]]
    sides = {"Ingress": ("ingress", "from"), "Egress": ("egress", "to")}
    rules_key, peers_key = sides[direction]
    for rule in (rule for policy in applied for rule in policy.get(rules_key, [])):
        fits = any((each["protocol"], each["port"]) == (protocol, port) for each in rule.get("ports", []))
        open_to_all = "ports" not in rule
        peers = rule.get(peers_key)
        if (fits or open_to_all) and (
            peers is None or any(_is_peer(peer, other, same_namespace=same_namespace) for peer in peers)
        ):
            return True
    return not applied


@pytest.mark.parametrize("target", READS)
@pytest.mark.parametrize("source", READS)
def test_only_the_gateway_calls_the_others(source: str, target: str) -> None:
    both = [_allows("Egress", pod(source), pod(target), GRPC), _allows("Ingress", pod(target), pod(source), GRPC)]

    assert all(both) == (source == "gateway" and target in GRPC_SERVERS)
    if source == "gateway":
        # Whom it may call is whom it has an address of.
        assert all(both) == (f"RUNR_{target.upper()}_ADDR" in READS["gateway"])


@pytest.mark.parametrize("name", READS)
def test_each_reaches_the_servers_whose_address_it_reads(name: str) -> None:
    assert _allows("Egress", pod(name), {}, POSTGRES) == ("DATABASE_URL" in READS[name])
    if name != "executor":
        assert _allows("Egress", pod(name), "198.51.100.7", NATS) == ("NATS_URL" in READS[name])
    assert _allows("Egress", pod(name), {}, NATS) == ("NATS_URL" in READS[name])
    assert _allows("Egress", pod(name), {}, OTLP)
    assert _allows("Egress", pod(name), {}, DNS, protocol="UDP")


@pytest.mark.parametrize("name", READS)
def test_functions_are_called_by_executors_and_only_in_public(name: str) -> None:
    for address in ("8.8.8.8", "2606:4700::1111"):
        assert _allows("Egress", pod(name), address, 443) == (name == "executor")
    for address in ("10.0.0.1", "172.20.1.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "fd00::1", "fe80::1"):
        assert not _allows("Egress", pod(name), address, 443)


def test_callers_reach_the_gateway_alone() -> None:
    outsider = {"app": "anything"}
    for name in READS:
        assert _allows("Ingress", pod(name), outsider, HTTP, same_namespace=False) == (name == "gateway")
        assert not _allows("Ingress", pod(name), outsider, GRPC, same_namespace=False)


def test_workers_and_clients_of_grpc_are_let_in_by_their_labels() -> None:
    for name in READS:
        assert _allows("Ingress", pod(name), WORKER, GRPC, same_namespace=False) == (name == "executor")
        assert _allows("Ingress", pod(name), CLIENT, GRPC, same_namespace=False) == (name in GRPC_SERVERS)
