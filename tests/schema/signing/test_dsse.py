"""Envelopes, statements and keys as documents."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.signing.dsse import (
    RELEASE,
    SIZES,
    Envelope,
    PublicKey,
    Signature,
    Statement,
    pae,
    read_sig,
    release_statement,
    released_version,
    sign_line,
    signed_bytes,
)

MANIFEST = canonical.encode(
    {
        "recipe": {"profile": "x"},
        "artifacts": [{"path": "a", "certification": {"state": "unknown"}, "size": 1}],
    }
)


def test_the_encoding_is_that_of_the_specification():
    """The example of protocol.md of secure-systems-lab/dsse."""
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


@given(st.text(), st.binary(), st.text(), st.binary())
def test_two_documents_are_never_signed_as_the_same_bytes(kind, payload, other, bytes_):
    assert (pae(kind, payload) == pae(other, bytes_)) == ((kind, payload) == (other, bytes_))


@given(st.text(), st.binary(), st.lists(st.builds(Signature, st.binary(), st.text()), min_size=1, max_size=3))
def test_an_envelope_comes_back(kind, payload, signatures):
    envelope = Envelope(kind, payload, tuple(signatures))
    assert Envelope.decode(envelope.encode()) == envelope


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"payload":"!","payloadType":"a","signatures":[{"sig":"AA=="}]}',
        b'{"payload":"","payloadType":"a","signatures":[]}',
        b'{"payload":"QUJ=","payloadType":"a","signatures":[{"keyid":"k","sig":"AA=="}]}',
    ],
)
def test_invalid_envelopes_are_refused(data):
    with pytest.raises(InputError):
        Envelope.decode(data)


@given(st.sampled_from(sorted(SIZES)), st.data())
def test_a_key_comes_back_from_its_text(kind, data):
    raw = data.draw(st.binary(min_size=SIZES[kind], max_size=SIZES[kind]))
    raw = raw if kind == "ed25519" else b"\x04" + raw[1:]
    key = PublicKey(kind, raw)
    assert PublicKey.parse(str(key)) == key
    assert b64encode(key.spki).decode() == "".join(key.pem.splitlines()[1:-1])


def test_a_statement_comes_back_and_is_held_against_its_manifest():
    release = release_statement("acme/pii", Version(1, 2, 0), MANIFEST)
    read = Statement.decode(release.encode())
    assert (read, released_version(read)) == (release, Version(1, 2, 0))
    assert read != release_statement("acme/pii", Version(1, 2, 0), MANIFEST.replace(b'"a"', b'"b"'))
    planted = canonical.decode(release.encode())
    planted["predicate"]["artifacts"][0]["certification"]["state"] = "certified"
    assert Statement.decode(canonical.encode(planted)) != release


def test_other_statements_are_no_releases():
    payload = release_statement("m", Version(1, 0, 0), MANIFEST).encode()
    assert Envelope("application/vnd.in-toto+json", payload, ()).predicate_type == RELEASE
    assert Envelope("text/plain", payload, ()).predicate_type == ""
    other = payload.replace(b"urn:onnxreg:release:v1", b"urn:onnxreg:other:v1")
    with pytest.raises(InputError):
        released_version(Statement.decode(other))


def test_the_signature_of_a_line_covers_all_but_itself():
    line = {"seq": 1, "prev": str(Digest.of(b"")), "event": {"name": "m", "kind": "fence"}, "via": {"seq": 1}}
    covered = signed_bytes("f" * 32, line)
    assert signed_bytes("f" * 32, {**line, "sig": "x"}) == covered
    for change in ({"seq": 2}, {"prev": "x"}, {"event": {"name": "n"}}, {"via": {"seq": 2}}):
        assert signed_bytes("f" * 32, {**line, **change}) != covered
    assert signed_bytes("0" * 32, line) != covered
    sig = sign_line("f" * 32, lambda data: Signature(data, "a" * 64), line)
    assert read_sig(sig) == Signature(covered, "a" * 64)


@pytest.mark.parametrize(
    "text", ["", "abc", "a" * 64, f"{'a' * 64}:!", f"{'A' * 64}:AAAA", f"{'a' * 64}:AAA"]
)
def test_a_malformed_signature_of_a_line_is_refused(text):
    with pytest.raises(InputError):
        read_sig(text)
