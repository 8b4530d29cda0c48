"""`deploy/systemd`: units that systemd takes, and that start what the program is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from services.cli.serve import SERVICES
from services.core.runtime.service import EXIT_USAGE
from tests.support.manifests import DEPLOY, FORCED_AFTER_GRACE_S, SECRETS, check_start, environment_file

SYSTEMD = DEPLOY / "systemd"
SERVICE = SYSTEMD / "runr@.service"
MIGRATE = SYSTEMD / "runr-migrate.service"
UNITS = ["runr.target", "runr-migrate.service", *(f"runr@{name}.service" for name in SERVICES)]
ENVIRONMENT = environment_file(SYSTEMD / "runr.env")
PROGRAM = "/opt/runr/bin/runr"
HARDENED = {
    "DynamicUser": "yes",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallFilter": "@system-service",
    "UMask": "0077",
}


def _options(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, given, value = line.partition("=")
        if given and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def _arguments(path: Path, instance: str = "") -> list[str]:
    program, *arguments = _options(path)["ExecStart"][0].replace("%i", instance).split()
    assert program == PROGRAM
    return arguments


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_with_the_file_that_an_operator_fills_in(name: str) -> None:
    of_others = {"scheduler": set[str]()}.get(name, {"RUNR_BOOTSTRAP_TOKEN"})
    if name == "gateway":
        of_others = {*SECRETS}
    environ = {key: value or SECRETS[key] for key, value in ENVIRONMENT.items() if key not in of_others}
    grace_s = check_start(_arguments(SERVICE, name), environ)

    (stop,) = _options(SERVICE)["TimeoutStopSec"]
    assert float(stop) >= grace_s + FORCED_AFTER_GRACE_S


def test_the_migrations_start_with_it_too() -> None:
    check_start(_arguments(MIGRATE), {"DATABASE_URL": SECRETS["DATABASE_URL"]})
    assert _options(MIGRATE)["Type"] == ["oneshot"]
    assert MIGRATE.name in _options(SERVICE)["After"][0]


def test_the_file_has_no_secret_in_it() -> None:
    assert {name for name, value in ENVIRONMENT.items() if not value} == SECRETS.keys()
    assert _options(SERVICE)["EnvironmentFile"] == ["/etc/runr/runr.env", "-/etc/runr/%i.env"]
    assert _options(MIGRATE)["EnvironmentFile"] == ["/etc/runr/runr.env"]


@pytest.mark.parametrize("path", [SERVICE, MIGRATE], ids=lambda path: path.name)
def test_a_service_may_do_little(path: Path) -> None:
    options = _options(path)
    for name, value in HARDENED.items():
        assert options[name] == [value]


def test_what_ends_comes_back_unless_its_settings_are_wrong() -> None:
    for path in (SERVICE, MIGRATE):
        assert _options(path)["RestartPreventExitStatus"] == [str(EXIT_USAGE)]
    assert _options(SERVICE)["Restart"] == ["always"]
    assert _options(SERVICE)["StartLimitIntervalSec"] == ["0"]
    assert _options(SERVICE)["KillMode"] == ["mixed"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(unit: str, tmp_path: Path) -> None:
    verified = _analyze("verify", unit, root=_machine(tmp_path))

    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_addition_for_tls(tmp_path: Path) -> None:
    root = _machine(tmp_path)
    folder = root / "etc/systemd/system/runr@.service.d"
    folder.mkdir()
    shutil.copy(SYSTEMD / "tls.conf", folder)
    verified = _analyze("verify", "runr@ingest.service", root=root)

    assert (verified.returncode, verified.stderr) == (0, "")


def test_the_addition_for_tls_names_the_files_that_it_hands_over(tmp_path: Path) -> None:
    options = _options(SYSTEMD / "tls.conf")
    handed = {each.partition(":")[0] for each in options["LoadCredential"]}
    environ = {key: value or SECRETS[key] for key, value in ENVIRONMENT.items() if key != "RUNR_BOOTSTRAP_TOKEN"}
    for each in options["Environment"]:
        name, _, value = each.partition("=")
        assert value.removeprefix("%d/") in handed
        environ[name] = value.replace("%d", str(tmp_path))
        Path(environ[name]).write_text("PEM")

    check_start(_arguments(SERVICE, "ingest"), environ)
    assert {name for name in environ if "TLS" in name} == {
        "RUNR_GRPC_TLS_CERT",
        "RUNR_GRPC_TLS_KEY",
        "RUNR_GRPC_TLS_CA",
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_a_fault_in_a_unit(tmp_path: Path) -> None:
    root = _machine(tmp_path)
    broken = root / "etc/systemd/system/runr@.service"
    broken.write_text(broken.read_text().replace("Restart=always", "Restrat=always"))

    assert "Restrat" in _analyze("verify", "runr@ingest.service", root=root).stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_calls_the_service_well_protected(tmp_path: Path) -> None:
    judged = _analyze("security", "--offline=true", "runr@executor.service", root=_machine(tmp_path))
    exposure = re.search(r"Overall exposure level for runr@executor.service: (\d+\.\d+)", judged.stdout)

    assert exposure is not None, judged.stdout + judged.stderr
    assert float(exposure[1]) < 2.5


def _analyze(verb: str, *arguments: str, root: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", f"--root={root}", verb, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def _machine(root: Path) -> Path:
    """A file system with our units, the program, and what units of systemd's own ours stand on."""
    units = root / "etc/systemd/system"
    program = root / PROGRAM.lstrip("/")
    for folder in (units, program.parent):
        folder.mkdir(parents=True)
    for path in SYSTEMD.iterdir():
        if path.suffix in (".service", ".target"):
            shutil.copy(path, units)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("sysinit", "basic", "shutdown", "network", "network-online", "multi-user"):
        (units / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    for name in ("-", "system"):
        (units / f"{name}.slice").write_text("[Slice]\n")
    return root
