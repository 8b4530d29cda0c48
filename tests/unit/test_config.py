"""Settings: what the environment may say, and how a service refuses what it may not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.core.runtime import parse, settings
from services.core.runtime.config import ConfigError, describe, load, setting, variables
from services.core.runtime.parse import Address
from services.core.runtime.settings import (
    DatabaseSettings,
    EncryptionSettings,
    FunctionSettings,
    LeaseSettings,
    ListenSettings,
    NatsSettings,
    RpcSecuritySettings,
    WorkflowLimits,
)

PASSWORD = "s3cret-password"
URL = f"postgresql://runr:{PASSWORD}@db.example:5432/runr?sslmode=require"


@dataclass(frozen=True)
class Everything:
    """A service that nests what it needs."""

    database: DatabaseSettings
    nats: NatsSettings
    listen: ListenSettings
    lease: LeaseSettings
    limits: WorkflowLimits
    encryption: EncryptionSettings


GOOD = {"DATABASE_URL": URL, "NATS_URL": "nats://localhost:4222", "RUNR_ENCRYPTION_KEY": "00" * 32}


def test_defaults_are_those_of_the_specification() -> None:
    loaded = load(Everything, GOOD)
    assert loaded.limits.event_bytes == 256 * 1024
    assert loaded.limits.wait_timeout_ms == 7 * 86_400_000
    assert loaded.limits.steps_per_run == 10_000
    assert loaded.lease.ttl_s == 30
    assert loaded.lease.heartbeat_s == 3
    functions = load(FunctionSettings, {})
    assert (functions.request_timeout_s, functions.connect_timeout_s) == (300, 10)
    assert functions.verify_tls is True
    assert functions.allow_private is False
    assert functions.key_rotation_grace_ms == 86_400_000


def test_values_are_parsed_into_their_types() -> None:
    environ = {
        **GOOD,
        "RUNR_HTTP_ADDR": "[::1]:9000",
        "WORKFLOWS_WAIT_TIMEOUT": "2h",
        "WORKFLOWS_MAX_EVENT_SIZE": "1MiB",
        "WORKFLOWS_LEASE_TTL": "1.5m",
    }
    loaded = load(Everything, environ)
    assert loaded.listen.http == Address("::1", 9000)
    assert str(loaded.listen.http) == "[::1]:9000"
    assert loaded.limits.wait_timeout_ms == 7_200_000
    assert loaded.limits.event_bytes == 1 << 20
    assert loaded.lease.ttl_s == 90
    assert loaded.encryption.key == bytes(32)


def test_every_fault_is_named_at_once_with_what_is_allowed() -> None:
    environ = {
        "NATS_URL": "http://x",
        "RUNR_HTTP_ADDR": "8080",
        "WORKFLOWS_MAX_STEPS": "0",
        "RUNR_ENCRYPTION_KEY": "ab",
    }
    with pytest.raises(ConfigError) as caught:
        load(Everything, environ)
    faults = caught.value.faults
    assert len(faults) == 5
    assert "DATABASE_URL is not set" in faults
    assert any(fault.startswith("NATS_URL must be a URL that starts with nats://") for fault in faults)
    assert any(fault.startswith("RUNR_HTTP_ADDR must be host:port") for fault in faults)
    assert any(fault.startswith("WORKFLOWS_MAX_STEPS must be a whole number from 1 to") for fault in faults)
    assert any(fault.startswith("RUNR_ENCRYPTION_KEY must be 32 bytes") for fault in faults)


def test_a_wrong_secret_is_not_repeated_in_the_fault() -> None:
    wrong = "super-secret-but-wrong"
    with pytest.raises(ConfigError) as caught:
        load(EncryptionSettings, {"RUNR_ENCRYPTION_KEY": wrong})
    assert wrong not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(DatabaseSettings, {"DATABASE_URL": f"mysql://u:{PASSWORD}@h/d"})
    assert PASSWORD not in str(caught.value)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="WORKFLOWS_HEARTBEAT must be at most a third of WORKFLOWS_LEASE_TTL"):
        load(LeaseSettings, {"WORKFLOWS_LEASE_TTL": "6", "WORKFLOWS_HEARTBEAT": "3"})


def test_printing_settings_shows_no_secret() -> None:
    loaded = load(Everything, GOOD)
    shown = describe(loaded)
    assert shown["DATABASE_URL"] == "postgresql://runr:***@db.example:5432/runr"
    assert shown["RUNR_ENCRYPTION_KEY"] == "***"
    assert shown["WORKFLOWS_MAX_STEPS"] == "10000"
    assert PASSWORD not in repr(loaded)
    assert PASSWORD not in str(shown)


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load(ListenSettings, {"RUNR_HTTP_ADDR": ""}).http == Address("127.0.0.1", 8080)


def test_every_variable_is_declared_once() -> None:
    classes = [
        value
        for value in vars(settings).values()
        if dataclasses.is_dataclass(value) and isinstance(value, type) and value.__module__ == settings.__name__
    ]
    declared = [variable for cls in classes for variable in variables(cls)]
    assert len(classes) >= 10
    assert len(declared) == len(set(declared))


@pytest.mark.parametrize("raw", ["-1", "10 s", "", "1w", "1e3", "nan", "∞", "9" * 13, "0.05s"])
def test_durations_outside_the_grammar_or_range_are_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=r"must be a duration from 0\.1 s to 60 s"):
        parse.seconds(0.1, 60)(raw)


@pytest.mark.parametrize("raw", ["localhost", ":80", "h:", "h:65536", "h:-1", "::1:80", "h:8²", "[::1]"])
def test_addresses_outside_the_grammar_are_refused(raw: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse.address(raw)


@pytest.mark.parametrize(
    ("raw", "expected"), [("true", True), ("NO", False), ("1", True), ("off", False), ("Yes", True)]
)
def test_booleans(raw: str, expected: bool) -> None:
    assert parse.boolean(raw) is expected


def test_origins() -> None:
    assert parse.origins("https://a.example, http://[::1]:8080") == ("https://a.example", "http://[::1]:8080")
    for wrong in (
        "a.example",
        "https://a.example/",
        "https://a.example/x",
        "https://a?b",
        "ftp://a",
        "https://a:99999",
        ",",
    ):
        with pytest.raises(ValueError, match="list of origins"):
            parse.origins(wrong)


def test_networks() -> None:
    assert [str(network) for network in parse.networks("10.0.0.0/8, fd00::/8")] == ["10.0.0.0/8", "fd00::/8"]
    with pytest.raises(ValueError, match="comma-separated"):
        parse.networks("10.0.0.1/8")


def test_a_setting_without_default_is_required() -> None:
    @dataclass(frozen=True)
    class One:
        value: int = setting("RUNR_ONE", parse.integer(1, 2))

    with pytest.raises(ConfigError, match="RUNR_ONE is not set"):
        load(One, {})
    assert load(One, {"RUNR_ONE": "2"}).value == 2


def test_tls_files_come_together_and_exclude_plaintext(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.touch()
    whole = {f"RUNR_GRPC_TLS_{part}": str(pem) for part in ("CERT", "KEY", "CA")}
    assert load(RpcSecuritySettings, whole).certificate == str(pem)
    with pytest.raises(ConfigError, match="must be set together"):
        load(RpcSecuritySettings, {"RUNR_GRPC_TLS_CERT": str(pem)})
    with pytest.raises(ConfigError, match="RUNR_GRPC_PLAINTEXT must be false"):
        load(RpcSecuritySettings, {**whole, "RUNR_GRPC_PLAINTEXT": "true"})
    with pytest.raises(ConfigError, match="RUNR_GRPC_TLS_KEY must be the path of a readable file"):
        load(RpcSecuritySettings, {**whole, "RUNR_GRPC_TLS_KEY": str(tmp_path / "absent")})
