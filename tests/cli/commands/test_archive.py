"""`reg archive`, and what other verbs make of an archive."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner

from onnxreg.registry import Registry

Reg = Callable[..., Any]


@pytest.fixture(autouse=True)
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(home))
    return Registry(home)


def test_create_verify_and_pull(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    made = reg("archive", "create", "pii.onnxreg", "acme/pii:stable")
    assert made.status == 0
    assert made.out.splitlines()[1].split() == ["acme/pii", "0.1.0"]
    assert "written to pii.onnxreg" in made.out
    verified = reg("archive", "verify", "pii.onnxreg")
    assert verified.status == 0
    assert "all intact" in verified.out and registry.id in verified.out
    assert reg("ls", "acme/pii", "--remote", "./pii.onnxreg").status == 0
    assert reg("ls", "--remote", "./pii.onnxreg", "--json").json["models"][0]["name"] == "acme/pii"
    site = tmp_path / "site"
    pulled = reg("--registry", site, "pull", "acme/pii:stable", "./pii.onnxreg", "--output", "out")
    assert pulled.status == 0
    manifest = registry.get("acme/pii:0.1.0")
    assert (tmp_path / "out" / "openmed-onnx.json").read_bytes() == manifest.data
    for verb in ("verify", "doctor"):
        words = ("verify", "--remote", "./pii.onnxreg") if verb == "verify" else ("doctor", "./pii.onnxreg")
        assert reg("--registry", site, *words).status == 0


def test_archive_as_json(reg: Reg, registry: Registry) -> None:
    made = reg("archive", "create", "all.onnxreg", "--all", "--json").json
    versions = {"acme/pii": ["0.1.0", "0.2.0"], "tiny": ["0.1.0"]}
    assert (made["file"], made["registry"], made["versions"]) == ("all.onnxreg", registry.id, versions)
    assert made["bytes"] == Path("all.onnxreg").stat().st_size
    verified = reg("archive", "verify", "all.onnxreg", "--json").json
    assert verified == {
        "registry": registry.id,
        "versions": versions,
        "ok": True,
        "models": 2,
        "blobs": made["blobs"],
        "bytes": verified["bytes"],
        "damages": [],
        "unpromoted": [],
    }


def test_verify_needs_no_registry(reg: Reg, tmp_path: Path) -> None:
    reg("archive", "create", "pii.onnxreg", "acme/pii")
    nowhere = tmp_path / "nowhere"
    assert reg("--registry", nowhere, "archive", "verify", "pii.onnxreg").status == 0
    assert not nowhere.exists()


def test_of_a_remote(reg: Reg, tmp_path: Path) -> None:
    remote = tmp_path / "home"
    site = tmp_path / "site"
    words = ("archive", "create", "t.onnxreg", "tiny", "--remote", remote)
    assert reg("--registry", site, *words).status == 0
    assert reg("archive", "create", "mine.onnxreg", "tiny").status == 0
    assert Path("t.onnxreg").read_bytes() == Path("mine.onnxreg").read_bytes()


def test_exit_statuses(reg: Reg) -> None:
    assert reg("archive", "create", "x.onnxreg").status == 2
    assert reg("archive", "create", "x.onnxreg", "acme/pii:9.0.0").status == 3
    assert reg("archive", "verify", "x.onnxreg").status == 3
    Path("x.onnxreg").write_bytes(b"PK")
    assert reg("archive", "verify", "x.onnxreg").status == 4
    assert reg("ls", "--remote", "./x.onnxreg").status == 4
    assert reg("archive", "create", "x.onnxreg", "tiny").status == 2
    Path("x.onnxreg").unlink()
    assert reg("archive", "create", "x.onnxreg", "tiny").status == 0
    data = Path("x.onnxreg").read_bytes()
    Path("x.onnxreg").write_bytes(data.replace(b"fp32 a", b"fp32 b", 1))
    broken = reg("archive", "verify", "x.onnxreg")
    assert broken.status == 4 and "damaged" in broken.out
    assert reg("push", "acme/pii", "./x.onnxreg").status == 6


def test_verify_by_the_readers_own_keys(reg: Reg, registry: Registry) -> None:
    """What is demanded and missing is 4."""
    from onnxreg.registry.signing import generate

    release, thief = generate("ed25519"), generate("ed25519")
    demand = '[[require]]\nmodels = ["acme/*"]\nversions = true\n'
    Path("mine.toml").write_text(f'[keys.release]\nkey = "{release.public}"\n{demand}')
    make = ("archive", "create", "all.onnxreg", "--all")
    verify = ("archive", "verify", "all.onnxreg", "--trust", "mine.toml", "--json")
    for version in ("0.1.0", "0.2.0"):
        owner.sign(registry, f"acme/pii:{version}", thief)
    reg(*make)
    refused = reg(*verify)
    assert refused.status == 4
    assert [each["kind"] for each in refused.json["damages"]] == ["signature"] * 2
    assert reg("archive", "verify", "all.onnxreg").status == 0
    for version in ("0.1.0", "0.2.0"):
        owner.sign(registry, f"acme/pii:{version}", release)
    reg(*make)
    assert reg(*verify).json["damages"] == []
    assert reg("archive", "verify", "all.onnxreg", "--trust", "none.toml").status == 3
    Path("odd.toml").write_text("[key.release]\n")
    assert reg("archive", "verify", "all.onnxreg", "--trust", "odd.toml").status == 2


def test_verify_finds_a_wrong_signature(reg: Reg, registry: Registry) -> None:
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.registry.signing import generate, sign_release
    from onnxreg.schema.signing.dsse import MEDIA_TYPE, Envelope, Signature

    release = generate("ed25519")
    Path("mine.toml").write_text(f'[keys.release]\nkey = "{release.public}"\n')
    found = registry.get("acme/pii:0.1.0")
    made = sign_release(found.name, found.version, found.data, generate("ed25519"))
    forged = Envelope(
        made.payload_type, made.payload, (Signature(release.public.id, made.signatures[0].sig),)
    )
    Decisions(registry.store).attest(found.ref, forged.encode(), MEDIA_TYPE)
    reg("archive", "create", "all.onnxreg", "--all")
    refused = reg("archive", "verify", "all.onnxreg", "--trust", "mine.toml", "--json")
    assert (refused.status, [each["kind"] for each in refused.json["damages"]]) == (4, ["signature"])


@pytest.mark.parametrize(
    "words", [("archive", "verify", "all.onnxreg"), ("verify", "--remote", "./all.onnxreg")]
)
def test_a_policy_log_that_is_garbage(reg: Reg, words: tuple[str, ...]) -> None:
    """Both ways to verify an archive find it."""
    import zipfile

    Path("policy.toml").write_text('[[rule]]\nchannel = "next"\nlicenses = ["MIT"]\n')
    assert reg("policy", "set", "policy.toml", "--yes").status == 0
    reg("archive", "create", "all.onnxreg", "--all")
    assert reg(*words).status == 0
    with zipfile.ZipFile("all.onnxreg") as found:
        files = {name: found.read(name) for name in found.namelist()}
    with zipfile.ZipFile("all.onnxreg", "w", zipfile.ZIP_STORED) as made:
        for name in sorted(files):
            made.writestr(name, b"garbage\n" if name == "policy.jsonl" else files[name])
    refused = reg(*words, "--json")
    assert refused.status == 4
    assert "policy" in {each["kind"] for each in refused.json["damages"]}
