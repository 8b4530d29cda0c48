"""What watches the engine asks for metrics that it has: alerts, dashboard, Prometheus's settings, pages. Each alert has
a page that says what to do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry

from services.cli.queue.meter import OF_A_CONSUMER
from services.cli.serve import SERVICES
from services.core.bus.subjects import CONSUMER, Subjects
from services.core.engine.run_spans import WAIT_WORDS
from services.core.runtime.metric_table import METRICS
from tests.support.manifests import DEPLOY, compose, documents, of_kind
from tests.support.pages import ROOT, page

KUBERNETES = DEPLOY / "kubernetes" / "components" / "prometheus"
RUNBOOKS = ROOT / "docs" / "runbooks"
(ALERTS,) = documents(DEPLOY / "observe" / "alerts.yaml")
(PROMETHEUS,) = documents(DEPLOY / "observe" / "prometheus.yaml")
(COLLECTOR,) = documents(DEPLOY / "observe" / "collector.yaml")
DASHBOARD = json.loads((DEPLOY / "observe" / "grafana" / "dashboards" / "runr.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]
SHOWN: list[str] = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]

SCRAPED = {"job", "instance", "component", "process", "service"}
"""Labels that every sample of ours may have, whatever it is of."""
FUNCTIONS = {
    "sum", "min", "max", "abs", "rate", "increase", "absent", "histogram_quantile", "avg_over_time",
    "by", "on", "ignoring", "and", "or",
}  # fmt: skip

_name = re.compile(r"\b[a-zA-Z_]\w*\b")
_braces = re.compile(r"\{([^{}]*)\}")
_grouping = re.compile(r"\b(?:by|on|ignoring) \(([^()]*)\)")
_matcher = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')


def _samples() -> Iterator[tuple[str, set[str]]]:
    """Every sample that there is, with its labels."""
    for metric in METRICS:
        labels = {*metric.labels, *SCRAPED}
        if metric.kind == "histogram":
            yield f"{metric.name}_bucket", {*labels, "le"}
            yield f"{metric.name}_sum", labels
            yield f"{metric.name}_count", labels
        else:
            yield metric.sample, labels
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for family in registry.collect():
        for sample in family.samples:
            yield sample.name, SCRAPED
    yield "up", SCRAPED
    spans = COLLECTOR["connectors"]["spanmetrics"]
    dimensions = {each["name"].replace(".", "_") for each in spans["dimensions"]}
    of_spans = {"service_name", "span_name", "span_kind", "status_code", *dimensions}
    prefix = spans["namespace"].replace(".", "_")
    yield f"{prefix}_calls_total", of_spans
    yield f"{prefix}_duration_seconds_bucket", {*of_spans, "le"}
    # Of prometheus-nats-exporter, with `-jsz=all`.
    for name in ("jetstream_consumer_num_pending", "jetstream_consumer_num_ack_pending"):
        yield name, {"stream_name", "consumer_name"}
    yield "jetstream_stream_total_messages", {"stream_name"}


SAMPLES = dict(_samples())
VALUES: dict[str, set[str]] = {
    "component": set(SERVICES),
    "job": {"runr"},
    "span_name": {"start", "claim", "invoke", "step", "run", *WAIT_WORDS.values()},
    "stream_name": {Subjects().stream, Subjects().dead_stream},
    "consumer_name": {CONSUMER},
    "served_by": {"any", "workers"},
    "state": {"used", "idle"},
    "duty": {"rehint"},
    "what": {"hinted"},
    "code": {"OK"},
    "kind": {"WorkflowError"},
    "status": {"failed", "timed_out", "429", "5..", "cut_off"},
}


def names_in(expr: str) -> set[str]:
    """The metrics that an expression asks for: its words that are neither labels nor of the language."""
    bare = re.sub(r"\[[^\]]*\]", "", _grouping.sub("", _braces.sub("", expr)))
    return {word for word in _name.findall(bare) if word not in FUNCTIONS and not word[0].isdigit()}


def faults(expr: str) -> list[str]:
    """What an expression asks for that does not exist."""
    names = names_in(expr)
    found = [f"no metric {name}" for name in sorted(names - SAMPLES.keys())]
    known = set().union(*(SAMPLES.get(name, set()) for name in names))
    for grouped in _grouping.findall(expr):
        found += [f"no label {label}" for label in re.findall(r"\w+", grouped) if label not in known]
    for name, inside in re.findall(r"(\w+)\{([^{}]*)\}", expr):
        for label, _, value in _matcher.findall(inside):
            if label not in SAMPLES.get(name, set()):
                found.append(f"{name} has no label {label}")
            found += [f"{label} is never {each}" for each in value.split("|") if each not in VALUES[label]]
    if expr.count("(") != expr.count(")") or expr.count("{") != expr.count("}"):
        found.append("brackets do not match")
    return found


def test_what_does_not_exist_is_found() -> None:
    assert faults('sum by (service) (rate(runr_runs_ended_total{status="failed"}[5m]))') == []
    assert faults("sum(rate(runr_runs_finished_total[5m]))") == ["no metric runr_runs_finished_total"]
    assert faults("sum by (tenant) (runr_queue_length)") == ["no label tenant"]
    assert faults('runr_queue_length{state="used"}') == ["runr_queue_length has no label state"]
    assert faults('runr_runs_ended_total{status="done"}') == ["status is never done"]
    assert faults("rate(runr_step_latency_seconds[5m])") == ["no metric runr_step_latency_seconds"]
    assert faults("sum(runr_queue_length") == ["brackets do not match"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is_and_has_a_page(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"]) == []
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+m", rule["for"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    runbook = (ROOT / rule["annotations"]["runbook"]).read_text(encoding="utf-8")
    assert runbook.startswith(f"# {rule['alert']}\n")
    assert "\n## Look\n" in runbook
    assert "\n## Do\n" in runbook
    assert rule["annotations"]["summary"].endswith(".")
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert any(label in SAMPLES[name] for name in names_in(rule["expr"]))


def test_every_page_is_of_an_alert() -> None:
    told = {rule["annotations"]["runbook"] for rule in RULES}
    assert {f"docs/runbooks/{path.name}" for path in RUNBOOKS.glob("*.md")} == told
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


def test_the_rules_of_the_operator_are_the_same() -> None:
    (rules,) = documents(KUBERNETES / "rules.yaml")
    assert (rules["apiVersion"], rules["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert rules["spec"]["groups"] == ALERTS["groups"]


@pytest.mark.parametrize("expr", SHOWN)
def test_the_dashboard_asks_for_what_there_is(expr: str) -> None:
    assert faults(expr) == []


def test_labels_of_the_dashboards_legends_are_left_by_its_expressions() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            kept = {label for labels in _grouping.findall(target["expr"]) for label in re.findall(r"\w+", labels)}
            if not _grouping.search(target["expr"]):
                kept = SCRAPED
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


def test_pages_name_only_metrics_that_there_are() -> None:
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    named = {
        name
        for each in [*pages, "deploy/README.md"]
        for name in re.findall(r"\b(?:runr|process)_[a-z_]+(?:_total|_seconds|_bytes|_bucket)\b", page(each).text)
    }
    known = {*SAMPLES, *(metric.sample for metric in OF_A_CONSUMER)}
    assert {name for name in named if not {name, f"{name}_bucket"} & known} == set()


def test_the_page_of_operations_names_every_metric_and_every_alert() -> None:
    text = page("docs/operations.md").text
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        assert f"\n| `{metric.sample}` | {metric.kind} | {labels} | {metric.help} |\n" in text
    assert [rule["alert"] for rule in RULES if f"[{rule['alert']}](" not in text] == []


def test_prometheus_asks_those_who_answer() -> None:
    parts = compose()["services"]
    jobs = {job["job_name"]: job["static_configs"] for job in PROMETHEUS["scrape_configs"]}
    targets = {target for each in jobs.values() for group in each for target in group["targets"]}
    assert {group["labels"]["component"]: group["targets"] for group in jobs["runr"]} == {
        name: [f"{name}:7200"] for name in SERVICES
    }
    assert targets == {*(f"{name}:7200" for name in SERVICES), "collector:8889", "nats-exporter:7777"}
    assert {each.split(":")[0] for each in targets} <= parts.keys()
    assert COLLECTOR["exporters"]["prometheus"]["endpoint"] == "0.0.0.0:8889"
    for file in PROMETHEUS["rule_files"]:
        assert f"./observe/{file}:/etc/prometheus/{file}:ro" in parts["prometheus"]["volumes"]


def test_the_operator_asks_every_service_and_is_let_in() -> None:
    monitor, policy = (documents(KUBERNETES / f"{name}.yaml")[0] for name in ("monitor", "network"))
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (monitor["kind"], endpoint["port"], endpoint["path"]) == ("PodMonitor", "health", "/metrics")
    assert {each["targetLabel"] for each in endpoint["relabelings"]} == {"job", "component"}
    assert endpoint["relabelings"][0]["replacement"] == "runr"
    assert monitor["spec"]["selector"] == policy["spec"]["podSelector"]
    (chosen,) = monitor["spec"]["selector"]["matchExpressions"]
    assert set(chosen["values"]) == set(SERVICES)
    deployments = of_kind(
        [each for name in SERVICES for each in documents(DEPLOY / "kubernetes" / "base" / f"{name}.yaml")], "Deployment"
    )
    for name in SERVICES:
        (container,) = deployments[name]["spec"]["template"]["spec"]["containers"]
        (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "health")
        assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]
