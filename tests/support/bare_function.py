"""The bare example server (examples/function-servers/python), for tests to serve it with one thing done wrong."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.support.function_process import FALLBACK_KEY, KEY
from tests.support.pages import ROOT

EXAMPLE = ROOT / "examples" / "function-servers" / "python" / "function.py"

Handler = Callable[[Any], type[Any]]
"""Makes the class of connections for a function."""


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("bare_function", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bare = _load()
"""The module."""


@contextmanager
def serving(function: type[Any], handler: Handler = bare.handler) -> Iterator[str]:
    """The URL of a server with the workflows of the conformance runner."""
    made = handler(function(bare.CONFORMANCE, [KEY, FALLBACK_KEY]))
    with ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
