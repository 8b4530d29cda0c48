"""Fixtures that every kind of test may use. A server starts only when a test asks for it."""

import os

from tests.support.hand import hand
from tests.support.live_rows import recorder, rows
from tests.support.nats import _prefixes, nats_prefix, nats_stack, nats_url
from tests.support.open_connections import pytest_configure, pytest_runtest_teardown
from tests.support.postgres import (
    databases,
    empty_postgres_url,
    postgres_server_url,
    postgres_stack,
    postgres_url,
)
from tests.support.tenancy import database, sealer, tenant

__all__ = [
    "_prefixes",
    "database",
    "databases",
    "empty_postgres_url",
    "hand",
    "nats_prefix",
    "nats_stack",
    "nats_url",
    "postgres_server_url",
    "postgres_stack",
    "postgres_url",
    "pytest_configure",
    "pytest_runtest_teardown",
    "recorder",
    "rows",
    "sealer",
    "tenant",
]

# What whoever runs the tests has logged in to is not what tests work with.
os.environ["XDG_CONFIG_HOME"] = os.devnull
