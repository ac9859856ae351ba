"""`policy`, `promote`, `attest`, and what other verbs say of governed channels."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.gated import LAX, NAME, POLICY, draft, refusal
from support.trust.attack_operations import attack
from support.trust.world import plain_pem

from onnxreg.cli.options import Session
from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.signing import generate
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.signing import dsse

STABLE = f"{NAME}:stable"
V1, V2, REFUSED = (f"{NAME}:{version}" for version in ("1.0.0", "1.1.0", "1.2.0"))
LAB_RULE = '[[rule]]\nchannel = "{}"\nlicenses = ["{}"]\n'
Trust = Callable[[str], None]


@pytest.fixture
def registry(gated: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(gated.store.root))
    return gated


@pytest.fixture
def trust(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trust:
    """Write the trust file of the user."""
    monkeypatch.setenv("REG_TRUST", str(tmp_path / "trust.toml"))
    (tmp_path / "trust.toml").touch()
    return (tmp_path / "trust.toml").write_text  # type: ignore[return-value]


def test_a_policy_is_set_and_shown(reg, tmp_path):
    Registry(tmp_path / "new")
    new = ("--registry", "new", "policy")
    assert reg(*new, "show").ended(0, "no policy") and reg(*new, "show", "--json").json["rules"] == []
    Path("policy.toml").write_bytes(POLICY)
    done = reg(*new, "set", "policy.toml", "--yes", "--reason", "review")
    assert done.out.endswith("policy 1 is in force: 1 rule\n") and "not signed" in done.err
    shown = reg(*new, "show").out
    Path("again.toml").write_text(shown[shown.index("[[rule]]") :])
    for same in ("policy.toml", "again.toml"):
        assert reg(*new, "set", same).out == "nothing to do: this policy is in force\n"
    first = reg(*new, "show", "--json").json
    assert (first["seq"], first["reason"], first["rules"][0]["channel"]) == (1, "review", "stable")
    Path("laxer.toml").write_text('[[rule]]\nchannel = "beta"\ncertified = ["onnx-int8"]\n')
    assert reg(*new, "set", "laxer.toml", "--yes").status == 0
    every = reg(*new, "show", "--all", "--json").json["policies"]
    assert every[0] == first and [each["rules"][0]["channel"] for each in every] == ["stable", "beta"]
    assert reg(*new, "show", "--all").out.count("[[rule]]") == 2
    log = reg(*new[:2], "log", ".policy", "--json").json
    assert [line["digest"] for line in log["lines"]] == [first["line"], log["head"]]
    assert reg(*new[:2], "log", ".policy").ended(0, "1 rule")
    Registry(tmp_path / "free")
    assert reg("--registry", "free", "log", ".policy").status == 3


def test_a_remote_without_a_policy(reg, registry, tmp_path):
    """What is governed here is free there."""
    there = tmp_path / "there"
    Path("policy.toml").write_bytes(POLICY)
    assert reg("policy", "set", "policy.toml", "--yes", "--remote", there).ended(3, there)
    reg("push", V1, there)
    assert reg("policy", "show", "--remote", there).ended(0, f"there is no policy in {there}")
    done = reg("promote", V1, "stable", "--remote", there)
    assert done.ended(2, f"no policy governs {STABLE} in {there}", f"`reg tag {V1} stable` moves it")


def test_promote_prints_a_table_and_moves(reg, registry):
    dry = reg("promote", V1, "stable", "--dry-run")
    assert dry.out.startswith("DEMAND") and dry.out.endswith(f"{V1} may become stable\n")
    assert reg("promote", V1, "stable").out.endswith(f"{STABLE} is 1.0.0\n")
    assert reg("promote", V2, "stable").out.endswith(f"{STABLE} is 1.1.0, before 1.0.0\n")
    assert reg("promote", V2, "stable").out.endswith(f"nothing to do: {STABLE} is 1.1.0 under this policy\n")
    done = reg("promote", REFUSED, "stable", "--json")
    assert (done.status, done.error["family"], done.json["moved"]) == (8, "gate", False)
    assert [f["requirement"] for f in done.json["findings"] if f["verdict"] == "fail"] == ["certified"]
    assert reg("promote", V1, "beta").status == 2
    assert reg("tag", V1, "stable").ended(8, "reg promote")
    assert "may not become stable: it does not meet certified\n" in reg("promote", REFUSED, "stable").err
    assert f"until it moves: reg promote {NAME}:VERSION stable\n" in reg("yank", V2).err


@pytest.mark.parametrize("verb", ["resolve", "pull", "coverage", "lock", "verify"])
def test_a_bypassed_gate_is_8(verb, reg, registry):
    assert reg("verify").status == 0
    attack(registry, "move 1.2.0")
    if verb == "verify":
        done = reg("verify", "--json")
        assert (done.status, done.json["damages"], done.json["ok"]) == (8, [], True)
        assert [item["name"] for item in done.json["unpromoted"]] == [NAME]
        shown = reg("verify")
        assert "--repair" not in shown.err and "reg promote" in shown.err
        return
    words = {"pull": ("--registry", "reader", "pull", STABLE, registry.store.root)}
    words |= {"coverage": ("coverage", STABLE, "--devices", "ort-android-1.23")}
    done = reg(*words.get(verb, (verb, STABLE)))
    assert done.ended(8, "without a promotion") and done.out == ""


def test_a_device_is_no_trust_file_and_the_hint_names_what_demands_nothing(reg, registry, trust, monkeypatch):
    assert reg("show", V1).status == 0, "an empty file demands nothing"
    monkeypatch.setenv("REG_TRUST", os.devnull)
    assert reg("show", V1).ended(2, "which is not a file", "an empty one, which demands nothing")


@pytest.mark.parametrize("words", [("ls", NAME), ("resolve", f"{NAME}:9.9.9"), ("show", f"{NAME}:9.9.9")])
def test_a_stale_place_is_told_of_once_and_with_json_in_json(words, reg, registry, tmp_path, capfdbinary):
    copy = tmp_path / "copy"
    shutil.copytree(registry.store.root, copy)
    registry.yank(V1)
    session = Session()
    session.reader().read_index(NAME)
    if words[0] == "ls":
        for _ in range(2):
            session.reader(str(copy)).read_index(NAME)
        assert capfdbinary.readouterr().err.count(b"stale: ") == 1
    done = reg(*words, "--remote", copy, "--json")
    told = [json.loads(line) for line in done.err.splitlines()]
    assert [next(iter(line)) for line in told] == ["warning", "error"][: 2 if "9.9.9" in words[1] else 1]
    assert told[0]["warning"].startswith(f"stale: {copy} lacks the last event of {NAME}, seen")
    assert "warning" not in reg("--quiet", *words, "--remote", copy, "--json").err


def test_attest_and_what_is_said_of_it(reg, registry):
    reg("promote", V1, "stable")
    report = json.loads(refusal(registry, "1.0.0")) | {"reasons": ["onnxreg-benchmark"]}
    Path("field.json").write_text(json.dumps(report))
    assert reg("attest", V2, "--report", "field.json").status == 2
    done = reg("attest", V1, "--report", "field.json", "--json").json
    assert (done["path"], done["stated"], done["attested"]) == ("model_int8.onnx", "certified", "refused")
    said = "refused by a later evaluation: model_int8.onnx"
    assert reg("show", V1).ended(0, said) and reg("diff", V1, V2).ended(0, "refused by a later evaluation")
    assert f"{V1}: {said}" in reg("diff", V1, V2, "--markdown").out.replace("\\", "")
    reg("diff", V1, V2, "--html", "page.html")
    assert f"{V1}: {said}" in Path("page.html").read_text().replace("<bdi>", "")
    attested = reg("diff", V1, V2, "--json").json["attested"]
    assert attested == {"old": {"model_int8.onnx": "refused"}, "new": {}}
    assert reg("resolve", STABLE).ended(8, "a later evaluation says refused")
    assert "a later evaluation says refused" in reg("promote", V1, "stable").out
    artifact, policy = registry.get(V1).manifest.artifacts[1].path, owner.policies(registry).head
    assert reg("log", NAME).ended(0, f"1.0.0 {artifact} refused", "promote", f"policy {policy.short}")


def test_an_archive_carries_policy_and_evidence_and_is_judged_by_the_readers_keys(reg, registry, trust):
    """A channel that was promoted with one key in the trust file is barred by a file that knows another."""
    release, other = generate("ed25519"), generate("ed25519")
    mine = f'[keys.release]\nkey = "{release.public}"\n'
    demand = '[[require]]\nmodels = [".policy"]\nlines = true\n'
    Path("other.toml").write_text(f'[keys.release]\nkey = "{other.public}"\n')
    Path("lines.toml").write_text(mine + demand)
    Path("policy.toml").write_text('[[rule]]\nchannel = "stable"\nsigned_by = ["release"]\n')
    reg("policy", "set", "policy.toml", "--yes")
    refused = reg("promote", V1, "stable")
    assert refused.ended(8, "(your trust file has no key release)", "`reg trust add` adds a key")
    trust(mine)
    owner.sign(registry, V1, release)
    assert reg("promote", V1, "stable").status == 0
    assert reg("archive", "create", "site.onnxreg", V1).status == 0
    assert reg("resolve", STABLE, "--remote", "./site.onnxreg").status == 0
    assert reg("--registry", "site", "pull", STABLE, "./site.onnxreg").status == 0
    verify = ("archive", "verify", "site.onnxreg", "--json", "--trust")
    assert reg(*verify, "trust.toml").json["damages"] == []
    for file, kind in (("other.toml", "gate"), ("lines.toml", "policy")):
        done = reg(*verify, file)
        assert (done.status, [each["kind"] for each in done.json["damages"]]) == (4, [kind])


def test_a_policy_says_first_what_it_changes_and_stops(reg, registry):
    """One channel that does not meet it, one that was never promoted; one that meets it is not listed."""
    reg("promote", V1, "stable")
    reg("tag", V2, "beta")
    before = owner.policies(registry)
    Path("lax.toml").write_bytes(POLICY.replace(b"0.005", b"0.01"))
    shown = [line for line in reg("policy", "set", "lax.toml").out.splitlines() if line[0] in "+-"]
    assert shown == ["-max_recall_loss = 0.005", "+max_recall_loss = 0.01"]
    Path("new.toml").write_text(LAB_RULE.format("stable", "MIT") + LAB_RULE.format("beta", "Apache-2.0"))
    dry, refused = reg("policy", "set", "new.toml", "--json"), reg("policy", "set", "new.toml")
    assert (dry.status, dry.json["seq"]) == (5, None)
    found = {each["channel"]: each for each in dry.json["stopped"]}
    assert {channel: each["version"] for channel, each in found.items()} == {
        "stable": "1.0.0",
        "beta": "1.1.0",
    }
    assert "licenses" in found["stable"]["why"] and "without a promotion" in found["beta"]["why"]
    assert refused.ended(5, "it would stop 2 channels", "--yes") and refused.err.count("stops: ") == 2
    assert owner.policies(registry) == before
    done = reg("policy", "set", "new.toml", "--yes")
    assert done.ended(0, "policy 2 is in force") and done.err.count("stops: ") == 2
    for channel, each in found.items():
        assert reg("resolve", f"{NAME}:{channel}").ended(8, each["why"])
    Path("mild.toml").write_text(LAB_RULE.format("stable", "Apache-2.0"))
    done = reg("policy", "set", "mild.toml", "--json", "--yes")
    assert done.json == {"rules": 1, "seq": 3, "stopped": []}
    assert reg("resolve", STABLE).status == 0
    (registry.store.root / "index" / f"{NAME}.jsonl").write_text("damaged\n")
    done = reg("policy", "set", "new.toml", "--json", "--yes")
    assert (done.status, done.json["seq"]) == (0, 4), "a model that cannot be read bars no policy"
    assert [each["channel"] for each in done.json["stopped"]] == [None]


def test_a_policy_says_first_which_rollout_it_stops(reg, registry, tmp_path):
    registry.add(draft(tmp_path / "m", "m", license="MIT"), "1.5.0")
    Path("both.toml").write_bytes(LAX.replace(b"2.0", b'2.0", "MIT'))
    Path("lax.toml").write_bytes(LAX)
    reg("policy", "set", "both.toml", "--yes")
    reg("promote", V1, "stable")
    assert reg("rollout", "start", f"{NAME}:1.5.0", "--channel", "stable", "--percent", 10).status == 0
    dry = reg("policy", "set", "lax.toml", "--json")
    assert [(each["channel"], each["version"]) for each in dry.json["stopped"]] == [("stable", "1.5.0")]
    assert reg("resolve", STABLE).status == 0


def test_the_present_version_of_a_channel_can_be_promoted(reg, tmp_path, monkeypatch):
    """Also if the step to it was a breaking one: devices have it already."""
    registry = Registry(tmp_path / "own")
    monkeypatch.setenv("REG_HOME", str(registry.store.root))
    registry.add(draft(tmp_path / "a", "a"), "1.0.0")
    registry.add(draft(tmp_path / "b", "b", labels=["DATE"]), "1.1.0")
    for ref in (V1, V2):
        registry.tag(ref, "stable")
    Path("breaking.toml").write_text('[[rule]]\nchannel = "stable"\nbreaking = false\n')
    assert reg("policy", "set", "breaking.toml", "--yes").status == 0
    assert reg("promote", V1, "stable", "--dry-run").status == 8, "that step breaks apps"
    assert (reg("resolve", STABLE).status, reg("verify").status) == (8, 8)
    assert reg("promote", V2, "stable").status == 0
    assert (reg("resolve", STABLE).status, reg("verify").status) == (0, 0)
    assert reg("promote", V1, "stable").status == 8


def test_verify_misses_a_policy_that_the_reader_demands(reg, registry, trust, monkeypatch):
    monkeypatch.setenv("REG_STATE", "of a newcomer")
    trust('[[require]]\nmodels = [".policy"]\nlines = true\n')
    (registry.store.root / "policy.jsonl").unlink()
    for words in ((), (NAME,), ("--remote", registry.store.root)):
        done = reg("verify", "--json", *words)
        assert (done.status, [each["kind"] for each in done.json["damages"]]) == (4, ["policy"])


def test_a_policy_that_names_keys_is_followed_by_one_that_they_sign(reg, registry, trust, monkeypatch):
    """By any of them, for the writer and for the reader who demands signed policies."""
    keys = {name: generate("ed25519") for name in ("release", "qa", "lab")}
    known = "".join(f'[keys.{name}]\nkey = "{key.public}"\n' for name, key in keys.items())
    demand = '[[require]]\nmodels = [".policy"]\nlines = true\nsince = 2\n'

    def enter(signer: str, text: str, user: str) -> None:
        trust(text)
        monkeypatch.setenv("REG_STATE", user)
        monkeypatch.setenv("REG_SIGNING_KEY", plain_pem(keys[signer]))

    enter("lab", known, "writer")
    Path("signed.toml").write_text('[[rule]]\nchannel = "beta"\nsigned_by = ["release", "qa"]\n')
    Path("none.toml").write_text("")
    assert reg("policy", "set", "signed.toml", "--yes").status == 0, "policy 1 names no key"
    assert reg("policy", "set", "none.toml", "--yes").ended(8, "policy 2 names (qa, release)")
    before = (registry.store.root / "policy.jsonl").read_bytes()
    enter("qa", known, "writer")
    assert reg("policy", "set", "none.toml", "--yes").status == 0
    enter("qa", known + demand, "reader")
    assert reg("policy", "show").status == 0
    (registry.store.root / "policy.jsonl").write_bytes(before)
    enter("lab", known.replace("keys.qa", "keys.x").replace("keys.lab", "keys.qa"), "another writer")
    assert reg("policy", "set", "none.toml", "--yes").status == 0, "this trust file calls the key qa"
    enter("lab", known + demand, "another reader")
    assert reg("policy", "show").ended(4, "policy 3 is not signed by a key that policy 2 names")


def test_signed_evaluations_are_listed_with_who_signed_them(reg, registry, trust):
    lab, stranger = generate("ed25519"), generate("ed25519")
    trust(f'[keys.lab]\nkey = "{lab.public}"\n')
    owner.sign(registry, V1, lab)
    for key in (lab, stranger):
        owner.attest(registry, V1, refusal(registry, "1.0.0"), key)
    owner.attest(registry, V2, refusal(registry, "1.1.0"))
    listed = {each["version"]: each for each in reg("verify", "--signatures", "--json").json["versions"]}
    found = listed["1.0.0"]["evaluations"]
    artifact = registry.get(V1).manifest.artifacts[1].digest
    rows = [("trusted", "lab", str(artifact), "refused"), ("unknown", None, str(artifact), "refused")]
    assert [tuple(each[key] for key in ("status", "key", "artifact", "state")) for each in found] == rows
    assert [each["status"] for each in listed["1.0.0"]["signatures"]] == ["trusted"]
    assert listed["1.1.0"]["evaluations"] == [], "an unsigned one is none"
    assert reg("verify", "--signatures", V1).ended(0, f"{artifact.short} is refused")


def test_a_wrong_signature_on_an_evaluation_is_damage(reg, registry, trust):
    lab, thief = generate("ed25519"), generate("ed25519")
    artifact = registry.get(V1).manifest.artifacts[1].digest
    payload = dsse.Statement.of(dsse.EVALUATED, artifact, json.loads(refusal(registry, "1.0.0"))).encode()
    signature = dsse.Signature(thief.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload)).sig, lab.public.id)
    forged = dsse.Envelope(dsse.PAYLOAD_TYPE, payload, (signature,)).encode()
    Decisions(registry.store).attest(Ref(NAME, "1.0.0"), forged, dsse.MEDIA_TYPE, None, (artifact, "refused"))
    assert reg("verify").status == 0, "the key is not known yet"
    reg("archive", "create", "site.onnxreg", "--all")
    trust(f'[keys.lab]\nkey = "{lab.public}"\n')
    assert reg("verify", "--signatures").status == 4
    for words in (("verify",), ("archive", "verify", "site.onnxreg", "--trust", "trust.toml")):
        assert [each["kind"] for each in reg(*words, "--json").json["damages"]] == ["signature"]


def test_a_key_signs_an_evaluation(reg, registry, monkeypatch):
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "secret")
    assert reg("key", "new", "lab").status == 0
    Path("field.json").write_bytes(refusal(registry, "1.0.0"))
    assert reg("attest", V1, "--report", "field.json", "--key", "lab").status == 0
    assert (reg("promote", V1, "stable").status, reg("verify").status) == (8, 0)


# `reg dossier`


@pytest.fixture
def promoted(registry: Registry) -> Registry:
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    return registry


def test_a_dossier_is_written_and_written_again(reg, promoted, tmp_path):
    done = reg("dossier", STABLE, "--output", "dossier")
    assert done.out.startswith("written to dossier: ") and "0 from the owner" in done.out
    assert json.loads(Path("dossier/dossier.json").read_bytes())["subject"]["version"] == "1.0.0"
    value = reg("dossier", STABLE, "--output", "dossier", "--json").json
    assert value.keys() == {"ref", "manifest", "profile", "output", "files", "fields"}
    assert set(value["files"]) == {path.name for path in Path("dossier").iterdir()}
    assert reg("dossier", NAME, "--profile", "eu-annex-iv", "--output", "near").status == 0
    there = shutil.copytree(promoted.store.root, tmp_path / "there")
    words = ("dossier", NAME, "--profile", "eu-annex-iv", "--remote", there, "--output", "far")
    assert reg("--registry", "none", *words).status == 0
    assert Path("far/dossier.json").read_bytes() == Path("near/dossier.json").read_bytes()


def test_nothing_else_is_overwritten(reg, promoted):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert reg("dossier", STABLE, "--output", "mine").ended(
        2, "mine holds notes.txt, which no earlier dossier wrote"
    )
    Path("mine/notes.txt").rename("mine/owner.yaml")
    assert reg("dossier", STABLE, "--output", "mine").status == 2


@pytest.mark.parametrize(("module", "purpose"), [("jinja2", "the page of a dossier"), ("yaml", "plain.yaml")])
def test_a_missing_library_is_named_with_its_extra(reg, promoted, monkeypatch, module, purpose):
    monkeypatch.setitem(sys.modules, module, None)
    assert reg("dossier", NAME, "--output", "dossier").ended(9, purpose, "[dossier]")
    assert not Path("dossier").exists()
