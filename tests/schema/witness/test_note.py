"""Signed notes, by the example of the specification, and checkpoints."""

import pytest

from onnxreg.registry.signing import generate
from onnxreg.registry.witness.note_keys import cosign_text, require_signature, sign_head, valid_signatures
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.witness.note import COSIGNATURE, ED25519, SignedNote, TreeHead, VerifierKey
from onnxreg.schema.witness.witnessed import WitnessedHead, decode_heads, encode_heads, merge_heads

KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
NOTE = (
    "This is an example message.\n\n\u2014 example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()


def test_the_example_of_the_specification_is_valid() -> None:
    key, note = VerifierKey.parse(KEY, ED25519), SignedNote.parse(NOTE)
    assert str(key) == KEY
    assert note.encode() == NOTE
    assert len(valid_signatures(note, key)) == 1
    with pytest.raises(IntegrityError, match="is wrong"):
        valid_signatures(SignedNote(note.text.replace("an", "another"), note.signatures), key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no key",
        "a b+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903b+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
        "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2",
        "example.com/foo+530d903a+AQ==",
    ],
)
def test_invalid_verifier_keys_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"verifier key|base64"):
        VerifierKey.parse(text, ED25519)


def test_a_key_for_notes_is_no_key_for_cosignatures() -> None:
    with pytest.raises(InputError, match="not what it is named for"):
        VerifierKey.parse(KEY, COSIGNATURE)
    with pytest.raises(InputError, match="ed25519, not ecdsa-p256"):
        VerifierKey.of("w", COSIGNATURE, generate("ecdsa-p256").public)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        NOTE[:-1],
        NOTE.replace(b"\n\n", b"\n"),
        NOTE + b"x\n",
        b"\x01" + NOTE,
        b"\xff" + NOTE,
        NOTE.partition(b"\n\n")[0],
    ],
)
def test_a_malformed_note_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        SignedNote.parse(data)


@pytest.mark.parametrize(
    "text", ["o\n1\n", "o\n01\nAA==\n", "o\n1\nAA==\n", "\n1\nAA==\n", "o\n1\n%s\nmore\n"]
)
def test_a_malformed_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        TreeHead.parse(text)


def test_a_cosignature_is_no_signature_of_the_log() -> None:
    key = generate("ed25519")
    head = TreeHead("onnxreg/x", 1, bytes(32))
    note = sign_head(head, key)
    cosigned = note.signed_by([cosign_text(note.text, "w", key, 77)])
    witness = VerifierKey.of("w", COSIGNATURE, key.public)
    assert [each.time for each in valid_signatures(cosigned, witness)] == [77]
    moved = SignedNote(
        note.text, (cosigned.by(witness)[0]._replace(name="onnxreg/x", keyid=note.signatures[0].keyid),)
    )
    with pytest.raises(IntegrityError, match="is not signed by"):
        require_signature(moved, VerifierKey.of("onnxreg/x", ED25519, key.public))


def _head(size: int, *names: str) -> WitnessedHead:
    """Only its size and its signers matter."""
    key = generate("ed25519")
    note = sign_head(TreeHead("onnxreg/x", size, bytes(32)), key)
    return WitnessedHead(
        note.signed_by([cosign_text(note.text, name, key, 1) for name in names]), bytes(32), ()
    )


def _sizes(*heads: WitnessedHead) -> list[int]:
    return [head.head.size for head in merge_heads(heads)]


def test_an_older_checkpoint_stays_as_long_as_one_of_its_witnesses_signed_no_newer_one() -> None:
    old = _head(5, "a", "b")
    assert _sizes(old, _head(6)) == [5]
    new = _head(6)
    for name in ("a", "b"):
        key = generate("ed25519")
        new = WitnessedHead(new.note.signed_by([cosign_text(new.note.text, name, key, 2)]), new.map_root, ())
        signers = {each.name: each for each in (*new.note.signatures, *old.note.signatures)}
        assert len(signers) == 3
    same_ids = WitnessedHead(
        SignedNote(new.note.text, (*new.note.signatures[:1], *old.note.signatures[1:])), new.map_root, ()
    )
    assert _sizes(old, same_ids) == [6]
    assert _sizes(old, WitnessedHead(SignedNote(new.note.text, old.note.signatures[:2]), bytes(32), ())) == [
        6,
        5,
    ]


@pytest.mark.parametrize(
    "data", [b"x", b"c2sp.org/tlog-proof@v1\n", b"c2sp.org/tlog-proof@v1\nextra AA==\nindex 0\n\nx"]
)
def test_malformed_proofs_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        decode_heads(data)
    assert decode_heads(encode_heads([])) == []
