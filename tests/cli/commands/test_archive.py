"""`reg archive`, what other verbs make of an archive, packages, and archives that are made to harm."""

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.registries import owner
from support.sampling import sampled

from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.signing import generate, sign_statement
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.signing.dsse import MEDIA_TYPE, Envelope, Signature, release_statement

NAME = "acme/pii"
ARCHIVE = "a.onnxreg"
VERIFY = ("archive", "verify", ARCHIVE)
pytestmark = pytest.mark.usefixtures("here")


def test_create_verify_and_pull(reg, here, tmp_path):
    made = reg("archive", "create", ARCHIVE, f"{NAME}:stable")
    assert made.ended(0, f"written to {ARCHIVE}") and made.out.splitlines()[1].split() == [NAME, "0.1.0"]
    assert reg("--registry", "nowhere", *VERIFY).ended(0, "all intact", here.id)
    assert not Path("nowhere").exists()
    assert reg("ls", NAME, "--remote", f"./{ARCHIVE}").status == 0
    site = ("--registry", "site")
    assert reg(*site, "pull", f"{NAME}:stable", f"./{ARCHIVE}", "--output", "out").status == 0
    assert Path("out/openmed-onnx.json").read_bytes() == here.get(f"{NAME}:0.1.0").data
    assert reg(*site, "verify", "--remote", f"./{ARCHIVE}").status == 0
    assert reg(*site, "doctor", f"./{ARCHIVE}").status == 0
    words = ("archive", "create", "t.onnxreg", "tiny", "--remote", here.store.root)
    assert reg("--registry", "other", *words).status == 0
    assert reg("archive", "create", "mine.onnxreg", "tiny").status == 0
    data = Path("t.onnxreg").read_bytes()
    assert data == Path("mine.onnxreg").read_bytes()
    assert reg("drop", "tiny:0.1.0").ended(5, "registries or archives"), "others may have it from the archive"
    again = reg("archive", "create", "again.onnxreg", "--all", "--remote", f"./{ARCHIVE}", "--json")
    assert (again.status, again.json["versions"]) == (0, {NAME: ["0.1.0"]})
    Path(ARCHIVE).write_bytes(data.replace(b"fp32 a", b"fp32 b", 1))
    assert reg(*VERIFY).ended(4, "damaged")
    assert reg("push", NAME, "./t.onnxreg").status == 6
    assert reg("index", "publish", "--remote", "./t.onnxreg").status != 0


def test_verify_by_the_readers_own_keys(reg, here):
    """What is demanded and missing is 4, and a signature that is wrong."""
    release, thief = generate("ed25519"), generate("ed25519")
    key, demand = (
        f'[keys.release]\nkey = "{release.public}"\n',
        '[[require]]\nmodels = ["acme/*"]\nversions = true\n',
    )
    Path("mine.toml").write_text(key + demand)
    verify = (*VERIFY, "--trust", "mine.toml", "--json")
    for signer, kinds in ((thief, ["signature"] * 2), (release, [])):
        for version in ("0.1.0", "0.2.0"):
            owner.sign(here, f"{NAME}:{version}", signer)
        Path(ARCHIVE).unlink(missing_ok=True)
        reg("archive", "create", ARCHIVE, "--all")
        done = reg(*verify)
        assert (done.status, [each["kind"] for each in done.json["damages"]]) == (4 if kinds else 0, kinds)
        assert reg(*VERIFY).status == 0
    Path("odd.toml").write_text("[key.release]\n")
    assert reg(*VERIFY, "--trust", "odd.toml").status == 2
    Path("mine.toml").write_text(key)
    found = here.get(f"{NAME}:0.1.0")
    made = sign_statement(release_statement(found.name, found.version, found.data), thief)
    signature = Signature(made.signatures[0].sig, release.public.id)
    forged = Envelope(made.payload_type, made.payload, (signature,))
    Decisions(here.store).attest(found.ref, forged.encode(), MEDIA_TYPE)
    Path(ARCHIVE).unlink()
    reg("archive", "create", ARCHIVE, "--all")
    done = reg(*verify)
    assert (done.status, [each["kind"] for each in done.json["damages"]]) == (4, ["signature"])


def test_a_policy_log_that_is_garbage(reg, here):
    """Both ways to verify an archive find it."""
    Path("policy.toml").write_text('[[rule]]\nchannel = "next"\nlicenses = ["MIT"]\n')
    assert reg("policy", "set", "policy.toml", "--yes").status == 0
    reg("archive", "create", ARCHIVE, "--all")
    ways = (VERIFY, ("verify", "--remote", f"./{ARCHIVE}"))
    assert [reg(*words).status for words in ways] == [0, 0]
    write({**files(), "policy.jsonl": b"garbage\n"})
    for words in ways:
        done = reg(*words, "--json")
        assert done.status == 4 and "policy" in {each["kind"] for each in done.json["damages"]}


def test_a_package(reg):
    words = ("archive", "package", f"{NAME}:stable", "out")
    done = reg(*words)
    assert done.ended(0, "written to out: component pii, ")
    assert done.out.splitlines()[0].split() == ["VARIANT", "PROVIDER", "ARTIFACT", "DIGEST"]
    value = reg(*words, "--format", "onnx-int8", "--json").json
    assert (value["ref"], value["output"], value["component"]) == (f"{NAME}:0.1.0", "out", "pii")
    (variant,) = value["variants"]
    assert (variant["name"], variant["artifact"]) == ("onnx-int8", "model_int8.onnx")
    assert value["bytes"] == sum(path.stat().st_size for path in Path("out").rglob("*") if path.is_file())


FLAGS, METHOD, STORED, SIZE, ATTRIBUTES, OFFSET = 8, 10, 20, 24, 38, 42
"""Fields of a record of the directory, from its beginning on (APPNOTE.TXT 4.3.12)."""


def hole() -> bytes:
    """More zeros than a document may have."""
    return b"\0" * (MAX_DOCUMENT_BYTES + 1)


def files() -> dict[str, bytes]:
    with zipfile.ZipFile(ARCHIVE) as found:
        return {name: found.read(name) for name in found.namelist()}


def weights() -> str:
    """The name of the largest entry."""
    found = files()
    return max(found, key=lambda name: len(found[name]))


def write(changed: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(ARCHIVE, "w", compression) as made:
        for name, data in sorted(changed.items()):
            made.writestr(name, data)


def patch(at: int, kind: str, value: Callable[[int], int], name: str | None = None) -> None:
    """Change a field in the directory's record of an entry, by default of the largest."""
    data, wanted = bytearray(Path(ARCHIVE).read_bytes()), (name or weights()).encode()
    record = data.rindex(wanted) - 46
    assert data[record : record + 4] == b"PK\1\2"
    (before,) = struct.unpack_from(kind, data, record + at)
    struct.pack_into(kind, data, record + at, value(before))
    Path(ARCHIVE).write_bytes(data)


def patch_sizes(by: int) -> None:
    name = weights()
    for field in (STORED, SIZE):
        patch(field, "<I", lambda size: size + by, name)


def rename_in_the_entry() -> None:
    data, name = bytearray(Path(ARCHIVE).read_bytes()), weights().encode()
    data[data.index(name) + len(name) - 1] ^= 1
    Path(ARCHIVE).write_bytes(data)


HOSTILE: dict[str, Callable[[], object]] = {
    "packed with lzma": lambda: write(files(), zipfile.ZIP_LZMA),
    "a method that nobody knows": lambda: patch(METHOD, "<H", lambda _: 77),
    "an entry that calls itself encrypted": lambda: patch(FLAGS, "<H", lambda flags: flags | 1),
    "a link in the place of the weights": lambda: patch(ATTRIBUTES, "<I", lambda _: 0o120777 << 16),
    "an entry that begins beyond the file": lambda: patch(OFFSET, "<I", lambda _: 2**31),
    "an entry that is said to be larger": lambda: patch_sizes(100),
    "an entry that is said to be smaller": lambda: patch_sizes(-100),
    "an entry that is said to be 4 GB": lambda: patch(SIZE, "<I", lambda _: 2**32 - 2),
    "another name in the entry itself": rename_in_the_entry,
    "an archive.json that is too large": lambda: write(files() | {"archive.json": hole()}),
    "a history that is too large": lambda: write(files() | {f"index/{NAME}.jsonl": hole()}),
    "a hole of 5 GB": lambda: (Path(ARCHIVE).write_bytes(b""), os.truncate(ARCHIVE, 5 * 10**9)),
}


@pytest.mark.parametrize("case", sampled(HOSTILE, 2))
def test_an_archive_that_is_made_to_harm_is_one_error(reg, case):
    """With exit status 4, soon, and nothing is written."""
    pull = ("--registry", "new", "pull", NAME, f"./{ARCHIVE}")
    assert reg("archive", "create", ARCHIVE, NAME).status == reg(*VERIFY).status == 0
    HOSTILE[case]()
    for words in (VERIFY, pull):
        done = reg(*words)
        assert done.ended(4), (words, done)
    assert not list(Path("new/index").rglob("*.jsonl"))


@pytest.mark.parametrize("name", ["pipe.onnxreg", "pipe", "zero.onnxreg"])
def test_a_pipe_or_a_device_is_no_archive(reg, name):
    os.mkfifo(name) if "pipe" in name else Path(name).symlink_to("/dev/zero")
    assert reg("archive", "verify", name).ended(2, "is not a regular file")
