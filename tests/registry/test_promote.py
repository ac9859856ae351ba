"""Policies in force, promotion, later evaluations, how they travel; and what a governed channel costs a reader, who judges what answered."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.registries import memory, owner
from support.registries.gated import LAX, NAME, POLICY, draft, filled, refusal
from support.registries.home import Home
from support.servers.faults import Proxy
from support.trust.attack_operations import attack

from onnxreg.registry.gates import ChannelGate, copy_policies, read_policies, set_policy
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log, find
from onnxreg.registry.resolution import check_version_trust, coverage
from onnxreg.registry.signing import generate
from onnxreg.registry.store.protocol import MissingBlobError, StoredObject, index_path
from onnxreg.registry.system import stamp
from onnxreg.registry.transfer.mirror import mirror
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    GateError,
    InputError,
    IntegrityError,
    NotFoundError,
)
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.gates.rule import PromotionEvidence
from onnxreg.schema.gates.statements import EVALUATION
from onnxreg.schema.log.events import Attest, Drop
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.query.resolve import Query

STABLE = f"{NAME}:stable"


@pytest.fixture
def registry(gated) -> Home:
    return gated


def test_what_meets_the_policy_is_promoted_once_and_what_fails_moves_nothing(registry):
    failed = owner.promote(registry, f"{NAME}:1.2.0", "stable")
    assert not failed.holds and not failed.moved and "certified" in failed.refuse().message
    dry = owner.promote(registry, f"{NAME}:1.0.0", "stable", dry_run=True)
    assert dry.holds and not dry.moved and not registry.state(NAME).channels
    done = owner.promote(registry, f"{NAME}:1.0.0", "stable")
    assert (done.moved, done.holds, done.before) == (True, True, None)
    assert registry.resolve(STABLE).located.version == Version(1, 0, 0)
    registry.check()
    assert not owner.promote(registry, f"{NAME}:1.0.0", "stable").moved
    owner.set_policy(registry, read_policy(LAX, "policy"))
    assert owner.promote(registry, f"{NAME}:1.0.0", "stable").moved
    owner.gc(registry)
    registry.resolve(STABLE)
    registry.check()


def test_a_metric_governs_a_channel(registry, tmp_path):
    """What met the old expression stops when a policy asks for more; a reader elsewhere sees the same."""
    made = draft(tmp_path / "measured", "m")
    model, int8 = made.artifacts
    suite = {"dataset": str(Digest.of(b"suite")), "verdict": "pass", "direction": "higher"}
    figures = {"name": "sts/spearman", "metric": "spearman", "value": 0.83, **suite}
    measured = replace(int8, fields={"checks": [figures]})
    registry.add(replace(made, artifacts=(model, measured)), "2.0.0")
    rule = '[[rule]]\nchannel = "stable"\nwhere = "metric[\'sts/spearman\'] >= {}"\n'
    owner.set_policy(registry, read_policy(rule.format("0.82").encode(), "policy"))
    assert not owner.promote(registry, f"{NAME}:1.0.0", "stable").holds
    assert owner.promote(registry, f"{NAME}:2.0.0", "stable").moved
    other = Home(tmp_path / "other")
    other.pull(STABLE, registry.place)
    owner.set_policy(registry, read_policy(rule.format("0.84").encode(), "policy"))
    with pytest.raises(GateError, match=r"model_int8.onnx does not meet metric\['sts/spearman'\] >= 0.84"):
        registry.resolve(STABLE)


def test_a_yanked_version_is_not_promoted_by_its_digest(registry):
    digest = registry.get(f"{NAME}:1.0.0").digest
    registry.yank(f"{NAME}:1.0.0", "leaks names")
    with pytest.raises(ConflictError, match=r"1\.0\.0 is yanked"):
        owner.promote(registry, f"{NAME}@{digest}", "stable")


def test_a_channel_that_another_user_moves_meanwhile_stays_there(registry, monkeypatch):
    judge, calls = ChannelGate.judge, iter(range(100))

    def judge_and_lose(gate: ChannelGate, *arguments: Any, **more: Any) -> PromotionEvidence:
        if next(calls) == 0:
            owner.promote(Home(registry.store.root), f"{NAME}:1.1.0", "stable")
        return judge(gate, *arguments, **more)

    monkeypatch.setattr(ChannelGate, "judge", judge_and_lose)
    with pytest.raises(ConflictError, match="stable"):
        owner.promote(registry, f"{NAME}:1.0.0", "stable")
    assert registry.state(NAME).channels["stable"].version == Version(1, 1, 0)


@pytest.mark.parametrize("holder", ["stays", "is taken away"])
def test_breaking_changes_are_looked_for_against_the_last_promotion(registry, holder):
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    if holder == "is taken away":
        owner.untag(registry, NAME, "stable")
    findings = owner.promote(registry, f"{NAME}:1.3.0", "stable").findings
    assert [finding.requirement for finding in findings if finding.verdict == "fail"] == ["breaking"]
    assert owner.promote(registry, f"{NAME}:1.1.0", "stable").moved


def test_a_version_that_was_promoted_stays_for_later_ones_to_be_compared_with(registry):
    for version in ("1.0.0", "1.1.0"):
        owner.promote(registry, f"{NAME}:{version}", "stable")
    with pytest.raises(ConflictError, match="promoted"):
        owner.drop(registry, f"{NAME}:1.0.0")


def test_a_base_that_an_earlier_program_dropped_is_read_only_to_compare(registry, tmp_path):
    """By the channel's readers, by the auditor, and by whoever goes offline."""
    owner.set_policy(registry, read_policy(LAX, "policy"))
    base = registry.get(f"{NAME}:1.0.0").digest
    for version in ("1.0.0", "1.1.0"):
        owner.promote(registry, f"{NAME}:{version}", "stable")

    def drop(log: Log) -> list[Digest]:
        log.append(Drop(**stamp(NAME), version=Version(1, 0, 0), manifest=base))
        return []

    with registry.store.push() as push:
        commit(registry.store, push, NAME, drop)
    owner.gc(registry)
    assert not registry.store.has([base]) and registry.resolve(STABLE).located.version == Version(1, 1, 0)
    registry.check()
    assert [state.name for state in Home(tmp_path / "other").fetch_index([NAME], registry.place)] == [NAME]


def test_a_version_that_was_only_tagged_and_dropped_bars_no_promotion(registry):
    registry.tag(f"{NAME}:1.0.0", "beta")
    owner.untag(registry, NAME, "beta")
    owner.drop(registry, f"{NAME}:1.0.0")
    owner.gc(registry)
    owner.set_policy(registry, read_policy(POLICY.replace(b"stable", b"beta"), "policy"))
    assert owner.promote(registry, f"{NAME}:1.1.0", "beta").moved
    registry.check()


def test_tag_and_push_and_pull_do_not_move_a_governed_channel(registry, tmp_path):
    with pytest.raises(GateError, match="governs"):
        registry.tag(f"{NAME}:1.0.0", "stable")
    free = Home(tmp_path / "free")
    free.pull(f"{NAME}:1.0.0", registry.place)
    free.tag(f"{NAME}:1.0.0", "stable")
    with pytest.raises(GateError, match="governs"):
        free.push(f"{NAME}:1.0.0", registry.place, channels=["stable"])
    with pytest.raises(GateError, match="governs"):
        registry.pull(f"{NAME}:1.0.0", free.place, channels=["stable"])
    (registry.store.root / "policy.jsonl").unlink()
    with pytest.raises(IntegrityError):  # this user saw a policy there
        free.push(f"{NAME}:1.0.0", registry.place, channels=["stable"])
    assert not registry.state(NAME).channels


def test_the_version_of_a_channel_must_meet_the_newest_policy(registry):
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    owner.set_policy(registry, read_policy(b'[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]', "policy"))
    with pytest.raises(GateError, match="licenses"):
        registry.resolve(STABLE)
    owner.set_policy(registry, Policy())
    assert registry.resolve(STABLE).located.version == Version(1, 0, 0)


def test_a_refusal_after_the_fact_stops_the_channel_and_wins_in_resolve(registry):
    before = registry.resolve(f"{NAME}:1.1.0").artifact
    owner.promote(registry, f"{NAME}:1.1.0", "stable")
    for _ in range(2):
        artifact, evaluation, state = owner.attest(registry, f"{NAME}:1.1.0", refusal(registry, "1.1.0"))
        assert (artifact.certification.state, evaluation.state, state) == ("certified", "refused", "refused")
    with pytest.raises(GateError, match="a later evaluation says refused"):
        registry.resolve(STABLE)
    assert {damage.kind for damage in owner.verify(registry).damages} == {"gate"}
    after = registry.resolve(f"{NAME}:1.1.0", None).outcome.looked_at[0][0].summary.artifacts[1]
    assert (before.state, after.state, after.stated) == ("certified", "refused", "certified")
    attested = [line.event.artifact for line in registry.log(NAME) if isinstance(line.event, Attest)]
    assert attested.count(after.digest) == 1
    owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    with pytest.raises(ConflictError, match="on record"):
        owner.drop(registry, f"{NAME}:1.0.0")


@pytest.mark.parametrize(
    ("version", "parent", "problem"),
    [("1.1.0", None, "which is not an artifact of"), ("1.0.0", b"another", "made from")],
)
def test_a_report_about_something_else_is_refused(registry, version, parent, problem):
    report = json.loads(refusal(registry, version))
    report |= {"parent": str(Digest.of(parent))} if parent else {}
    with pytest.raises(InputError, match=problem):
        owner.attest(registry, f"{NAME}:1.0.0", json.dumps(report).encode())


def test_refusals_travel_with_a_version_and_policies_do_not(registry, tmp_path):
    owner.attest(registry, f"{NAME}:1.1.0", refusal(registry, "1.1.0"))
    other = Home(tmp_path / "other")
    other.pull(f"{NAME}:1.1.0", registry.place)
    assert other.state(NAME).versions[Version(1, 1, 0)].attested
    assert not owner.policies(other).lines and not owner.verify(other).damages


def test_a_mirror_has_the_policies_and_the_evidence_and_sets_none(registry, tmp_path):
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    copy = memory.remote(registry.id, mirror=True)
    mirror(registry.store, copy)
    assert read_policies(copy) == owner.policies(registry)
    assert Home(tmp_path / "reader").resolve(STABLE, remote=copy).located.version == Version(1, 0, 0)
    with pytest.raises(ConflictError, match="mirror"):
        set_policy(copy, KnownHeads(), Policy())
    fork = memory.remote(registry.id)
    set_policy(fork, KnownHeads(tmp_path), read_policy(LAX, "policy"))
    with pytest.raises(ForkError):
        copy_policies(read_policies(registry.store), fork)


def test_a_broken_policy_log_names_the_line_that_does_not_follow(tmp_path):
    registry = filled(tmp_path)
    owner.set_policy(registry, read_policy(LAX, "policy"))
    path = registry.store.root / "policy.jsonl"
    path.write_bytes(path.read_bytes().replace(b"0.005", b"0.905", 1))
    with pytest.raises(IntegrityError, match=r"^policy\.jsonl is broken at line 2$"):
        read_policies(registry.store)
    with pytest.raises(IntegrityError):
        owner.set_policy(registry, read_policy(LAX, "policy"))


def republished(registry: Home, tmp_path: Path, version: str) -> None:
    """The bytes of 1.0.0 under another manifest."""
    registry.add(draft(tmp_path / version, "a", license="MIT"), version)


@pytest.mark.parametrize("first", ["published", "refused"])
def test_a_refusal_is_one_of_the_bytes(registry, tmp_path, first):
    """To publish refused bytes with another licence is no way out, before the refusal or after it."""
    owner.set_policy(
        registry, read_policy(b'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\n', "policy")
    )
    steps = [
        lambda: republished(registry, tmp_path, "1.9.0"),
        lambda: owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0")),
    ]
    for step in steps if first == "published" else reversed(steps):
        step()
    found = registry.resolve(f"{NAME}:1.9.0").outcome.looked_at[0][0].summary.artifacts[1]
    assert (found.state, found.stated) == ("refused", "certified")
    assert registry.get(f"{NAME}:1.9.0").states[found.path].state == "refused"
    assert not owner.promote(registry, f"{NAME}:1.9.0", "stable").holds
    assert found.digest in registry.state(NAME).refused
    registry.check()


def test_a_refusal_reaches_the_same_bytes_under_another_manifest(registry, tmp_path):
    """The destination has the bytes of 1.0.0 as 1.9.0, and not 1.0.0."""
    republished(registry, tmp_path, "1.9.0")
    other, place = Home(tmp_path / "other"), registry.place
    other.pull(f"{NAME}:1.9.0", place)
    owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    other.pull(f"{NAME}:1.3.0", place)
    assert [item.state == "refused" for item in other.get(f"{NAME}:1.9.0").states.values()] == [False, True]
    other.check()


@pytest.mark.parametrize("suite, passes", [(b"suite", True), (b"field", False)])
def test_a_policy_names_the_suites_that_must_be_passed(isolated_user, tmp_path, suite, passes):
    home = Home(tmp_path / "home")
    home.add(draft(tmp_path / "a", "a"), "1.0.0")
    rule = f'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\nsuites = ["{Digest.of(suite)}"]\n'
    owner.set_policy(home, read_policy(rule.encode(), "policy"))
    (finding,) = [
        each
        for each in owner.promote(home, f"{NAME}:1.0.0", "stable").findings
        if each.requirement == "suites"
    ]
    if passes:
        assert finding.verdict == "pass"
        return
    assert finding.detail == f"model_int8.onnx: suite {Digest.of(suite).short} never judged it"
    artifact = home.get(f"{NAME}:1.0.0").manifest.artifacts[1].digest
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact)}
    report = json.dumps({**value, "suite": str(Digest.of(suite)), "state": "certified"}).encode()
    owner.attest(home, f"{NAME}:1.0.0", report)
    assert owner.promote(home, f"{NAME}:1.0.0", "stable").moved


@pytest.mark.parametrize("weights, is_bound", [(b"others", False), (b"others", True), (None, False)])
def test_an_evaluation_of_a_graph_with_external_data_is_one_of_its_version(
    isolated_user, tmp_path, weights, is_bound
):
    """The graph's digest does not tell its weights: only a refusal holds elsewhere, unless the report names them."""
    home = Home(tmp_path / "home")
    for version, data in (("1.0.0", weights and b"weights"), ("1.1.0", weights)):
        made = draft(tmp_path / version, "a", description=version)
        float32, int8 = made.artifacts
        if data is not None:
            (tmp_path / version / "data.bin").write_bytes(data)
            int8 = replace(int8, sidecars=(DraftFile("external-data", "data.bin"),))
        home.add(replace(made, artifacts=(float32, int8)), version)
    rule = f'[[rule]]\nchannel = "stable"\nsuites = ["{Digest.of(b"field")}"]\n'
    owner.set_policy(home, read_policy(rule.encode(), "policy"))
    report = json.loads(refusal(home, "1.0.0")) | {"state": "certified"}
    report |= {"external_data": {report["artifact"]: [Digest.of(b"weights")]}} if is_bound else {}
    data = json.dumps(report).encode()
    owner.attest(home, f"{NAME}:1.0.0", data)
    assert owner.promote(home, f"{NAME}:1.0.0", "stable").holds
    if is_bound:
        with pytest.raises(InputError):
            owner.attest(home, f"{NAME}:1.1.0", data)
        verdict = home.get(f"{NAME}:1.1.0").manifest.artifacts[1].digest, "certified"
        home.decisions().attest(Ref(NAME, "1.1.0"), data, EVALUATION, verdict=verdict)
        with pytest.raises(IntegrityError):
            owner.promote(home, f"{NAME}:1.1.0", "stable", dry_run=True)
        return
    assert owner.promote(home, f"{NAME}:1.1.0", "stable", dry_run=True).holds is (weights is None)
    owner.attest(home, f"{NAME}:1.0.0", refusal(home, "1.0.0"))
    assert home.get(f"{NAME}:1.1.0").states["model_int8.onnx"].state == "refused"
    owner.attest(home, f"{NAME}:1.1.0", data)
    assert not owner.promote(home, f"{NAME}:1.1.0", "stable").holds


REF = Ref.parse(STABLE)
INDEX, POLICIES = ("GET", f"/{index_path(NAME)}"), ("GET", "/policy.jsonl")


@pytest.fixture
def promoted(registry) -> Home:
    """1.0.0 is in its governed channel."""
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    return registry


@pytest.fixture
def reader(tmp_path) -> Home:
    return Home(tmp_path / "reader")


def resolve(reader: Home, site: Proxy) -> int:
    site.seen.clear()
    site.answers.clear()
    return reader.reg("--quiet", "resolve", STABLE, "--remote", site.url)


def test_each_file_is_asked_for_once(promoted, reader, site):
    assert resolve(reader, site) == 0
    assert site.seen[:3] == [("GET", "/registry.json"), INDEX, POLICIES]
    documents = site.seen[3:]
    assert len(documents) == len(set(documents)) == 2
    assert all(path.startswith("/blobs/") for _, path in documents)


def test_a_pull_of_what_is_here_asks_for_two_files(promoted, reader, site):
    for _ in range(2):
        site.seen.clear()
        assert reader.reg("--quiet", "pull", STABLE, site.url) == 0
    assert site.seen == [INDEX, POLICIES]


def test_another_policy_is_looked_at(promoted, reader, site):
    assert resolve(reader, site) == 0
    owner.set_policy(promoted, read_policy(LAX, "policy"))
    assert resolve(reader, site) == 0
    assert len(site.seen) > 2
    owner.set_policy(promoted, read_policy(POLICY.replace(b"Apache-2.0", b"MIT"), "policy"))
    for _ in range(2):
        assert resolve(reader, site) == 8


def test_another_index_is_looked_at(promoted, reader, site):
    assert resolve(reader, site) == 0
    owner.attest(promoted, f"{NAME}:1.0.0", refusal(promoted, "1.0.0"))
    for _ in range(2):
        assert resolve(reader, site) == 8
    attack(promoted, "move 1.1.0")
    assert resolve(reader, site) == 8


def test_another_trust_file_is_looked_at(promoted, reader, site, tmp_path, monkeypatch):
    """Who trusts the key no more is refused what passed while it was trusted."""
    release, other = generate("ed25519"), generate("ed25519")
    trust = tmp_path / "trust.toml"
    monkeypatch.setenv("REG_TRUST", str(trust))
    trust.write_text(f'[keys.release]\nkey = "{release.public}"\n')
    owner.sign(promoted, f"{NAME}:1.0.0", release)
    owner.set_policy(
        promoted, read_policy(b'[[rule]]\nchannel = "stable"\nsigned_by = ["release"]\n', "policy")
    )
    owner.promote(promoted, f"{NAME}:1.0.0", "stable")
    assert resolve(reader, site) == 0
    trust.write_text(f'[keys.release]\nkey = "{other.public}"\n')
    assert [resolve(reader, site) for _ in range(2)] == [8, 8]


class TwoFaced:
    """Serves one index file, keeps back what would show that it is forged, and then serves another."""

    def __init__(self, promoted: Home, *answers: StoredObject | None, withheld: Any = ()) -> None:
        self._store, self._answers, self.withheld = promoted.store, list(answers), list(withheld)

    def read_index(self, name: str, known: StoredObject | None = None) -> StoredObject | None:
        if name != NAME:
            return self._store.read_index(name)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def open_blob(self, digest: Digest, start: int = 0) -> Any:
        if digest in self.withheld:
            self.withheld.clear()
            raise MissingBlobError(digest, self._store.url)
        return self._store.open_blob(digest, start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def forged(promoted: Home) -> TwoFaced:
    """Tells of a forged promotion, and then of a history that goes on innocently."""
    attack(promoted, "forge 1.2.0")
    evil = promoted.store.read_index(NAME)
    owner.promote(promoted, f"{NAME}:1.0.0", "stable")
    withheld = promoted.get(f"{NAME}:1.2.0").digest
    return TwoFaced(promoted, evil, promoted.store.read_index(NAME), withheld=[withheld])


def test_resolve_judges_the_index_that_answered(promoted):
    place = forged(promoted)
    promoted.heads.reset(promoted.id)
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        promoted.resolve(STABLE, remote=place)


def test_a_remote_without_an_index_is_judged_too(promoted):
    place = forged(promoted)
    found = find(place, REF)
    assert str(found.version) == "1.2.0"
    place.withheld.clear()
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        check_version_trust(place, REF, found, None, promoted.heads, look_for_policy=True)


def test_coverage_judges_the_index_that_answered(promoted):
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        coverage(forged(promoted), REF, Query(), [])


def test_resolve_judges_the_rollout_that_answered(promoted):
    owner.rollouts(promoted).start(Ref.parse(f"{NAME}:1.1.0"), "stable", 0.01)
    for version in ("1.2.0", "1.3.0") * 35:
        promoted.tag(f"{NAME}:{version}", "beta")
    true = promoted.store.read_index(NAME)
    attack(promoted, "set rollouts/stable/percent 100; set checkpoint @other")
    place = TwoFaced(promoted, promoted.store.read_index(NAME), true)
    promoted.heads.reset(promoted.id)
    with pytest.raises(NotFoundError):  # the state is compared with the checkpoint first
        promoted.resolve(STABLE, remote=place, seed="0" * 64)
