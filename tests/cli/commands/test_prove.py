"""`reg prove`: verdicts of a version, statements, and what a policy makes of them."""

import json
import re
import shutil
from pathlib import Path

import onnx
import pytest
from support.prove.children import dynamic, half, parent
from support.prove.recorded import read_proofs
from support.registries import owner
from support.servers import regserve

from onnxreg.cli.main import main
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.registry import Registry
from onnxreg.registry.gates.statements import attest_proof
from onnxreg.registry.log.log import Log
from onnxreg.registry.signing import Keystore
from onnxreg.registry.trust.signatures import PROOF
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.gates.statements import RULES, FaithfulnessReport, RuleCount
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

REF = "acme/pii:1.0.0"
RULE = b'[[rule]]\nchannel = "stable"\nfaithful = true\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    onnx.save(parent(), root / "model.onnx")
    onnx.save(parent(1), root / "stranger.onnx")
    with quiet():
        dynamic("QInt8", True, False)(root / "model.onnx", root / "model_int8.onnx")
        half(keep_io_types=True)(root / "model.onnx", root / "model_fp16.onnx")
    return root


@pytest.fixture
def registry(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    home = Registry(tmp_path / "home")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    add(home, files, tmp_path / "draft", "1.0.0")
    return home


def add(registry: Registry, files: Path, root: Path, version: str, source: str = "model.onnx") -> None:
    root.mkdir()
    for name in ("model_int8.onnx", "model_fp16.onnx"):
        shutil.copy(files / name, root)
    shutil.copy(files / source, root / "model.onnx")
    artifacts = (
        DraftArtifact("onnx", "float32", "model.onnx"),
        DraftArtifact("onnx-int8", "int8", "model_int8.onnx", parent="model.onnx"),
        DraftArtifact("onnx-fp16", "float16", "model_fp16.onnx", parent="model.onnx"),
    )
    registry.add(Draft("acme/pii", root, artifacts, (), {}), version)


def test_every_artifact_with_a_parent_is_proven(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", REF, "--strict", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    artifacts = {item.path: item.digest for item in registry.get(REF).manifest.artifacts}
    reports = {proof["path"]: proof["report"] for proof in answer["proofs"]}
    assert reports.keys() == {"model_int8.onnx", "model_fp16.onnx"}
    for path, report in reports.items():
        assert report["verdict"] == "proven"
        assert report["artifact"] == str(artifacts[path])
        assert report["parent"] == str(artifacts["model.onnx"])
        assert FaithfulnessReport.from_json(report).encode()


def test_a_child_of_another_model_is_refused_with_its_tensor(
    registry: Registry, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(registry, files, tmp_path / "other", "2.0.0", "stranger.onnx")
    assert main(["prove", "acme/pii:2.0.0", "--strict"]) == 8
    said = capsys.readouterr()
    assert "not-provable" in said.out
    assert "is another tensor" in said.out
    assert "not proven: model_int8.onnx, model_fp16.onnx" in said.err


def test_a_parent_may_be_a_file(
    registry: Registry, files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["prove", REF, "--artifact", "model_int8.onnx", "--strict", "--json", "--parent"]
    assert main([*words, str(files / "stranger.onnx")]) == 8
    assert main([*words, str(files / "model.onnx")]) == 0
    assert main([*words, str(files / "nothing.onnx")]) == 3
    capsys.readouterr()
    assert main(["prove", REF, "--artifact", "model.onnx"]) == 2
    assert "model.onnx of acme/pii:1.0.0 has no parent" in capsys.readouterr().err
    assert main(["prove", REF, "--artifact", "nothing.onnx"]) == 2
    monkeypatch.chdir(files)
    capsys.readouterr()
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--parent", "model.onnx"]) == 0
    assert " ./model.onnx " in capsys.readouterr().out


@pytest.mark.parametrize("named", [["--artifact", "model.xml"], []])
def test_what_is_not_a_graph_is_not_called_proven(
    named: list[str], files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], registry: Registry
) -> None:
    (tmp_path / "model.xml").write_text("<net/>")
    draft = Draft("acme/pii", tmp_path, (DraftArtifact("openvino-ir", "float32", "model.xml"),), (), {})
    registry.add(draft, "2.0.0")
    words = ["prove", "acme/pii:2.0.0", *named, "--strict", "--parent", str(files / "model.onnx")]
    assert main(words) == 2
    assert "model.xml of acme/pii:2.0.0 is not an .onnx or .ort file" in capsys.readouterr().err


def demands(registry: Registry, policy: bytes = RULE) -> dict[str, str]:
    owner.set_policy(registry, read_policy(policy, "policy"))
    findings = owner.promote(registry, Ref.parse(REF), "stable", dry_run=True).findings
    return {finding.detail: finding.verdict for finding in findings}


def test_a_policy_demands_a_proof_of_each_smaller_artifact(registry: Registry) -> None:
    assert demands(registry) == {
        "model_int8.onnx: no proof is on record": "fail",
        "model_fp16.onnx: no proof is on record": "fail",
    }
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--attest"]) == 0
    assert demands(registry) == {
        "model_int8.onnx is proven from model.onnx": "pass",
        "model_fp16.onnx: no proof is on record": "fail",
    }
    assert main(["prove", REF, "--attest"]) == 0
    assert set(demands(registry).values()) == {"pass"}
    assert main(["prove", REF, "--attest"]) == 0
    assert len(read_proofs(registry.store, Ref.parse(REF))) == 2
    assert main(["promote", REF, "stable"]) == 0


def test_a_signed_rule_takes_only_signed_proofs(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    rule = RULE + b'signed_by = ["release"]\n'
    for name in ("release", "other"):
        public = Keystore().new(name, "ed25519")
        assert main(["--quiet", "trust", "add", name, str(public)]) == 0
    assert main(["prove", REF, "--attest"]) == 0
    assert main(["prove", REF, "--attest", "--key", "other"]) == 0
    assert demands(registry, rule)["model_int8.onnx: its proof is not signed by release"] == "fail"
    assert main(["prove", REF, "--attest", "--key", "release"]) == 0
    assert main(["sign", REF, "--key", "release"]) == 0
    assert set(demands(registry, rule).values()) == {"pass"}
    capsys.readouterr()
    assert main(["log", "acme/pii"]) == 0
    shown = re.sub(" +", " ", capsys.readouterr().out)
    for words in (
        "proof of model_int8.onnx by release",
        "proof of model_int8.onnx by other",
        "signature by release",
    ):
        assert words in shown
    signed = [proof for proof in read_proofs(registry.store, Ref.parse(REF)) if proof.signers]
    assert {name for proof in signed for names in proof.signers for name in names} >= {"release", "other"}


def test_a_key_without_a_log_is_refused(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", REF, "--key", "release"]) == 2
    error = capsys.readouterr().err
    assert "--key signs logged reports, and nothing is logged" in error
    assert "add --attest" in error
    assert read_proofs(registry.store, Ref.parse(REF)) == []


def test_a_logged_attestation_is_printed(
    registry: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    public = Keystore().new("release", "ed25519")
    capsys.readouterr()
    assert main(["prove", REF]) == 0
    assert "logged" not in capsys.readouterr().out
    assert main(["prove", REF, "--attest"]) == 0
    assert "logged 2 reports in acme/pii\n" in capsys.readouterr().out
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--attest", "--key", "release"]) == 0
    assert f"logged 1 report in acme/pii, signed with key {public.id[:12]}\n" in capsys.readouterr().out


def test_the_proofs_of_a_remote_are_logged_there(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["remote", "add", "origin", str(tmp_path / "remote")]) == 0
    assert main(["push", REF, "origin"]) == 0
    assert main(["prove", REF, "--remote", "origin", "--attest"]) == 0
    assert "logged 2 reports in acme/pii in " in capsys.readouterr().out
    ref = Ref.parse(REF)
    assert read_proofs(registry.store, ref) == []
    assert len(read_proofs(registry.remotes.open("origin"), ref)) == 2


def prove(registry: Registry, report: FaithfulnessReport) -> None:
    release = registry.get(REF)
    attest_proof(registry.decisions(release.name), release, report)


def test_an_old_report_that_is_logged_again_is_not_newer(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--json"]) == 0
    proven = FaithfulnessReport.from_json(json.loads(capsys.readouterr().out)["proofs"][0]["report"])
    taken_back = proven.model_copy(update={"verdict": "not-provable"})
    with monkeypatch.context() as patch:
        patch.setattr(Log, "events", lambda *_: iter(()))  # which would show that it is stated already
        for report in (proven, taken_back, proven):
            prove(registry, report)
    assert [item.report.verdict for item in read_proofs(registry.store, Ref.parse(REF))] == [
        "proven",
        "not-provable",
    ]
    assert demands(registry)["model_int8.onnx is not-provable from model.onnx"] == "fail"


def test_a_report_about_another_parent_or_verdict_does_not_count(registry: Registry) -> None:
    manifest = registry.get(REF).manifest
    full, int8 = manifest.artifacts[:2]
    report = {
        "format": "onnxreg-faithfulness",
        "format_version": 1,
        "rules": RULES,
        "artifact": str(int8.digest),
    }
    for parent_digest, verdict in ((Digest.of(b"other"), "proven"), (full.digest, "bounded")):
        value = {**report, "parent": str(parent_digest), "verdict": verdict}
        prove(registry, FaithfulnessReport.from_json(value))
    assert demands(registry)["model_int8.onnx is bounded from model.onnx"] == "fail"
    with pytest.raises(Exception, match="not an artifact"):
        prove(
            registry,
            FaithfulnessReport.from_json(
                {**report, "artifact": str(Digest.of(b"x")), "parent": str(full.digest), "verdict": "proven"}
            ),
        )


def test_a_malformed_statement_proves_nothing_and_blocks_nothing(
    registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", REF, "--attest"]) == 0
    registry.decisions("acme/pii").attest(Ref.parse(REF), b'{"verdict": "proven"}', PROOF)
    assert set(demands(registry).values()) == {"pass"}
    capsys.readouterr()
    assert main(["show", REF]) == 0
    assert "proof: model_int8.onnx is proven from model.onnx" in capsys.readouterr().out


def test_a_rule_that_wants_no_proof_is_refused(tmp_path: Path) -> None:
    (tmp_path / "idle.toml").write_text('[[rule]]\nchannel = "stable"\nfaithful = false\n')
    assert main(["policy", "set", str(tmp_path / "idle.toml")]) == 2


def test_a_report_counts_its_rules(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--json"]) == 0
    report = FaithfulnessReport.from_json(json.loads(capsys.readouterr().out)["proofs"][0]["report"])
    assert RuleCount(rule="dynamic-product", count=6) in report.rewrites
    assert sum(item.count for item in report.scales) == 8


def test_show_and_bills_name_the_proofs_on_record(
    registry: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    assert main(["--quiet", "trust", "add", "release", str(Keystore().new("release", "ed25519"))]) == 0
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--attest", "--key", "release"]) == 0
    capsys.readouterr()
    assert main(["show", REF]) == 0
    assert "model_int8.onnx is proven from model.onnx, signed by release" in capsys.readouterr().out
    assert main(["sbom", REF, "--proofs"]) == 0
    bill = json.loads(capsys.readouterr().out)
    (facts,) = [item["properties"] for item in bill["components"] if item["name"] == "model_int8.onnx"]
    assert {"name": "onnxreg:faithfulness", "value": "proven"} in facts
    assert {"name": "onnxreg:faithfulness:authority", "value": "signed by release"} in facts
    assert main(["sbom", REF]) == 0
    assert "faithfulness" not in capsys.readouterr().out


@pytest.mark.usefixtures("reader_in_process")
def test_an_import_says_if_its_files_are_faithful(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    folder = tmp_path / "repository" / "onnx"
    folder.mkdir(parents=True)
    shutil.copy(files / "model.onnx", folder / "model.onnx")
    shutil.copy(files / "model_int8.onnx", folder / "model_quantized.onnx")
    assert main(["import", str(folder.parent), "--name", "acme/hub", "--json"]) == 0
    (proof,) = json.loads(capsys.readouterr().out)["proofs"]
    assert (proof["path"], proof["verdict"]) == ("onnx/model_quantized.onnx", "proven")


@pytest.mark.usefixtures("reader_in_process")
def test_added_files_are_compared_with_the_parent_that_is_stated(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict is said, and none is on record: a rule that demands one is not met."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    paths = [str(files / name) for name in ("model.onnx", "model_int8.onnx", "stranger.onnx")]
    command = ["add", *paths, "--name", "acme/ner", "--version", "1.0.0"]
    assert main([*command, "--json"]) == 0
    assert "proofs" not in json.loads(capsys.readouterr().out)
    command[-1] = "1.1.0"
    assert main([*command, "--parent", paths[0]]) == 0
    out = capsys.readouterr().out
    assert "model_int8.onnx is proven from model.onnx (reg prove)\n" in out
    assert re.search(r"stranger.onnx is not-provable from model.onnx \(reg prove\): .+ differs", out)
    home = Registry(tmp_path / "home")
    assert read_proofs(home.store, Ref.parse("acme/ner:1.1.0")) == []
    parents = {artifact.path: artifact.parent for artifact in home.get("acme/ner:1.1.0").manifest.artifacts}
    digest = Digest.of((files / "model.onnx").read_bytes())
    assert parents == {"model.onnx": None, "model_int8.onnx": digest, "stranger.onnx": digest}
    command[-1] = "1.2.0"
    assert main([*command, "--parent", str(files / "model_fp16.onnx")]) == 2
    assert "name the parent among the files, too" in capsys.readouterr().err
    alone = ["add", paths[0], "--name", "acme/ner", "--version", "1.2.0", "--parent", paths[0]]
    assert main(alone) == 2
    assert "is the only model, so no other can be compared with it" in capsys.readouterr().err


def test_an_unsigned_claim_is_called_unsigned(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    """Anybody can log one; one about another file than the parent, or by older rules, is no proof."""
    full, int8 = registry.get(REF).manifest.artifacts[:2]
    about = {
        "format": "onnxreg-faithfulness",
        "format_version": 1,
        "rules": RULES,
        "artifact": str(int8.digest),
    }
    for verdict, origin, rules in (
        ("bounded", full.digest, RULES),
        ("proven", int8.digest, RULES),
        ("proven", full.digest, RULES - 1),
    ):
        value = {**about, "parent": str(origin), "verdict": verdict, "rules": rules}
        prove(registry, FaithfulnessReport.from_json(value))
    assert main(["show", REF]) == 0
    (line,) = [text for text in capsys.readouterr().out.splitlines() if text.startswith("proof: ")]
    assert line == "proof: model_int8.onnx is bounded from model.onnx, unsigned"
    assert main(["sbom", REF, "--proofs"]) == 0
    bill = json.loads(capsys.readouterr().out)
    (facts,) = [item["properties"] for item in bill["components"] if item["name"] == "model_int8.onnx"]
    assert [fact["value"] for fact in facts if fact["name"].startswith("onnxreg:faithfulness")] == [
        "bounded",
        str(full.digest),
        str(RULES),
        "unsigned",
    ]


def test_a_signed_proof_is_stated_although_an_unsigned_one_came_later(
    registry: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    assert main(["--quiet", "trust", "add", "release", str(Keystore().new("release", "ed25519"))]) == 0
    assert main(["prove", REF, "--artifact", "model_int8.onnx", "--attest", "--key", "release"]) == 0
    full, int8 = registry.get(REF).manifest.artifacts[:2]
    about = {
        "format": "onnxreg-faithfulness",
        "format_version": 1,
        "rules": RULES,
        "artifact": str(int8.digest),
    }
    value = {**about, "parent": str(full.digest), "verdict": "bounded"}
    prove(registry, FaithfulnessReport.from_json(value))
    capsys.readouterr()
    assert main(["sbom", REF, "--proofs"]) == 0
    printed = capsys.readouterr().out
    assert "signed by release" in printed and "bounded" not in printed


def test_a_diff_says_which_proofs_are_on_record(
    registry: Registry, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(registry, files, tmp_path / "other", "2.0.0", "stranger.onnx")
    assert main(["prove", REF, "--attest"]) == 0
    assert main(["prove", "acme/pii:2.0.0", "--artifact", "model_int8.onnx", "--attest"]) == 0
    capsys.readouterr()
    assert main(["diff", REF, "acme/pii:2.0.0"]) == 0
    said = capsys.readouterr().out
    assert "proof: model_int8.onnx: proven -> not-provable" in said
    assert main(["diff", REF, "acme/pii:2.0.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["proofs"]["old"]["model_int8.onnx"] == "proven"


def test_the_page_of_a_version_names_its_proofs(registry: Registry) -> None:
    assert main(["prove", REF, "--attest"]) == 0
    with regserve.running(registry.store.root) as site:
        page = site.get("/models/acme/pii:1.0.0").body.decode()
    assert page.count("proven: the parent's weights, rounded") == 2
