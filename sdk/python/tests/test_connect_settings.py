"""The settings of `wf.connect()`: where they come from, and what is wrong with them, in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runr_workflows import Context, SettingsError, Step, Workflows
from runr_workflows.connect.settings import ConnectOptions, WorkerSettings, worker_settings
from runr_workflows.connect.target import Tls
from sdk.python.tests.engine import KEY

PEM = b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def settings(url: str | None = None, environ: dict[str, str] | None = None, **options: Any) -> WorkerSettings:
    """The settings that these arguments and variables make."""
    given = ConnectOptions(**options)
    return worker_settings(url, given, keys=["", KEY], environ=environ or {})


def test_the_environment_says_what_arguments_do_not() -> None:
    environ = {"RUNR_WORKER_URL": "127.0.0.1:7103", "RUNR_PROJECT": "shop", "RUNR_TENANT": "acme"}
    found = settings(environ=environ)
    assert (str(found.target), found.project, found.tenant, found.keys) == ("127.0.0.1:7103", "shop", "acme", [KEY])
    assert (found.max_concurrency, found.code_version, found.drain_s) == (100, 0, 30.0)
    found = settings("localhost:1", environ, project="other", tenant="default", drain_seconds=1)
    assert (str(found.target), found.project, found.tenant, found.drain_s) == ("localhost:1", "other", "default", 1.0)


def test_the_defaults() -> None:
    found = settings("127.0.0.1:7103")
    assert (found.project, found.tenant) == ("default", "default")


@pytest.mark.parametrize(
    ("url", "environ", "encrypted"),
    [
        ("127.0.0.1:7103", {}, False),
        ("[::1]:7103", {}, False),
        ("localhost:7103", {}, False),
        ("http://127.0.0.1:7103", {}, False),
        ("https://127.0.0.1:7103", {}, True),
        ("executor:7103", {}, True),
        ("10.0.0.1:7103", {}, True),
        ("127.0.0.1.example.com:7103", {}, True),
        ("executor:7103", {"RUNR_WORKER_PLAINTEXT": "true"}, False),
        ("http://executor:7103", {"RUNR_WORKER_PLAINTEXT": "true"}, False),
        ("https://executor:7103", {"RUNR_WORKER_PLAINTEXT": "true"}, True),
    ],
)
def test_what_is_not_loopback_is_encrypted(url: str, environ: dict[str, str], encrypted: bool) -> None:
    assert (settings(url, environ).target.tls is not None) == encrypted


def test_certificates_mean_encryption(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(PEM)
    assert settings("localhost:1", {"RUNR_WORKER_TLS_CA": str(ca)}).target.tls == Tls(ca=PEM)
    found = settings("localhost:1", tls_ca=ca, tls_cert=PEM + b"cert", tls_key=PEM + b"key")
    assert found.target.tls == Tls(PEM, PEM + b"cert", PEM + b"key")
    assert str(settings("[::1]:7103").target) == "[::1]:7103"


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        (None, {}, "RUNR_WORKER_URL"),
        ("", {}, "RUNR_WORKER_URL"),
        ("executor", {}, "host:port"),
        ("executor:port", {}, "host:port"),
        ("executor:99999", {}, "host:port"),
        ("ftp://executor:1", {}, "host:port"),
        ("https://executor:1/path", {}, "host:port"),
        ("http://executor:7103", {}, "would not be encrypted"),
        (7103, {}, r"url \(RUNR_WORKER_URL\): 7103 is no address"),
        ("[::1", {}, r"url \(RUNR_WORKER_URL\): '\[::1' is no address"),
        ("https://me:secret@executor:1", {}, r"url \(RUNR_WORKER_URL\): 'https://…@executor:1' is no address"),
        ("me:secret@executor:1", {}, r"url \(RUNR_WORKER_URL\): '…@executor:1' is no address"),
        ("http://127.0.0.1:1", {"tls_ca": PEM}, "certificates are given"),
        ("localhost:1", {"tls_cert": PEM}, "needs its key"),
        (
            "localhost:1",
            {"tls_ca": "/nowhere/ca.pem"},
            r"tls_ca \(RUNR_WORKER_TLS_CA\): .*ca.pem' cannot be read: No such",
        ),
        ("localhost:1", {"tls_key": b"junk"}, r"tls_key \(RUNR_WORKER_TLS_KEY\): what is given holds no PEM"),
        (
            "localhost:1",
            {"tls_key": PEM.decode()},
            r"tls_key \(RUNR_WORKER_TLS_KEY\): the path of a PEM file, or bytes",
        ),
        ("localhost:1", {"max_concurrency": 0}, "max_concurrency: an integer from 1"),
        ("localhost:1", {"max_concurrency": True}, "max_concurrency: an integer from 1"),
        ("localhost:1", {"code_version": -1}, "code_version: an integer from 0"),
        ("localhost:1", {"drain_seconds": "30s"}, "drain_seconds: a number of seconds"),
        ("localhost:1", {"project": "a\nb"}, r"project \(RUNR_PROJECT\): a slug"),
        ("localhost:1", {"tenant": "x" * 101}, r"tenant \(RUNR_TENANT\): a slug"),
    ],
)
def test_what_is_wrong_is_said(url: str | None, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as caught:
        settings(url, **options)
    assert "secret" not in str(caught.value)
    assert "-----END" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("RUNR_WORKER_PLAINTEXT", "yes", "RUNR_WORKER_PLAINTEXT: true or false, not 'yes'"),
        ("RUNR_TENANT", "a\tb", r"tenant \(RUNR_TENANT\)"),
        ("RUNR_PROJECT", "x" * 101, r"project \(RUNR_PROJECT\)"),
        ("RUNR_WORKER_TLS_CA", "/", r"tls_ca \(RUNR_WORKER_TLS_CA\)"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        settings("executor:1", {variable: value})


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"^max_concurency: unknown \(did you mean max_concurrency\?\); allowed are project,"
    ):
        settings("localhost:1", max_concurency=3)


def test_a_key_and_workflows_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNR_WORKFLOW_SIGNING_KEY", raising=False)
    wf = Workflows()
    with pytest.raises(SettingsError, match="no workflows are registered"):
        wf.connect("localhost:1")

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        """Never run."""

    with pytest.raises(SettingsError, match="RUNR_WORKFLOW_SIGNING_KEY"):
        wf.connect("localhost:1")


async def test_on_a_running_loop_the_blocking_form_says_what_to_use() -> None:
    wf = Workflows(signing_key=KEY)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        """Never run."""

    with pytest.raises(RuntimeError, match="connect_async"):
        wf.connect("localhost:1")


WITHOUT = """
import sys
for name in ("grpc", "google", "runr"):
    sys.modules[name] = None
from runr_workflows import ConnectError, Workflows

wf = Workflows(signing_key="key")

@wf.workflow("w")
def w(ctx, step):
    pass

try:
    wf.connect("localhost:1")
except ImportError as error:
    print(error)
"""


def test_without_the_extra_the_sdk_works_and_connect_says_what_to_install() -> None:
    source = str(Path(__file__).parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PYTHONPATH": source},
    )
    assert (done.stderr, done.stdout) == (
        "",
        """wf.connect() needs gRPC: from a checkout, pip install "$RUNR/proto" "$RUNR/sdk/python[connect]";"""
        " once published, pip install 'runr-workflows[connect]'\n",
    )
