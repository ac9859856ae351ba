"""A witness: what it signs, what it refuses, and what it remembers when it is killed."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.trust.world import plain_pem
from support.witness.logs import WitnessedRegistry

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.signing import generate
from onnxreg.registry.store.layout import PROOFS
from onnxreg.registry.witness.inspection import inspect
from onnxreg.registry.witness.note_keys import valid_signatures
from onnxreg.registry.witness.signers import (
    LogPublisher,
    cosign,
    fetch_checkpoint,
    path_store,
    serve_checkpoint,
)
from onnxreg.schema.core.errors import ForkError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.witness.note import COSIGNATURE, VerifierKey
from onnxreg.schema.witness.witnessed import encode_heads

Grow = Callable[[str], None]


def test_a_witness_signs_what_continues_and_again_what_stayed(
    witnessed: WitnessedRegistry, grow: Grow
) -> None:
    witnessed.publish()
    first = witnessed.cosign("w1")[0]
    again = witnessed.cosign("w1")[0]
    assert first.head == again.head and again.time >= first.time
    for _ in range(3):
        grow("acme/pii")
        witnessed.publish()
    newest = witnessed.cosign("w1")[0]
    assert newest.head.size == 4
    assert len(valid_signatures(newest.note, VerifierKey.parse(witnessed.vkey("w1"), COSIGNATURE))) == 1
    assert [proof.head.size for proof in inspect(witnessed.store).proofs] == [4]


def test_a_forged_checkpoint_does_not_hide_those_after_it(witnessed: WitnessedRegistry, grow: Grow) -> None:
    witnessed.witness()
    head = inspect(witnessed.store).proofs[0]
    first, *others = head.note.signatures
    wrong = first._replace(data=bytes(len(first.data)))
    forged = replace(head, note=replace(head.note, signatures=(wrong, *others)))
    path_store(witnessed.store).write_files({PROOFS: encode_heads([forged, head])})
    grow("acme/pii")
    witnessed.publish()
    witnessed.cosign("w1")
    assert [proof.head.size for proof in inspect(witnessed.store).proofs] == [2, 1]


def test_the_key_of_the_log_is_named_once(witnessed: WitnessedRegistry) -> None:
    witnessed.publish()
    key = witnessed.witnesses["w1"]
    with pytest.raises(InputError, match="is not known yet"):
        cosign(witnessed.store, "w1", key)
    other = VerifierKey.of(witnessed.log_key.name, 1, generate("ed25519").public)
    with pytest.raises(IntegrityError, match="is not signed by onnxreg/"):
        cosign(witnessed.store, "w1", key, str(other))
    cosign(witnessed.store, "w1", key, str(witnessed.log_key))
    cosign(witnessed.store, "w1", key)


def test_the_key_of_the_log_cannot_cosign(witnessed: WitnessedRegistry) -> None:
    witnessed.publish()
    with pytest.raises(InputError, match="acme-log is the key of this log"):
        cosign(witnessed.store, "acme-log", witnessed.key, str(witnessed.log_key))


def test_a_registry_without_a_log_cannot_be_cosigned(witnessed: WitnessedRegistry) -> None:
    with pytest.raises(NotFoundError, match="has no witness log"):
        witnessed.cosign("w1")


def test_an_older_log_is_not_signed(witnessed: WitnessedRegistry, grow: Grow, tmp_path: Path) -> None:
    witnessed.publish()
    folder = Path(witnessed.store.url) / "witness"
    shutil.copytree(folder, tmp_path / "old")
    grow("acme/pii")
    witnessed.witness()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "old", folder)
    with pytest.raises(IntegrityError, match="went back in time: its checkpoint has size 1, 2 was signed"):
        witnessed.cosign("w1")


@pytest.mark.parametrize("more", [0, 1, 2])
def test_another_log_with_the_same_key_is_not_signed(
    witnessed: WitnessedRegistry, grow: Grow, tmp_path: Path, more: int
) -> None:
    """The publisher makes a second history, as long as the first one or longer, and shows it to the witness."""
    grow("acme/pii")
    witnessed.publish()
    grow("acme/ner")
    witnessed.witness()
    shutil.rmtree(Path(witnessed.store.url) / "witness")
    other = LogPublisher(witnessed.store, witnessed.key)
    other._memory._folder = tmp_path / "other"
    for _ in range(2 + more):
        grow("lab/ocr")
        other.publish()
    with pytest.raises(ForkError, match="was rewritten: its checkpoint of size"):
        witnessed.cosign("w2")


def test_missing_tiles_are_not_signed(witnessed: WitnessedRegistry, grow: Grow) -> None:
    witnessed.witness()
    grow("acme/pii")
    witnessed.publish()
    shutil.rmtree(Path(witnessed.store.url) / "witness" / "tile" / "0")
    with pytest.raises(IntegrityError, match=r"witness/tile/0/000.p/2 is missing"):
        witnessed.cosign("w1")


def test_a_witness_without_write_access_serves_its_checkpoint(
    witnessed: WitnessedRegistry, grow: Grow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The publisher collects it, also when its own log is further by then."""
    witnessed.publish()
    key = witnessed.witnesses["w1"]
    signed = cosign(witnessed.store, "w1", key, str(witnessed.log_key))
    serve_checkpoint(tmp_path / "public", signed.note)
    assert fetch_checkpoint(str(tmp_path / "public"), witnessed.log_key.name) == signed.note
    grow("acme/pii")
    command = ["--registry", witnessed.store.url, "witness", "publish", "--from", str(tmp_path / "public")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REG_SIGNING_KEY", plain_pem(witnessed.key))
        assert main(command) == 0
    status = inspect(witnessed.store)
    assert [(proof.head.size, len(proof.cosigners)) for proof in status.proofs] == [(1, 1)]
    assert status.checkpoint.head.size == 2


WITNESS = """
import sys, time
from onnxreg.registry.signing import load
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.witness.signers import cosign
from pathlib import Path
store, key = DirectoryRegistry.open(Path(sys.argv[1])), load(Path(sys.argv[2]).read_bytes(), None)
while True:
    signed = cosign(store, "w1", key, sys.argv[3])
    print(signed.head.size, signed.head.root.hex(), flush=True)
"""


@pytest.mark.more
def test_a_killed_witness_never_signs_two_histories(
    witnessed: WitnessedRegistry, registry: Registry, grow: Grow, tmp_path: Path
) -> None:
    """kill -9 while it signs; then the log is begun anew, and it must know every checkpoint that left it."""
    (tmp_path / "key").write_text(plain_pem(witnessed.witnesses["w1"]))
    command = [sys.executable, "-c", WITNESS, registry.store.root, tmp_path / "key", str(witnessed.log_key)]
    folder = registry.store.root / "witness"
    witnessed.publish()
    released: list[str] = []
    for number in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            released.append(process.stdout.readline())
            for _ in range(number + 1):
                grow("acme/pii")
                witnessed.publish()
                time.sleep(0.01 * number)
            process.send_signal(signal.SIGKILL)
            released += process.stdout.readlines()
        assert folder.is_dir()
    # The kill may cut the last line of a witness.
    heads = {line for line in released if line.endswith("\n")}
    assert heads and len({line.split()[0] for line in heads}) == len(heads)
    shutil.rmtree(folder)
    other = LogPublisher(witnessed.store, witnessed.key)
    other._memory._folder = tmp_path / "other"
    for _ in range(12):
        grow("lab/ocr")
        other.publish()
    with pytest.raises(ForkError):
        witnessed.cosign("w1")
