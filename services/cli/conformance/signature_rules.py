"""Rules about signatures (protocol section 6). They need no workflow: what is signed is an introspect request."""

from __future__ import annotations

from functools import partial

from services.cli.conformance.post import absent, json_envelope
from services.cli.conformance.probe import Probe
from services.cli.conformance.rule import NotApplicable, Rule
from services.core.domain.signature import WINDOW_S, sign, signature_header

_STRANGER = "wfsk_of_somebody_else_0123456789"
_NEAR_S = 10
"""How far the clocks of both sides may be apart, so that a rule about the window is about the window."""

_ODD_TEXT = ', "odd":  "é\\u00e9\\/\\ud83d\\ude00 \U0001f600 <&>",\t"n": [1.0, 1e2, -0, 12345678901234567890], "a" : {}'
"""What a runtime that parses and writes JSON again writes in another way."""


async def _valid(probe: Probe) -> None:
    await probe.accepted(probe.signer().post("an introspect request that is signed", probe.introspect_text()))


async def _one_place(probe: Probe, *, place: str) -> None:
    about = f"a signature that is only in the {place}"
    other = "in_envelope" if place == "header" else "in_header"
    await probe.accepted(probe.signer(**{other: absent}).post(about, probe.introspect_text()))


async def _missing(probe: Probe) -> None:
    signer = probe.signer(in_header=absent, in_envelope=absent)
    await probe.refused(signer.post("a request without a signature", probe.introspect_text()), 401)


async def _differs(probe: Probe) -> None:
    text, signer = probe.introspect_text(), probe.signer()
    earlier = signature_header(signer.keys, signer.unix_s - 1, text)
    changed = probe.signer(in_envelope=lambda _: earlier)
    await probe.refused(changed.post("two valid signatures, of header and envelope, that are not equal", text), 401)


async def _wrong_key(probe: Probe) -> None:
    signer = probe.signer(keys=[_STRANGER])
    await probe.refused(signer.post("the signature of another key", probe.introspect_text()), 401)


async def _other_request(probe: Probe) -> None:
    text, signer = probe.introspect_text(), probe.signer()
    stolen = signature_header(signer.keys, signer.unix_s, text)
    changed = probe.signer(in_header=lambda _: stolen, in_envelope=lambda _: stolen)
    for about, request in (("with a blank more", text + " "), ("with a field more", probe.introspect_text(',"x":1'))):
        await probe.refused(changed.post(f"the signature of another request, this one is {about}", request), 401)


async def _outside(probe: Probe, *, side: int) -> None:
    seconds = WINDOW_S + _NEAR_S
    signer = probe.signer(unix_s=probe.signer().unix_s + side * seconds)
    word = "old" if side < 0 else "in the future"
    await probe.refused(signer.post(f"a signature that is {seconds} s {word}", probe.introspect_text()), 401)


async def _inside(probe: Probe) -> None:
    for side in (-1, 1):
        signer = probe.signer(unix_s=probe.signer().unix_s + side * (WINDOW_S - _NEAR_S))
        about = f"a signature of {WINDOW_S - _NEAR_S} s {'ago' if side < 0 else 'from now'}, which is in time"
        await probe.accepted(signer.post(about, probe.introspect_text()))


async def _rotation(probe: Probe) -> None:
    (key,) = probe.keys[:1]
    for keys in ([_STRANGER, key], [key, _STRANGER]):
        about = f"two signatures, as during a rotation, the one of the key that is held is the {keys.index(key) + 1}."
        await probe.accepted(probe.signer(keys=keys).post(about, probe.introspect_text()))


async def _fallback(probe: Probe) -> None:
    if len(probe.keys) < 2:
        raise NotApplicable("no fallback key is given")
    signer = probe.signer(keys=probe.keys[1:2])
    await probe.accepted(signer.post("a request that is signed by the fallback key alone", probe.introspect_text()))


async def _malformed(probe: Probe) -> None:
    text, unix_s = probe.introspect_text(), probe.signer().unix_s
    v1 = sign(probe.keys[0], unix_s, text)
    signed_as = partial(sign, probe.keys[0], request=text)
    cases = {
        "is empty": "",
        "has no t": f"v1={v1}",
        "has two t": f"t={unix_s},t={unix_s},v1={v1}",
        "has no v1": f"t={unix_s}",
        "has a t with a sign": f"t=+{unix_s},v1={signed_as(f'+{unix_s}')}",
        "has a t with a fraction": f"t={unix_s}.0,v1={signed_as(f'{unix_s}.0')}",
        "has a t that is no number": f"t=now,v1={signed_as('now')}",
        "has an empty t": f"t=,v1={signed_as('')}",
        "has a blank before a comma": f"t={unix_s} ,v1={v1}",
        "has capital letters in v1": f"t={unix_s},v1={v1.upper()}",
        "has half of v1": f"t={unix_s},v1={v1[:32]}",
        "has a part that is no pair": f"t={unix_s},v1={v1},v1",
    }
    for about, signature in cases.items():
        await _judge(probe, f"a signature that {about}", text, signature, status=401)
    arabic = "".join(chr(0x660 + int(digit)) for digit in str(unix_s))
    signature = f"t={arabic},v1={signed_as(arabic)}"
    await _judge(probe, "a signature whose t has digits that are not ASCII", text, signature, status=401, header=False)


async def _other_forms(probe: Probe) -> None:
    text, unix_s = probe.introspect_text(), probe.signer().unix_s
    v1 = sign(probe.keys[0], unix_s, text)
    zeros = f"000{unix_s}"
    cases = {
        "has a scheme more": f"t={unix_s},v2=00ff,v1={v1}",
        "has v1 before t": f"v1={v1},t={unix_s}",
        "has a blank after its comma": f"t={unix_s}, v1={v1}",
        "has a v1 that is none beside one that is": f"t={unix_s},v1=zz,v1={v1}",
        "has zeros before its t, which are signed with it": f"t={zeros},v1={sign(probe.keys[0], zeros, text)}",
    }
    for about, signature in cases.items():
        await _judge(probe, f"a valid signature that {about}", text, signature, status=200)


async def _judge(probe: Probe, about: str, text: str, signature: str, *, status: int, header: bool = True) -> None:
    signer = probe.signer(in_header=(lambda _: signature) if header else absent, in_envelope=lambda _: signature)
    post = signer.post(about, text)
    await (probe.accepted(post) if status == 200 else probe.refused(post, status))


async def _over_bytes(probe: Probe) -> None:
    about = "a request whose text would not be the same if it were parsed and written again"
    await probe.accepted(probe.signer().post(about, probe.introspect_text(_ODD_TEXT)))


async def _envelope_written_again(probe: Probe) -> None:
    about = "an envelope that a runtime has parsed and written again, with the same request string"
    await probe.accepted(probe.signer(encode=json_envelope).post(about, probe.introspect_text(_ODD_TEXT)))


async def _judged_first(probe: Probe) -> None:
    texts = {
        "of an unknown type": '{"type":"dance","protocol":"v1"}',
        "that is no JSON": "{",
        "for a workflow that is not served": '{"type":"execute","protocol":"v1","workflow":"conformance.absent"}',
    }
    for about, text in texts.items():
        await probe.refused(probe.signer(keys=[_STRANGER]).post(f"a request {about}, signed by another key", text), 401)


RULES = (
    Rule("signature-valid", 6, _valid),
    Rule("signature-in-header-only", 6, partial(_one_place, place="header")),
    Rule("signature-in-envelope-only", 6, partial(_one_place, place="envelope")),
    Rule("signature-missing", 6, _missing),
    Rule("signature-differs-from-header", 6, _differs),
    Rule("signature-wrong-key", 6, _wrong_key),
    Rule("signature-of-another-request", 6, _other_request),
    Rule("signature-too-old", 6, partial(_outside, side=-1)),
    Rule("signature-from-the-future", 6, partial(_outside, side=1)),
    Rule("signature-in-its-window", 6, _inside),
    Rule("signature-two-keys", 6, _rotation),
    Rule("signature-fallback-key", 6, _fallback),
    Rule("signature-malformed", 6, _malformed),
    Rule("signature-other-forms", 6, _other_forms),
    Rule("signature-over-bytes", 6, _over_bytes),
    Rule("signature-envelope-re-encoded", 6, _envelope_written_again),
    Rule("signature-judged-first", 6, _judged_first),
)
"""In the order in which they are checked."""
