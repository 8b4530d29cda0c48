"""Any request to any route: what the API's description says is what is answered, and never another tenant's data."""

from __future__ import annotations

from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import (
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from schemathesis.core.result import Ok

from services.gateway.openapi.description import describe
from services.gateway.routes.table import BASE, ROUTES
from services.gateway.session import Cookies
from tests.fuzz.conftest import Stage
from tests.support.fuzzing import fuzz

SCHEMA = schemathesis.openapi.from_dict(describe(ROUTES, base=BASE, session_cookie=Cookies().session_name))
OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (result.ok() for result in SCHEMA.get_all_operations() if isinstance(result, Ok))
}
FEW = 8
SHARE = 0.4 / len(OPERATIONS)
CALL_S = 60.0
AWAY = 503
CHECKS = [
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


def test_every_operation_is_tried() -> None:
    assert len(OPERATIONS) == sum(len(found) for found in SCHEMA.raw_schema["paths"].values())


# An active run is followed until it ends.
ENDLESS = "GET /runs/{run_id}/stream"


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_request_breaks_a_route(stage: Stage, name: str) -> None:
    operation = OPERATIONS[name]
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {stage.token}"

    def judge(value: tuple[Any, dict[str, str], bool, bool]) -> None:
        case, given, in_own_tenant, unnamed = value
        parameters = case.path_parameters or {}
        replaced = {at: text for at, text in given.items() if at in parameters}
        parameters.update(replaced)
        if name == "DELETE /projects/{project}" and parameters["project"] == "default":
            return  # then there would be little left to try
        left_out = [header for header, out in (("X-Tenant-ID", in_own_tenant), ("Idempotency-Key", unnamed)) if out]
        gone = [case.headers.pop(header, None) for header in left_out]
        # Of a request that was changed it is not known any more whether it is a bad one.
        unknown = [negative_data_rejection] if replaced or any(gone) or "Authorization" in case.headers else []
        case.headers.pop("Authorization", None)
        response = case.call(base_url=stage.stack.api_url + BASE, session=session, timeout=CALL_S)
        if response.status_code == AWAY and all(child.runs for child in stage.stack.children.values()):
            return  # a machine that is overloaded, not a service that has ended
        stage.check(response.content, str(response.headers).encode())
        case.validate_response(response, checks=[check for check in CHECKS if check not in unknown])

    known = {at: [*texts, "%2e%2e", "x" * 300] for at, texts in stage.known.items()}
    if name == ENDLESS:
        del known["run_id"]
    places = st.fixed_dictionaries({}, optional={at: st.sampled_from(texts) for at, texts in known.items()})
    modes = st.one_of([operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode])
    mostly = st.sampled_from([True, True, True, False])
    fuzz(judge, st.tuples(modes, places, mostly, mostly), few=FEW, share=SHARE)
    session.close()
