"""Signatures beyond the vectors."""

from __future__ import annotations

import hashlib
import hmac
from types import ModuleType

import pytest
import runr_workflows.signature
from hypothesis import given
from hypothesis import strategies as st

import services.core.domain.signature
from services.core.domain.signature import sign, signature_header, verify, verify_envelope

KEY = "wfsk_test_0123456789abcdef"
NOW = 1_700_000_000
texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts.filter(bool), texts, st.integers(0, 10**12))
def test_signs_time_and_exact_request(key: str, request: str, t: int) -> None:
    wanted = hmac.new(key.encode(), str(t).encode() + b"." + request.encode(), hashlib.sha256).hexdigest()

    assert sign(key, t, request) == wanted


@given(st.lists(texts.filter(bool), min_size=1, max_size=3, unique=True), texts, st.integers(-300, 300), st.data())
def test_any_key_of_the_engine_opens_and_any_change_closes(
    keys: list[str], request: str, skew: int, data: st.DataObject
) -> None:
    header = signature_header(keys, NOW, request)
    held = data.draw(st.sampled_from(keys))

    assert verify(header, [held], request, NOW + skew).accepted
    assert verify(header, [held], request + " ", NOW).status == 401
    assert verify(header, [held + "x"], request, NOW).status == 401
    assert verify(header, [held], request, NOW + 300.001).status == 401
    assert verify(header, [held], request, NOW - 300.001).status == 401


def test_the_header_has_one_v1_per_key_and_skips_empty_ones() -> None:
    header = signature_header(["one", "", "two"], NOW, "{}")

    assert header == f"t={NOW},v1={sign('one', NOW, '{}')},v1={sign('two', NOW, '{}')}"
    with pytest.raises(ValueError, match="no key"):
        signature_header([""], NOW, "{}")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t",
        "t=",
        "t=1700000000",
        "v1={v1}",
        "t=1700000000,v1={v1},t=1700000000",
        " t=1700000000,v1={v1}",
        "t=1700000000,v1={v1},",
        "t=1700000000 ,v1={v1}",
        "t=1700000000,v1={v1} ",
        "t=1700000000;v1={v1}",
        "t=1700000000,\tv1={v1}",
        "t=１７００００００００,v1={v1}",
        "t=-1700000000,v1={v1}",
        "T=1700000000,v1={v1}",
        "t=1700000000,v1 ={v1}",
    ],
)
def test_malformed_headers_are_401(header: str) -> None:
    assert verify(header.format(v1=sign(KEY, NOW, "{}")), [KEY], "{}", NOW).status == 401


@pytest.mark.parametrize(
    "header", ["t=1700000000,  v1={v1}", "v2=x,t=1700000000,v1={v1}", "t=1700000000,v1=zz,v1={v1}"]
)
def test_unknown_schemes_and_other_v1s_do_not_hinder(header: str) -> None:
    assert verify(header.format(v1=sign(KEY, NOW, "{}")), [KEY], "{}", NOW).accepted


def test_the_literal_text_of_t_is_signed() -> None:
    t = f"000{NOW}"

    assert verify(f"t={t},v1={sign(KEY, t, '{}')}", [KEY], "{}", NOW).accepted


def test_a_lone_surrogate_is_401_and_not_a_crash() -> None:
    assert verify(f"t={NOW},v1={'0' * 64}", [KEY], "\ud800", NOW).status == 401
    assert verify("t=1,v1=\ud800", [KEY], "{}", NOW).status == 401


@pytest.mark.parametrize(
    ("body", "keys", "status"),
    [
        (None, [KEY], 400),
        ([], [KEY], 400),
        ({"runr_workflow": "v1"}, [KEY], 400),
        ({"runr_workflow": 1, "request": "{}"}, [KEY], 400),
        ({"runr_workflow": "v1", "request": {}}, [KEY], 400),
        ({"runr_workflow": "v1", "request": "{}", "signature": 5}, [KEY], 400),
        ({"runr_workflow": "v2", "request": "{}"}, [], 400),
        ({"runr_workflow": "v1", "request": "{}"}, [""], 500),
        ({"runr_workflow": "v1", "request": "{}", "signature": None}, [KEY], 401),
    ],
)
def test_the_order_of_judging_an_envelope(body: object, keys: list[str], status: int) -> None:
    assert verify_envelope(body, None, keys, NOW).status == status


@pytest.mark.parametrize("module", [services.core.domain.signature, runr_workflows.signature])
def test_every_pair_is_compared_in_constant_time(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them fits: how long it takes tells nothing of where the first difference is."""
    compared: list[tuple[object, object]] = []

    def compare_digest(one: object, other: object) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(module.hmac, "compare_digest", compare_digest)
    header = signature_header(["first", "second"], NOW, "{}")
    for held in (["first", "x"], ["x", "second"]):
        compared.clear()
        if module is runr_workflows.signature:
            runr_workflows.signature.verify(header=header, envelope=None, keys=held, request="{}", now=NOW)
        else:
            assert verify(header, held, "{}", NOW).accepted
        expected = {sign(key, NOW, "{}") for key in held}
        given = {sign(key, NOW, "{}") for key in ("first", "second")}
        assert {frozenset(pair) for pair in compared} == {
            frozenset((one, other)) for one in expected for other in given
        }
