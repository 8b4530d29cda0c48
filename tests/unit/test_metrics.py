"""What is counted in a process, and the text that Prometheus reads of it, of one process and of several."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib.metadata import version

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from services.core.runtime.exposition import Exposition
from services.core.runtime.loop_lag import watch_loop
from services.core.runtime.merged_metrics import merged
from services.core.runtime.metric_table import LOOP_LAG, METRICS
from services.core.runtime.metrics import MOST_CHILDREN, OTHER, Family, Metric, Metrics
from tests.support.waiting import until

CALLS = Metric("test_calls", "counter", "Calls.", ("method",))
SIZE = Metric("test_size", "gauge", "Size.")
TOOK = Metric("test_took_seconds", "histogram", "How long it took.", bounds=(0.1, 1.0))

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    """Every sample by its name and labels, as Prometheus's own parser reads it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


async def text_of(*services: Metrics) -> str:
    return (await Exposition(services).text()).decode()


async def test_everything_that_is_counted_is_told_with_its_service() -> None:
    metrics = Metrics("ingest")
    metrics.counter(CALLS, "start").add(2)
    metrics.counter(CALLS, "start").add()
    for took in (0.05, 0.1, 0.5, 7.0):
        metrics.histogram(TOOK).observe(took)
    metrics.watch(SIZE, lambda: 4)
    samples = read(await text_of(metrics))
    assert samples[key("test_calls_total", service="ingest", method="start")] == 3
    assert samples[key("test_size", service="ingest")] == 4
    buckets = {bound: samples[key("test_took_seconds_bucket", service="ingest", le=bound)] for bound in ("0.1", "1.0")}
    assert buckets == {"0.1": 2, "1.0": 3}  # a value that is a bound belongs to it
    assert samples[key("test_took_seconds_bucket", service="ingest", le="+Inf")] == 4
    assert samples[key("test_took_seconds_count", service="ingest")] == 4
    assert samples[key("test_took_seconds_sum", service="ingest")] == pytest.approx(7.65)


async def test_every_service_tells_which_version_it_is() -> None:
    samples = read(await text_of(Metrics("gateway"), Metrics("ingest")))
    for service in ("gateway", "ingest"):
        assert samples[key("runr_build_info", service=service, version=version("runr-engine"))] == 1


async def test_the_process_itself_is_told_too() -> None:
    names = {name for name, _ in read(await text_of(Metrics("gateway")))}
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"} <= names


async def test_two_services_of_one_process_are_in_one_family() -> None:
    services = Metrics("ingest"), Metrics("gateway")
    for metrics in services:
        metrics.counter(CALLS, "start").add()
    text = await text_of(*services)
    assert text.count("# TYPE test_calls_total counter") == 1
    assert {key("test_calls_total", service=each, method="start") for each in ("ingest", "gateway")} <= read(
        text
    ).keys()


async def test_what_there_is_nothing_to_tell_of_is_not_told() -> None:
    metrics = Metrics("scheduler")
    metrics.watch(SIZE, lambda: None)
    assert "test_size" not in await text_of(metrics)


def test_a_label_cannot_fill_a_memory() -> None:
    metrics = Metrics("gateway")
    for number in range(MOST_CHILDREN * 2):
        metrics.counter(CALLS, f"method-{number}").add()
    (family,) = metrics.families()
    assert len(family.numbers) == MOST_CHILDREN + 1
    assert family.numbers[(OTHER,)] == MOST_CHILDREN
    metrics.counter(CALLS, "method-0").add()
    assert metrics.counter(CALLS, "method-0").value == 2


@given(st.lists(st.floats(min_value=0, max_value=10), max_size=50))
def test_a_histogram_loses_no_value(values: list[float]) -> None:
    metrics = Metrics("executor")
    for value in values:
        metrics.histogram(TOOK).observe(value)
    families: Iterable[Family] = metrics.families()
    histogram = next((family.histograms[()] for family in families), None)
    if histogram is None:
        assert not values
        return
    assert sum(histogram.counts) == len(values)
    assert histogram.counts[0] == sum(value <= 0.1 for value in values)
    assert histogram.total == pytest.approx(sum(values))


labels = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)


@given(st.dictionaries(labels, st.integers(0, 2**40), max_size=4))
async def test_metrics_of_several_processes_are_one_text(counts: dict[str, int]) -> None:
    # Escaped characters in labels, and families that only one of the processes has.
    metrics = Metrics("executor")
    for label, count in counts.items():
        metrics.counter(CALLS, label).add(count)
    alone = await text_of(metrics)
    together = read(merged({"0": alone, "1": alone, "parent": "# TYPE test_size gauge\ntest_size 1\n"}))
    own = {key for key in read(alone) if key[0].startswith("test_")}
    assert len(own) == len(counts)
    for name, values in own:
        for process in ("0", "1"):
            assert together[name, values | {("process", process)}] == counts[dict(values)["method"]]
    assert together[key("test_size", process="parent")] == 1


def test_a_family_of_several_processes_stands_together() -> None:
    lines = merged({str(n): '# HELP a A.\n# TYPE a counter\na_total 1\n# TYPE b gauge\nb{x="1"} 2\n' for n in (0, 1)})
    assert lines.splitlines() == [
        "# HELP a A.",
        "# TYPE a counter",
        'a_total{process="0"} 1',
        'a_total{process="1"} 1',
        "# TYPE b gauge",
        'b{process="0",x="1"} 2',
        'b{process="1",x="1"} 2',
    ]


async def test_the_lag_of_the_loop_is_looked_at_while_it_runs() -> None:
    metrics = Metrics("executor")
    watching = asyncio.create_task(watch_loop(metrics))
    await until(lambda: sum(metrics.histogram(LOOP_LAG).counts))
    watching.cancel()


def test_every_metric_is_named_as_prometheus_asks() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("runr_")
        assert not metric.name.endswith(("_total", "_bucket", "_count", "_sum"))
        assert metric.help.endswith("."), metric.name
        assert (metric.kind == "histogram") == bool(metric.bounds), metric.name
        assert list(metric.bounds) == sorted(set(metric.bounds)), metric.name


def test_no_metric_grows_with_what_users_do() -> None:
    bounded = {"service", "process", "pool", "state", "method", "code", "route", "status", "outcome", "source", "kind"}
    bounded |= {"served_by", "duty", "what", "version"}
    assert {label for metric in METRICS for label in metric.labels} <= bounded
