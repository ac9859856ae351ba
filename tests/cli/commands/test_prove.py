"""`reg prove`: verdicts of a version, statements, and what a policy, a screen and a bill make of them."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import pytest
from support.command_line import Reg
from support.prove.children import dynamic, half, parent
from support.prove.recorded import read_proofs
from support.registries import owner
from support.servers import regserve

from onnxreg.converters.runtime.sessions import quiet
from onnxreg.converters.source import source_files
from onnxreg.registry import Registry
from onnxreg.registry.log.log import Log
from onnxreg.registry.signing import Keystore
from onnxreg.registry.trust.signatures import PROOF, attest_proof
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.gates.statements import RULES, FaithfulnessReport, RuleCount, proof_pairs, timed_pairs
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

REF, OTHER = "acme/pii:1.0.0", "acme/pii:2.0.0"
AT = Ref.parse(REF)
INT8, FP16 = "model_int8.onnx", "model_fp16.onnx"
ONE = ("prove", REF, "--artifact", INT8)
RULE = b'[[rule]]\nchannel = "stable"\nfaithful = true\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    onnx.save(parent(), root / "model.onnx")
    onnx.save(parent(1), root / "stranger.onnx")
    with quiet():
        dynamic("QInt8", True, False)(root / "model.onnx", root / INT8)
        half(keep_io_types=True)(root / "model.onnx", root / FP16)
    return root


def add(registry: Registry, files: Path, root: Path, version: str, source: str = "model.onnx") -> None:
    root.mkdir()
    for name, file in {INT8: INT8, FP16: FP16, "model.onnx": source}.items():
        shutil.copy(files / file, root / name)
    full = DraftArtifact("onnx", "float32", "model.onnx")
    int8 = DraftArtifact("onnx-int8", "int8", INT8, parent="model.onnx")
    fp16 = DraftArtifact("onnx-fp16", "float16", FP16, parent="model.onnx")
    registry.add(Draft("acme/pii", root, (full, int8, fp16), (), {}), version)


@pytest.fixture
def registry(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """1.0.0, and 2.0.0 whose smaller files are of another model."""
    home = Registry(tmp_path / "home")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    add(home, files, tmp_path / "draft", "1.0.0")
    add(home, files, tmp_path / "other", "2.0.0", "stranger.onnx")
    return home


@pytest.fixture
def key(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Make a key that the user trusts."""
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")

    def make(name: str) -> Any:
        public = Keystore().new(name, "ed25519")
        assert reg("trust", "add", name, public).status == 0
        return public

    return make


def test_every_artifact_with_a_parent_is_proven_or_refused_with_its_tensor(reg, registry):
    answer = reg("prove", REF, "--strict", "--json").json
    artifacts = {item.path: str(item.digest) for item in registry.get(REF).manifest.artifacts}
    reports = {proof["path"]: proof["report"] for proof in answer["proofs"]}
    assert reports.keys() == {INT8, FP16}
    for path, report in reports.items():
        assert [report[name] for name in ("verdict", "artifact", "parent")] == [
            *("proven", artifacts[path], artifacts["model.onnx"])
        ]
        assert FaithfulnessReport.from_json(report).encode()
    int8 = FaithfulnessReport.from_json(reports[INT8])
    assert RuleCount(rule="dynamic-product", count=6) in int8.rewrites
    assert sum(item.count for item in int8.scales) == 8
    refused = reg("prove", OTHER, "--strict")
    assert refused.ended(8, "not-provable", "is another tensor", f"not proven: {INT8}, {FP16}")


def test_a_program_chooses_what_can_be_proven(registry):
    manifest = registry.get(REF).manifest
    full, *smaller = manifest.artifacts
    assert proof_pairs(manifest, REF) == [(item, full) for item in smaller]
    assert proof_pairs(manifest, REF, [full.path, FP16], has_parent=True)[0] == (full, None)
    with pytest.raises(InputError, match=f"model.onnx of {REF} has no parent"):
        proof_pairs(manifest, REF, [full.path, FP16])


def test_a_program_chooses_what_is_timed(registry):
    manifest = registry.get(REF).manifest
    full, *smaller = manifest.artifacts
    assert timed_pairs(manifest, REF) == [(item, full) for item in smaller]
    assert timed_pairs(manifest, REF, [FP16]) == [(smaller[1], full)]
    with pytest.raises(InputError, match=f"to time {full.path} beside") as caught:
        timed_pairs(manifest, REF, [full.path, FP16])
    assert caught.value.hint == f"files made from full precision: {INT8}, {FP16}"


def test_a_parent_may_be_a_file(reg, registry, files, monkeypatch):
    for name, status in (("stranger", 8), ("model", 0), ("nothing", 3)):
        assert reg(*ONE, "--strict", "--parent", files / f"{name}.onnx").status == status
    assert reg("prove", REF, "--artifact", "model.onnx").ended(2, f"model.onnx of {REF} has no parent")
    assert reg("prove", REF, "--artifact", "nothing.onnx").ended(3, "its artifacts are", "model.onnx")
    monkeypatch.chdir(files)
    hashed = mock.Mock(side_effect=source_files.digest_file)
    monkeypatch.setattr(source_files, "digest_file", hashed)
    assert reg("prove", REF, "--parent", "model.onnx").ended(0, " ./model.onnx ")
    assert hashed.call_count == 1


@pytest.mark.parametrize("named", [["--artifact", "model.xml"], []])
def test_what_is_not_a_graph_is_not_called_proven(named, reg, files, tmp_path, registry):
    (tmp_path / "model.xml").write_text("<net/>")
    artifacts = (DraftArtifact("openvino-ir", "float32", "model.xml"),)
    registry.add(Draft("acme/pii", tmp_path, artifacts, (), {}), "3.0.0")
    done = reg("prove", "acme/pii:3.0.0", *named, "--strict", "--parent", files / "model.onnx")
    assert done.ended(2, "model.xml of acme/pii:3.0.0 is not an .onnx or .ort file")


def demands(registry: Registry, policy: bytes = RULE) -> dict[str, str]:
    owner.set_policy(registry, read_policy(policy, "policy"))
    findings = owner.promote(registry, AT, "stable", dry_run=True).findings
    return {finding.detail: finding.verdict for finding in findings}


def test_a_policy_demands_a_proof_of_each_smaller_artifact(reg, registry):
    missing = {f"{path}: no proof is on record": "fail" for path in (INT8, FP16)}
    assert demands(registry) == missing
    assert reg(*ONE, "--attest").ended(0, "logged 1 report in acme/pii\n")
    del missing[f"{INT8}: no proof is on record"]
    assert demands(registry) == {f"{INT8} is proven from model.onnx": "pass", **missing}
    for _ in range(2):
        assert reg("prove", REF, "--attest").status == 0
        assert set(demands(registry).values()) == {"pass"}
    assert len(read_proofs(registry.store, AT)) == 2
    registry.decisions("acme/pii").attest(AT, b'{"verdict": "proven"}', PROOF)
    assert set(demands(registry).values()) == {"pass"}, "a malformed statement blocks nothing"
    assert reg("show", REF).ended(0, f"proof: {INT8} is proven from model.onnx")
    assert reg("promote", REF, "stable").status == 0
    with regserve.running(registry.store.root) as site:
        page = site.get(f"/models/{REF}").body.decode()
    assert page.count("proven: the parent's weights, rounded") == 2
    assert reg("prove", OTHER, "--artifact", INT8, "--attest").status == 0
    assert reg("diff", REF, OTHER).ended(0, f"proof: {INT8}: proven -> not-provable")
    assert reg("diff", REF, OTHER, "--json").json["proofs"]["old"][INT8] == "proven"


def test_a_signed_rule_takes_only_signed_proofs(reg, registry, key):
    rule, public, _ = RULE + b'signed_by = ["release"]\n', key("release"), key("other")
    unlogged = reg("prove", REF, "--key", "release")
    assert unlogged.ended(2, "--key signs logged reports, and nothing is logged", "add --attest")
    assert read_proofs(registry.store, AT) == []
    for words in ((), ("--key", "other")):
        assert reg("prove", REF, "--attest", *words).status == 0
    assert demands(registry, rule)[f"{INT8}: its proof is not signed by release"] == "fail"
    signed = reg("prove", REF, "--attest", "--key", "release")
    assert signed.ended(0, f"logged 2 reports in acme/pii, signed with key {public.id[:12]}\n")
    assert reg("sign", REF, "--key", "release").status == 0
    assert set(demands(registry, rule).values()) == {"pass"}
    shown = re.sub(" +", " ", reg("log", "acme/pii").out)
    for words in (f"proof of {INT8} by release", f"proof of {INT8} by other", "signature by release"):
        assert words in shown
    proofs = [proof for proof in read_proofs(registry.store, AT) if proof.signers]
    assert {name for proof in proofs for names in proof.signers for name in names} >= {"release", "other"}


def test_the_proofs_of_a_remote_are_logged_there(reg, registry, tmp_path):
    assert reg("push", REF, "./remote").status == 0
    assert reg("prove", REF, "--remote", "./remote", "--attest").ended(0, "logged 2 reports in acme/pii in ")
    assert read_proofs(registry.store, AT) == []
    assert len(read_proofs(registry.remotes.open(str(tmp_path / "remote")), AT)) == 2


def claim(registry: Registry, verdict: str, **changes: Any) -> None:
    """Log an unsigned claim about the INT8 file, as anybody can."""
    release = registry.get(REF)
    full, int8 = release.manifest.artifacts[:2]
    about = {"format": "onnxreg-faithfulness", "format_version": 1, "rules": RULES, "verdict": verdict}
    value = {**about, "artifact": str(int8.digest), "parent": str(full.digest), **changes}
    attest_proof(registry.decisions(release.name), release, FaithfulnessReport.from_json(value))


def test_an_old_report_that_is_logged_again_is_not_newer(reg, registry, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Log, "events", lambda *_: iter(()))  # which would show that it is stated already
        for verdict in ("proven", "not-provable", "proven"):
            claim(registry, verdict)
    assert [item.report.verdict for item in read_proofs(registry.store, AT)] == ["proven", "not-provable"]
    assert demands(registry)[f"{INT8} is not-provable from model.onnx"] == "fail"


def bill(reg: Reg, *words: str) -> list[dict[str, str]]:
    components = reg("sbom", REF, *words).json["components"]
    (facts,) = [item["properties"] for item in components if item["name"] == INT8]
    return [fact for fact in facts if fact["name"].startswith("onnxreg:faithfulness")]


def test_a_claim_about_another_parent_or_by_older_rules_does_not_count(reg, registry, key):
    claim(registry, "bounded")
    claim(registry, "proven", parent=str(Digest.of(b"other")))
    claim(registry, "proven", rules=RULES - 1)
    with pytest.raises(Exception, match="not an artifact"):
        claim(registry, "proven", artifact=str(Digest.of(b"x")))
    assert demands(registry)[f"{INT8} is bounded from model.onnx"] == "fail"
    (line,) = [text for text in reg("show", REF).out.splitlines() if text.startswith("proof: ")]
    assert line == f"proof: {INT8} is bounded from model.onnx, unsigned"
    full = registry.get(REF).manifest.artifacts[0].digest
    values = [fact["value"] for fact in bill(reg, "--proofs")]
    assert values == ["bounded", str(full), str(RULES), "unsigned"]
    key("release")
    assert reg(*ONE, "--attest", "--key", "release").status == 0
    claim(registry, "bounded", rules=RULES)
    facts = bill(reg, "--proofs")
    assert {"name": "onnxreg:faithfulness", "value": "proven"} in facts
    assert {"name": "onnxreg:faithfulness:authority", "value": "signed by release"} in facts
    assert bill(reg) == []
    assert reg("show", REF).ended(0, f"{INT8} is proven from model.onnx, signed by release")


@pytest.mark.usefixtures("reader_in_process")
def test_files_that_are_added_or_imported_are_compared_with_their_parent(reg, files, tmp_path, monkeypatch):
    """The verdict is said, and none is on record: a rule that demands one is not met."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "repository" / "onnx"
    folder.mkdir(parents=True)
    shutil.copy(files / "model.onnx", folder / "model.onnx")
    shutil.copy(files / INT8, folder / "model_quantized.onnx")
    (proof,) = reg("import", folder.parent, "--name", "acme/hub", "--json").json["proofs"]
    assert (proof["path"], proof["verdict"]) == ("onnx/model_quantized.onnx", "proven")
    paths = [files / name for name in ("model.onnx", INT8, "stranger.onnx")]
    add = ("add", *paths, "--name", "acme/ner", "--version")
    first = reg(*add, "1.0.0", "--task", "text-to-speech", "--json").json
    assert "proofs" not in first and first["manifest"]["task"] == "text-to-audio"
    done = reg(*add, "1.1.0", "--parent", paths[0])
    assert done.ended(0, f"{INT8} is proven from model.onnx (reg prove)\n")
    assert re.search(r"stranger.onnx is not-provable from model.onnx \(reg prove\): .+ differs", done.out)
    home = Registry(tmp_path / "home")
    assert read_proofs(home.store, Ref.parse("acme/ner:1.1.0")) == []
    digest = Digest.of((files / "model.onnx").read_bytes())
    parents = {artifact.path: artifact.parent for artifact in home.get("acme/ner:1.1.0").manifest.artifacts}
    assert parents == {"model.onnx": None, INT8: digest, "stranger.onnx": digest}
    assert reg(*add, "1.2.0", "--parent", files / FP16).ended(2, "name the parent among the files, too")
    alone = reg("add", paths[0], "--name", "acme/ner", "--parent", paths[0])
    assert alone.ended(2, "is the only model, so no other can be compared with it")
