"""The peers, by name, and making them ready."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tests.bench.contender import Contender
from tests.bench.peers.dbos import Dbos
from tests.bench.peers.install import Node, PeerMissing, node_with, python_with
from tests.bench.peers.openworkflow import OpenWorkflow
from tests.bench.peers.restate import Restate

_PYTHON = ("dbos==3.4.0", "psycopg[binary,pool]==3.3.9", "restate_sdk==1.3.0", "hypercorn==0.18.0")
_NODE = (
    "@restatedev/restate-server-linux-x64@1.7.12",
    "@restatedev/restate-sdk@1.17.2",
    "openworkflow@0.10.1",
    "postgres@3",
)
_MOST_ASLEEP = 10_000
"""Sleeping runs of a peer in W6: more take most of them many minutes to start."""


async def _restate_ts(build: Path, asleep: int) -> Contender:
    node = await _node(build)
    return Restate("restate-ts", [str(node.program), "restate_worker.mjs"], node.folder, asleep)


async def _restate_py(build: Path, asleep: int) -> Contender:
    node, python = await _node(build), await _python(build)
    return Restate("restate-py", [str(python), "-m", "hypercorn"], node.folder, asleep)


async def _dbos(build: Path, asleep: int) -> Contender:
    return Dbos(await _python(build), asleep)


async def _openworkflow(build: Path, asleep: int) -> Contender:
    return OpenWorkflow(await _node(build))


PEERS: Mapping[str, Callable[[Path, int], Awaitable[Contender]]] = {
    "restate-ts": _restate_ts,
    "restate-py": _restate_py,
    "dbos": _dbos,
    "openworkflow": _openworkflow,
}


async def prepared(names: Sequence[str], build: Path, *, asleep: int, say: Callable[[str], object]) -> list[Contender]:
    """The peers that can be had, installed below `build` where they are not yet; tells why others are left out."""
    found = []
    for name in names:
        say(f"preparing {name}")
        try:
            found.append(await PEERS[name](build / "peers", min(asleep, _MOST_ASLEEP)))
        except (PeerMissing, OSError) as error:
            say(f"{name} is left out: {error}")
    return found


async def _python(build: Path) -> Path:
    return await python_with(build / "venv", _PYTHON)


async def _node(build: Path) -> Node:
    return await node_with(build / "npm", _NODE)
