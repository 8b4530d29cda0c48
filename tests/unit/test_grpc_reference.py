"""The page about gRPC is that of the protos."""

from __future__ import annotations

import importlib.util

from tests.support.pages import ROOT, page


def test_the_page_is_that_of_the_protos() -> None:
    spec = importlib.util.spec_from_file_location("proto_reference", ROOT / "proto" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert page("docs/reference/grpc.md").text == reference.page(), "make it again: make reference"
