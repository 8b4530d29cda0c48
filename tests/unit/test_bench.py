"""The arithmetic of the benchmark: percentiles, medians, lines, the table, and what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import table
from tests.bench.__main__ import parser
from tests.bench.child import until
from tests.bench.figures import Figure, Line, labelled, lines_of, percentile, read_line, rounded, spread_ms
from tests.bench.lean_client import parse
from tests.bench.profile import read_profile
from tests.bench.stack import duty_of
from tests.bench.targets import ROWS, Row
from tests.bench.transport import TRANSPORTS
from tests.bench.workloads.catalogue import workloads
from tests.bench.workloads.steps import gaps

NUMBERS = st.lists(st.floats(min_value=0, max_value=1e9), min_size=1)


@given(NUMBERS, st.floats(min_value=0, max_value=100))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    needed = len(values) * percent / 100
    assert sum(value <= found for value in values) >= needed - 1e-9
    smaller = [value for value in values if value < found]
    assert not smaller or len(smaller) < needed + 1e-9


def test_percentiles_of_a_hundred_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, percent) for percent in (0, 1, 50, 99, 100)] == [1, 1, 50, 99, 100]


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_a_spread_is_in_milliseconds() -> None:
    found = spread_ms("late", [0.001, 0.002, 0.003])
    assert [(each.metric, each.value, each.unit) for each in found] == [
        ("late_p50_ms", 2.0, "ms"),
        ("late_p99_ms", 3.0, "ms"),
        ("late_max_ms", 3.0, "ms"),
    ]


def test_runs_become_medians_of_equal_metric_and_labels() -> None:
    runs = [
        [Figure("steps_per_s", value, "1/s"), Figure("cpu_s", cpu, "s", {"process": "executor"})]
        for value, cpu in ((10.0, 1.0), (30.0, 2.0), (20.0, 9.0))
    ]
    runs[1].append(Figure("cpu_s", 5.0, "s", {"process": "nats"}))
    found = lines_of("runr", "W2", "http", runs)
    assert [(line.metric, dict(line.labels), line.value, line.values) for line in found] == [
        ("steps_per_s", {}, 20.0, (10.0, 30.0, 20.0)),
        ("cpu_s", {"process": "executor"}, 2.0, (1.0, 2.0, 9.0)),
        ("cpu_s", {"process": "nats"}, 5.0, (5.0,)),
    ]


def test_a_line_is_one_json_object() -> None:
    line = Line("runr", "W3", "http", "starts_per_s", "1/s", (5321.04, 5000.0, 6000.0), {"mode": "batch"})
    assert json.loads(line.json()) == {
        "engine": "runr",
        "workload": "W3",
        "transport": "http",
        "metric": "starts_per_s",
        "value": 5321.0,
        "unit": "1/s",
        "mode": "batch",
        "runs": [5321.0, 5000.0, 6000.0],
    }
    assert "\n" not in line.json()


@given(NUMBERS)
def test_a_line_is_read_as_it_was_written(values: list[float]) -> None:
    line = Line("runr", "W2", "http", "cpu_s", "s", tuple(rounded(value) for value in values), {"process": "executor"})
    assert read_line(line.json()) == line


def test_labels_are_added_and_stay() -> None:
    (found,) = labelled([Figure("cpu_s", 1.0, "s", {"process": "nats"})], mode="batch")
    assert found.labels == {"mode": "batch", "process": "nats"}


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_rounding_keeps_four_digits(value: float) -> None:
    assert rounded(value) == pytest.approx(value, rel=5e-4)
    assert rounded(rounded(value)) == rounded(value)


def test_the_time_of_a_step_is_from_body_to_body_of_its_own_run() -> None:
    assert gaps([("a", 0, 1.0), ("b", 0, 1.5), ("a", 1, 1.25), ("b", 1, 3.5), ("a", 2, 2.0)]) == [0.25, 0.75, 2.0]


def line(engine: str, transport: str, value: float, metric: str = "steps_per_s", workload: str = "W2") -> Line:
    return Line(engine, workload, transport, metric, "1/s", (value,))


def test_the_table_tells_targets_and_ratios() -> None:
    lines = [
        line("runr", "http", 5_500),
        line("runr", "stream", 8_000),
        line("restate-ts", "", 2_500),
        line("dbos", "", 200),
        Line("runr", "W3", "http", "starts_per_s", "1/s", (21_000,), {"mode": "batch"}),
    ]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.results(lines).splitlines()]
    assert rows[0] == [
        "", "figure", "RunR, http", "RunR, stream", "target", "met", "restate-ts", "dbos",
        "http to best peer", "stream to best peer",
    ]  # fmt: skip
    assert rows[2][2:] == ["5,500", "8,000", "≥ 5,000 / 9,000", "yes / NO", "2,500", "200", "2.2×", "3.2×"]
    assert rows[3][2:] == ["21,000", "–", "≥ 20,000", "yes / –", "–", "–", "–", "–"]


def test_a_ratio_that_is_missed_is_a_target_that_is_missed() -> None:
    shown = table.results([line("runr", "http", 5_500), line("restate-ts", "", 2_800)])
    assert "| NO " in shown


def test_less_can_be_better() -> None:
    row = Row("W4", "late_p99_ms", "", "ms", bounds={"http": 10})
    assert row.is_met(10, "http")
    assert not row.is_met(10.1, "http")
    assert row.is_met(5, "stream") is None
    assert row.ratio(5, 20) == 4
    assert row.best([3, 2]) == 2
    assert row.ratio(0, 2) is None


def test_the_worst_of_several_processes_is_shown() -> None:
    row = next(row for row in ROWS if row.metric == "memory_x")
    lines = [
        Line("runr", "W6", "http", "memory_x", "x", (value,), {"process": process, "asleep": 100})
        for process, value in (("gateway", 1.0), ("executor", 1.4), ("ingest", 1.1))
    ]
    assert row.find(lines, "runr", "http") == 1.4


def test_a_total_is_not_mistaken_for_that_of_a_process() -> None:
    row = next(row for row in ROWS if row.metric == "cpu_pct")
    lines = [
        Line("runr", "W6", "http", "cpu_pct", "%", (1.5,), {"asleep": 100}),
        Line("runr", "W6", "http", "cpu_pct", "%", (9.0,), {"asleep": 100, "process": "driver"}),
    ]
    assert row.find(lines, "runr", "http") == 1.5


def test_rows_are_of_workloads_that_exist() -> None:
    assert {row.workload for row in ROWS} <= set(workloads(asleep=1))
    assert {"http"} <= set(TRANSPORTS)


def test_costs_are_a_row_a_workload() -> None:
    lines = [
        Line("runr", "W2", "http", "cpu_us_per_op", "us", (781.0,), {"process": "executor"}),
        Line("runr", "W2", "http", "cpu_us_per_op", "us", (338.0,), {"process": "postgres"}),
        Line("runr", "W2", "http", "peak_mb", "MiB", (57.6,), {"process": "executor"}),
    ]
    shown = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.costs(lines).splitlines()]
    assert shown[0] == ["workload", "contender", "what", "executor", "postgres"]
    assert shown[2:] == [["W2", "runr http", "CPU, us/op", "781", "338"], ["W2", "runr http", "memory, MiB", "58", "–"]]


def test_options_name_what_there_is() -> None:
    assert parser().parse_args([]).only == ["W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "growth", "kit"]
    assert set(parser().parse_args(["--only", "strain"]).only).isdisjoint(parser().parse_args([]).only)
    assert parser().parse_args(["--only", "W3,W1"]).only == ["W3", "W1"]
    assert parser().parse_args(["--peers", "all"]).peers[0] == "restate-ts"
    with pytest.raises(SystemExit):
        parser().parse_args(["--only", "W99"])


WHOLE = [
    pytest.param(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}", (201, b"{}"), id="length"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", (204, b""), id="no body"),
    pytest.param(
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=y\r\n":1}\r\n0\r\n\r\n',
        (200, b'{"a":1}'),
        id="chunks",
    ),
]


@pytest.mark.parametrize(("data", "answer"), WHOLE)
def test_an_answer_is_whole_at_its_last_byte(data: bytes, answer: tuple[int, bytes]) -> None:
    assert parse(data) == answer
    assert all(parse(data[:end]) is None for end in range(len(data)))


def test_processes_are_told_apart_by_their_commands() -> None:
    assert duty_of(["python", "-P", "-m", "services.cli.main", "serve", "executor", ""]) == "executor"
    assert duty_of(["/x/bin/postgres", "-D", "/y"]) == "postgres"
    assert duty_of(["postgres: runr runr 127.0.0.1(1) idle", ""]) == "postgres"
    assert duty_of(["/x/bin/nats-server", "-c"]) == "nats"
    assert duty_of(["python", "-m", "services.embedded.keeper"]) is None
    assert duty_of([]) is None


def test_a_profile_counts_the_main_thread_at_work() -> None:
    frames = "main (/r/services/cli/main.py:60);Runner.run (asyncio/runners.py:118)"
    profile = read_profile(
        [
            f"{frames};uv_run (core.c:4);call (services/executor/drive.py:3);hmac_new (_hashopenssl.c:1) 3",
            f"{frames};uv_run (core.c:4);epoll_wait (libc.so.6) 90",
            f"{frames};uv_run (core.c:4);0x12 (lib.so);write (libc.so.6) 1",
            "Thread._bootstrap (threading.py:1);wait (services/core/runtime/parent.py:2);read (libc.so.6) 90",
        ]
    )
    assert profile.samples == 4
    assert dict(profile.own) == {"call (services/executor/drive.py)": 3, "event loop: write": 1}
    assert profile.total["main (services/cli/main.py)"] == 4
    assert "| 75.0 | `call (services/executor/drive.py)` |" in profile.markdown()


@pytest.mark.parametrize("every_s", [0, 0.0, lambda: 0.0])
async def test_what_is_waited_for_is_asked_for_again_after_any_pause(every_s: float | Callable[[], float]) -> None:
    answers = iter((False, False, True))

    async def holds() -> bool:
        return next(answers)

    await until(holds, within_s=10, what="it holds", every_s=every_s)
    assert next(answers, None) is None
