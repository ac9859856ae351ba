"""`policy`, `promote`, `attest`, and what other verbs say of governed channels."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME, POLICY, draft, refusal
from support.trust.attack_operations import attack
from support.trust.world import plain_pem

from onnxreg.cli.context import Session
from onnxreg.registry import Registry
from onnxreg.registry.signing import generate

Reg = Callable[..., Any]
STABLE = f"{NAME}:stable"


@pytest.fixture
def registry(gated: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(gated.store.root))
    return gated


def test_a_policy_is_set_and_shown(reg: Reg, tmp_path: Path) -> None:
    assert reg("--registry", tmp_path / "new", "remote", "list").status in (0, 3)
    Registry(tmp_path / "new")
    new = ("--registry", tmp_path / "new", "policy")
    assert "no policy" in reg(*new, "show").out
    assert reg(*new, "show", "--json").json["rules"] == []
    (tmp_path / "policy.toml").write_bytes(POLICY)
    done = reg(*new, "set", "policy.toml", "--yes", "--reason", "review")
    assert done.out.endswith("policy 1 is in force: 1 rule\n")
    assert reg(*new, "set", "policy.toml").out == "nothing to do: this policy is in force\n"
    shown = reg(*new, "show", "--json").json
    assert shown.keys() == {"line", "seq", "time", "actor", "reason", "rules"}
    assert (shown["seq"], shown["reason"], shown["rules"][0]["channel"]) == (1, "review", "stable")
    (tmp_path / "laxer.toml").write_bytes(b'[[rule]]\nchannel = "beta"\ncertified = ["onnx-int8"]\n')
    assert reg(*new, "set", "laxer.toml", "--yes").status == 0
    every = reg(*new, "show", "--all", "--json").json["policies"]
    assert every[0] == shown and [each["rules"][0]["channel"] for each in every] == ["stable", "beta"]
    assert reg(*new, "show", "--all").out.count("[[rule]]") == 2
    log = reg(*new[:2], "log", ".policy", "--json").json
    assert [line["digest"] for line in log["lines"]] == [shown["line"], log["head"]]
    assert "1 rule" in reg(*new[:2], "log", ".policy").out
    assert reg("--registry", Registry(tmp_path / "free").store.root, "log", ".policy").status == 3


def test_a_remote_without_a_policy(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    """What is governed here is free there, and each word about it says how that is changed there."""
    there = tmp_path / "there"
    (tmp_path / "policy.toml").write_bytes(POLICY)
    nowhere = reg("policy", "set", "policy.toml", "--yes", "--remote", there)
    assert nowhere.status == 3 and str(there) in nowhere.err
    reg("push", f"{NAME}:1.0.0", there)
    assert f"reg policy set FILE --remote {there}" in reg("policy", "show", "--remote", there).out
    done = reg("promote", f"{NAME}:1.0.0", "stable", "--remote", there)
    assert done.status == 2 and f"no policy governs {STABLE} in {there}" in done.err
    assert f"`reg push {NAME}:1.0.0 {there} --tag stable`" in done.err
    assert f"`reg policy set FILE --remote {there}`" in done.err


def test_policy_set_accepts_the_output_of_policy_show(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    shown = reg("policy", "show").out
    (tmp_path / "again.toml").write_text(shown[shown.index("[[rule]]") :])
    assert reg("policy", "set", "again.toml").out == "nothing to do: this policy is in force\n"


def test_a_file_that_is_no_policy(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[[rule]]\nchannel = "stable"\nmax_recal_loss = 1\n')
    done = reg("policy", "set", "bad.toml")
    assert done.status == 2
    assert "max_recal_loss" in done.err and "max_recall_loss" in done.err
    assert reg("policy", "set", "none.toml").status == 3


def test_promote_prints_a_table_and_moves(reg: Reg, registry: Registry) -> None:
    dry = reg("promote", f"{NAME}:1.0.0", "stable", "--dry-run")
    assert dry.out.startswith("DEMAND") and dry.out.endswith(f"{NAME}:1.0.0 may become stable\n")
    assert reg("promote", f"{NAME}:1.0.0", "stable").out.endswith(f"{STABLE} is 1.0.0\n")
    assert reg("promote", f"{NAME}:1.1.0", "stable").out.endswith(f"{STABLE} is 1.1.0, before 1.0.0\n")
    again = reg("promote", f"{NAME}:1.1.0", "stable")
    assert again.out.endswith(f"nothing to do: {STABLE} is 1.1.0 under this policy\n")


def test_promote_refuses_with_8(reg: Reg, registry: Registry) -> None:
    done = reg("promote", f"{NAME}:1.2.0", "stable", "--json")
    assert done.status == 8
    assert done.error["family"] == "gate"
    assert done.json.keys() == {"ref", "channel", "policy_holds", "moved", "before", "findings"}
    assert (done.json["policy_holds"], done.json["moved"]) == (False, False)
    failed = [each for each in done.json["findings"] if each["verdict"] == "fail"]
    assert [each["requirement"] for each in failed] == ["certified"]
    assert reg("promote", f"{NAME}:1.0.0", "beta").status == 2


def test_tag_points_to_promote(reg: Reg, registry: Registry) -> None:
    done = reg("tag", f"{NAME}:1.0.0", "stable")
    assert done.status == 8
    assert "reg promote" in done.err


def test_push_does_not_move_a_governed_channel(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    free = tmp_path / "free"
    assert reg("--registry", free, "pull", f"{NAME}:1.0.0", registry.store.root).status == 0
    assert reg("--registry", free, "tag", f"{NAME}:1.0.0", "stable").status == 0
    done = reg("--registry", free, "push", f"{NAME}:1.0.0", registry.store.root, "--tag", "stable")
    assert done.status == 8
    many = reg("--registry", free, "push", "acme/*", "--remote", registry.store.root, "--tag", "stable")
    assert many.status == 8


@pytest.mark.parametrize("verb", ["resolve", "pull", "coverage", "lock"])
def test_a_bypassed_gate_is_8(verb: str, reg: Reg, registry: Registry, tmp_path: Path) -> None:
    attack(registry, "move 1.2.0")
    words = {
        "resolve": ("resolve", STABLE),
        "pull": ("--registry", tmp_path / "reader", "pull", STABLE, registry.store.root),
        "coverage": ("coverage", STABLE, "--devices", "ort-android-1.23"),
        "lock": ("lock", STABLE),
    }
    done = reg(*words[verb])
    assert (done.status, done.out) == (8, "")
    assert "without a promotion" in done.err


def test_a_stale_place_is_told_of_once(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(registry.store.root, tmp_path / "copy")
    registry.yank(f"{NAME}:1.0.0")
    session = Session()
    session.reader().read_index(NAME)
    for _ in range(2):
        session.reader(str(tmp_path / "copy")).read_index(NAME)
    assert capsys.readouterr().err.count("stale: ") == 1


@pytest.mark.parametrize(
    "words",
    [("ls", NAME), ("resolve", f"{NAME}:9.9.9"), ("log", NAME), ("show", f"{NAME}:9.9.9")],
    ids=" ".join,
)
def test_with_json_stderr_is_lines_of_json(
    words: tuple[str, ...], reg: Reg, registry: Registry, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(registry.store.root, copy)
    registry.yank(f"{NAME}:1.0.0")
    Session().reader().read_index(NAME)
    done = reg(*words, "--remote", copy, "--json")
    told = [json.loads(line) for line in done.err.splitlines()]
    kinds = ["warning", "error"] if "9.9.9" in words[1] else ["warning"]
    assert [next(iter(line)) for line in told] == kinds
    assert told[0]["warning"].startswith(f"stale: {copy} lacks the last 1 event")
    assert reg("--quiet", *words, "--remote", copy, "--json").err.count("warning") == 0


def test_verify_names_a_bypassed_gate(reg: Reg, registry: Registry) -> None:
    assert reg("verify").status == 0
    attack(registry, "move 1.2.0")
    done = reg("verify", "--json")
    assert (done.status, done.json["damages"], done.json["ok"]) == (8, [], True)
    assert [item["name"] for item in done.json["unpromoted"]] == [NAME]
    shown = reg("verify")
    assert "--repair" not in shown.err and "reg promote" in shown.err


def test_attest_and_what_is_said_of_it(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    reg("promote", f"{NAME}:1.0.0", "stable")
    (tmp_path / "field.json").write_bytes(refusal(registry, "1.0.0"))
    done = reg("attest", f"{NAME}:1.0.0", "--report", "field.json", "--json").json
    assert (done["path"], done["stated"], done["attested"]) == ("model_int8.onnx", "certified", "refused")
    assert "refused by a later evaluation: model_int8.onnx" in reg("show", f"{NAME}:1.0.0").out
    assert "refused by a later evaluation" in reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0").out
    for form in (["--markdown"], ["--html", "-"]):
        said = reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", *form).out.replace("\\", "")
        assert f"{NAME}:1.0.0: refused by a later evaluation: model_int8.onnx" in said.replace("<bdi>", "")
    assert reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", "--json").json["attested"] == {
        "old": {"model_int8.onnx": "refused"},
        "new": {},
    }
    listed = {each["version"]: each for each in reg("ls", NAME, "--json").json["versions"]}
    assert listed["1.0.0"]["state"] == "refused" and done["artifact"] in listed["1.0.0"]["attested"]
    chosen = reg("resolve", f"{NAME}:1.0.0", "--format", "onnx-int8", "--json").json["artifact"]
    assert (chosen["state"], chosen["stated"]) == ("refused", "certified")
    stopped = reg("resolve", STABLE)
    assert stopped.status == 8 and "a later evaluation says refused" in stopped.err
    assert "a later evaluation says refused" in reg("promote", f"{NAME}:1.0.0", "stable").out


def test_attest_wants_a_report_about_these_bytes(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "field.json").write_bytes(refusal(registry, "1.0.0"))
    assert reg("attest", f"{NAME}:1.1.0", "--report", "field.json").status == 2
    (tmp_path / "other.json").write_text("{}")
    assert reg("attest", f"{NAME}:1.0.0", "--report", "other.json").status == 2


def test_a_signed_evaluation(
    reg: Reg, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "secret")
    assert reg("key", "new", "lab").status == 0
    (tmp_path / "field.json").write_bytes(refusal(registry, "1.0.0"))
    assert reg("attest", f"{NAME}:1.0.0", "--report", "field.json", "--key", "lab").status == 0
    assert reg("promote", f"{NAME}:1.0.0", "stable").status == 8
    assert reg("verify").status == 0


def test_an_archive_carries_policy_and_evidence(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    reg("promote", f"{NAME}:1.0.0", "stable")
    made = reg("archive", "create", "site.onnxreg", f"{NAME}:1.0.0")
    assert made.status == 0
    assert reg("archive", "verify", "site.onnxreg").status == 0
    assert reg("resolve", STABLE, "--remote", "./site.onnxreg").status == 0
    assert reg("--registry", tmp_path / "site", "pull", STABLE, "./site.onnxreg").status == 0


def test_an_archive_is_held_against_its_policy_by_the_readers_keys(
    reg: Reg, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that was promoted with one key in the trust file is barred by a file that knows another."""
    release, other = generate("ed25519"), generate("ed25519")
    for name, key in (("mine", release), ("other", other)):
        (tmp_path / f"{name}.toml").write_text(f'[keys.release]\nkey = "{key.public}"\n')
    (tmp_path / "policy.toml").write_text('[[rule]]\nchannel = "stable"\nsigned_by = ["release"]\n')
    monkeypatch.setenv("REG_TRUST", str(tmp_path / "mine.toml"))
    owner.sign(registry, f"{NAME}:1.0.0", release)
    reg("policy", "set", "policy.toml", "--yes")
    assert reg("promote", f"{NAME}:1.0.0", "stable").status == 0
    reg("archive", "create", "site.onnxreg", f"{NAME}:1.0.0")
    verify = ("archive", "verify", "site.onnxreg", "--json", "--trust")
    assert reg(*verify, "mine.toml").json["damages"] == []
    refused = reg(*verify, "other.toml")
    assert (refused.status, [each["kind"] for each in refused.json["damages"]]) == (4, ["gate"])
    demand = '[[require]]\nmodels = [".policy"]\nlines = true\n'
    (tmp_path / "lines.toml").write_text((tmp_path / "mine.toml").read_text() + demand)
    unsigned = reg(*verify, "lines.toml")
    assert (unsigned.status, [each["kind"] for each in unsigned.json["damages"]]) == (4, ["policy"])


def test_a_policy_says_first_what_it_stops(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    """One channel that does not meet it, one that was never promoted; one that meets it is not listed."""
    reg("promote", f"{NAME}:1.0.0", "stable")
    reg("tag", f"{NAME}:1.1.0", "beta")
    before = owner.policies(registry)
    rule = '[[rule]]\nchannel = "{}"\nlicenses = ["{}"]\n'
    (tmp_path / "new.toml").write_text(rule.format("stable", "MIT") + rule.format("beta", "Apache-2.0"))
    dry = reg("policy", "set", "new.toml", "--json")
    assert dry.status == 5
    assert (dry.json["rules"], dry.json["seq"]) == (2, None)
    found = {each["channel"]: each for each in dry.json["stopped"]}
    assert {channel: each["version"] for channel, each in found.items()} == {
        "stable": "1.0.0",
        "beta": "1.1.0",
    }
    assert "licenses" in found["stable"]["why"] and "without a promotion" in found["beta"]["why"]
    assert owner.policies(registry) == before
    refused = reg("policy", "set", "new.toml")
    assert (
        refused.status == 5
        and refused.err.count("stops: ") == 2
        and "it would stop 2 channels" in refused.err
    )
    assert owner.policies(registry) == before
    done = reg("policy", "set", "new.toml", "--yes")
    assert done.err.count("stops: ") == 2 and "policy 2 is in force" in done.out
    for channel, each in found.items():
        refused = reg("resolve", f"{NAME}:{channel}")
        assert refused.status == 8 and each["why"] in refused.err
    (tmp_path / "mild.toml").write_text(rule.format("stable", "Apache-2.0"))
    done = reg("policy", "set", "mild.toml", "--json", "--yes")
    assert done.json == {"rules": 1, "seq": 3, "stopped": []}
    assert reg("resolve", STABLE).status == 0


def test_the_present_version_of_a_channel_can_be_promoted(
    reg: Reg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the step to it was a breaking one: devices have it already."""
    registry = Registry(tmp_path / "own")
    monkeypatch.setenv("REG_HOME", str(registry.store.root))
    registry.add(draft(tmp_path / "a", "a"), "1.0.0")
    registry.add(draft(tmp_path / "b", "b", labels=["DATE"]), "1.1.0")
    for version in ("1.0.0", "1.1.0"):
        registry.tag(f"{NAME}:{version}", "stable")
    (tmp_path / "breaking.toml").write_text('[[rule]]\nchannel = "stable"\nbreaking = false\n')
    assert reg("policy", "set", "breaking.toml", "--yes").status == 0
    assert reg("promote", f"{NAME}:1.0.0", "stable", "--dry-run").status == 8, "that step breaks apps"
    assert (reg("resolve", STABLE).status, reg("verify").status) == (8, 8)
    assert reg("promote", f"{NAME}:1.1.0", "stable").status == 0
    assert (reg("resolve", STABLE).status, reg("verify").status) == (0, 0)
    assert reg("promote", f"{NAME}:1.0.0", "stable").status == 8


def test_verify_misses_a_policy_that_the_reader_demands(
    reg: Reg, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_TRUST", str(tmp_path / "trust.toml"))
    monkeypatch.setenv("REG_STATE", str(tmp_path / "of a newcomer"))
    (tmp_path / "trust.toml").write_text('[[require]]\nmodels = [".policy"]\nlines = true\n')
    (registry.store.root / "policy.jsonl").unlink()
    for words in ((), (NAME,), ("--remote", registry.store.root)):
        done = reg("verify", "--json", *words)
        assert (done.status, [each["kind"] for each in done.json["damages"]]) == (4, ["policy"])


def test_a_policy_shows_what_changes_and_is_set_with_yes(
    reg: Reg, registry: Registry, tmp_path: Path
) -> None:
    before = owner.policies(registry)
    (tmp_path / "lax.toml").write_bytes(POLICY.replace(b"0.005", b"0.01").replace(b"breaking = false\n", b""))
    refused = reg("policy", "set", "lax.toml")
    assert refused.status == 5 and "--yes" in refused.err
    assert [line for line in refused.out.splitlines() if line[0] in "+-"] == [
        "-max_recall_loss = 0.005",
        "+max_recall_loss = 0.01",
        "-breaking = false",
    ]
    asked = reg("policy", "set", "lax.toml", "--json")
    assert (asked.status, asked.json) == (5, {"rules": 1, "seq": None, "stopped": []})
    assert owner.policies(registry) == before
    assert reg("policy", "set", "lax.toml", "--yes").out.endswith("policy 2 is in force: 1 rule\n")
    assert reg("policy", "set", "lax.toml").status == 0, "it is in force"


def test_a_policy_that_names_keys_is_followed_by_one_that_they_sign(
    reg: Reg, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any of them, for the writer and for the reader who demands signed policies."""
    keys = {name: generate("ed25519") for name in ("release", "qa", "lab")}
    trust = "".join(f'[keys.{name}]\nkey = "{key.public}"\n' for name, key in keys.items())
    demand = '[[require]]\nmodels = [".policy"]\nlines = true\nsince = 2\n'

    def enter(signer: str, trust: str, user: str) -> None:
        (tmp_path / "trust.toml").write_text(trust)
        monkeypatch.setenv("REG_TRUST", str(tmp_path / "trust.toml"))
        monkeypatch.setenv("REG_STATE", str(tmp_path / user))
        monkeypatch.setenv("REG_SIGNING_KEY", plain_pem(keys[signer]))

    enter("lab", trust, "writer")
    (tmp_path / "signed.toml").write_text('[[rule]]\nchannel = "beta"\nsigned_by = ["release", "qa"]\n')
    (tmp_path / "none.toml").write_text("")
    assert reg("policy", "set", "signed.toml", "--yes").status == 0, "policy 1 names no key"
    refused = reg("policy", "set", "none.toml", "--yes")
    assert refused.status == 8 and "policy 2 names (qa, release)" in refused.err
    before = (registry.store.root / "policy.jsonl").read_bytes()
    enter("qa", trust, "writer")
    assert reg("policy", "set", "none.toml", "--yes").status == 0
    enter("qa", trust + demand, "reader")
    assert reg("policy", "show").status == 0
    (registry.store.root / "policy.jsonl").write_bytes(before)
    enter("lab", trust.replace("keys.qa", "keys.x").replace("keys.lab", "keys.qa"), "another writer")
    assert reg("policy", "set", "none.toml", "--yes").status == 0, "this trust file calls the key qa"
    enter("lab", trust + demand, "another reader")
    refused = reg("policy", "show")
    assert refused.status == 4 and "policy 3 is not signed by a key that policy 2 names" in refused.err


def test_a_model_that_cannot_be_read_bars_no_policy(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    (registry.store.root / "index" / f"{NAME}.jsonl").write_text("damaged\n")
    (tmp_path / "new.toml").write_text('[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n')
    done = reg("policy", "set", "new.toml", "--json", "--yes")
    assert (done.status, done.json["seq"]) == (0, 2)
    assert [each["channel"] for each in done.json["stopped"]] == [None]


def test_signed_evaluations_are_listed_with_who_signed_them(
    reg: Reg, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, stranger = generate("ed25519"), generate("ed25519")
    (tmp_path / "trust.toml").write_text(f'[keys.lab]\nkey = "{lab.public}"\n')
    monkeypatch.setenv("REG_TRUST", str(tmp_path / "trust.toml"))
    owner.sign(registry, f"{NAME}:1.0.0", lab)
    for key in (lab, stranger):
        owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"), key)
    owner.attest(registry, f"{NAME}:1.1.0", refusal(registry, "1.1.0"))
    listed = {each["version"]: each for each in reg("verify", "--signatures", "--json").json["versions"]}
    found = listed["1.0.0"]["evaluations"]
    artifact = registry.get(f"{NAME}:1.0.0").manifest.artifacts[1].digest
    assert [(each["status"], each["key"], each["state"]) for each in found] == [
        ("trusted", "lab", "refused"),
        ("unknown", None, "refused"),
    ]
    assert {each["artifact"] for each in found} == {str(artifact)}
    assert [each["status"] for each in listed["1.0.0"]["signatures"]] == ["trusted"]
    assert listed["1.1.0"]["evaluations"] == [], "an unsigned one is none"
    shown = reg("verify", "--signatures", f"{NAME}:1.0.0").out
    assert f"{artifact.short} is refused" in shown


def test_a_wrong_signature_on_an_evaluation_is_damage(
    reg: Reg, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.schema.core.ref import Ref
    from onnxreg.schema.signing.dsse import (
        EVALUATED,
        MEDIA_TYPE,
        PAYLOAD_TYPE,
        Envelope,
        Signature,
        Statement,
        pae,
    )

    lab, thief = generate("ed25519"), generate("ed25519")
    (tmp_path / "trust.toml").write_text(f'[keys.lab]\nkey = "{lab.public}"\n')
    artifact = registry.get(f"{NAME}:1.0.0").manifest.artifacts[1].digest
    payload = Statement(EVALUATED, artifact, json.loads(refusal(registry, "1.0.0"))).encode()
    signature = Signature(lab.public.id, thief.sign(pae(PAYLOAD_TYPE, payload)).sig)
    forged = Envelope(PAYLOAD_TYPE, payload, (signature,)).encode()
    about = (artifact, "refused")
    Decisions(registry.store).attest(Ref(NAME, "1.0.0"), forged, MEDIA_TYPE, None, about)
    assert reg("verify").status == 0, "the key is not known yet"
    reg("archive", "create", "site.onnxreg", "--all")
    monkeypatch.setenv("REG_TRUST", str(tmp_path / "trust.toml"))
    assert reg("verify", "--signatures").status == 4
    assert [each["kind"] for each in reg("verify", "--json").json["damages"]] == ["signature"]
    archived = reg("archive", "verify", "site.onnxreg", "--trust", "trust.toml", "--json")
    assert [each["kind"] for each in archived.json["damages"]] == ["signature"]


def test_absent_and_foreign_files_are_refused(reg: Reg, registry: Registry) -> None:
    missing = reg("policy", "set", "nonexist.toml")
    assert missing.status == 3 and "there is no file nonexist.toml" in missing.err
    Path("p.toml").write_text("[[rule]]\n")
    refused = reg("attest", f"{NAME}:1.0.0", "--report", "p.toml")
    assert refused.status == 2 and "p.toml" in refused.err and "give a certificate" in refused.err


def test_a_policy_line_without_a_signature_is_warned_of(reg: Reg, registry: Registry) -> None:
    Path("p.toml").write_text('[[rule]]\nchannel = "beta"\ncertified = ["onnx-int8"]\nlicenses = ["MIT"]\n')
    assert "not signed" in reg("policy", "set", "p.toml", "--yes").err


def test_a_key_that_the_trust_file_lacks_is_said(reg: Reg, registry: Registry) -> None:
    Path("p.toml").write_text('[[rule]]\nchannel = "stable"\nsigned_by = ["release"]\n')
    assert reg("policy", "set", "p.toml", "--yes").status == 0
    refused = reg("promote", f"{NAME}:1.0.0", "stable")
    assert refused.status == 8 and "(your trust file has no key release)" in refused.out
    assert "`reg trust add` adds a key to your trust file" in refused.err


def test_log_says_what_was_attested_and_promoted(reg: Reg, registry: Registry) -> None:
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    artifact = registry.get(f"{NAME}:1.0.0").manifest.artifacts[1].path
    shown = reg("log", NAME).out
    policy = owner.policies(registry).head
    assert f"1.0.0 {artifact} refused" in shown
    assert "promote" in shown and f"policy {policy.short}" in shown and "evidence" in shown
