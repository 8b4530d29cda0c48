"""How worker and engine prove to one another that both know the project's signing key."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from runr.workflows.v1 import worker_service_pb2 as pb

from ..protocol import SDK
from ..signature import key_bytes

PROTOCOL = 1
BRING = "bring"
FEATURES = ("resume", BRING)


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a worker says of itself, the same on each of its streams. `definitions` is JSON: the introspect answer."""

    tenant: str
    project: str
    session: str
    definitions: bytes
    code_version: int

    @property
    def definitions_hash(self) -> str:
        """SHA-256 of the definitions, hex."""
        return sha256(self.definitions).hexdigest()

    def hello(self, challenge: str, key: str, credits: int, *, resuming: bool) -> pb.Hello:
        """The first message of a stream, signed for it alone."""
        hello = pb.Hello(
            protocol=PROTOCOL,
            features=FEATURES,
            session=self.session,
            project=self.project,
            tenant=self.tenant,
            definitions=self.definitions,
            definitions_hash=self.definitions_hash,
            code_version=self.code_version,
            node=f"{socket.gethostname()}:{os.getpid()}",
            credits=credits,
            nonce=secrets.token_hex(16),
            sdk=json.dumps(SDK).encode(),
            resuming=resuming,
        )
        lines = ("runr-worker-v1", challenge, hello.nonce, hello.tenant, hello.project, hello.session)
        hello.signature = _sign(key, *lines, hello.definitions_hash)
        return hello


def is_engine(ack: pb.HelloAck, challenge: str, hello: pb.Hello, keys: Sequence[str]) -> bool:
    """Whether whoever answered knows one of the keys, and answers this Hello."""
    expected = [_sign(key, "runr-engine-v1", challenge, hello.nonce, hello.session) for key in keys]
    return any([hmac.compare_digest(ack.signature.encode(), own.encode()) for own in expected])


def _sign(key: str, *lines: str) -> str:
    return hmac.digest(key_bytes(key), "\n".join(lines).encode(), "sha256").hex()
