"""What a manifest refuses is refused for good: in every version of the model that has the same bytes, wherever it goes."""

import json
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME, draft

from onnxreg.registry import Registry
from onnxreg.registry.log import commit as committing
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import load, read_blob
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.memory import memory_remote
from onnxreg.registry.transfer.exchange import exchange
from onnxreg.registry.transfer.merge import ExchangeRequest
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.evaluation import EVALUATION, RECALL_DELTA, read_evaluation
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.state import SEGMENT_LINES
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict
from onnxreg.schema.query.requirements import Query

INT8 = Query(formats=("onnx-int8",))


def promote(registry: Registry, version: str) -> Any:
    return owner.promote(registry, f"{NAME}:{version}", "stable")


@pytest.fixture
def home(isolated_user: None, tmp_path: Path) -> Registry:
    return Registry(tmp_path / "home")


def refused_then_certified(registry: Registry, root: Path) -> None:
    """The same bytes: 1.1.0 is refused, 1.2.0 certified."""
    registry.add(draft(root / "refused", "a", "refused"), "1.1.0")
    registry.add(draft(root / "certified", "a"), "1.2.0")


def attests(registry: Registry) -> list[Attest]:
    return [line.event for line in registry.log(NAME) if isinstance(line.event, Attest)]


def test_a_refused_version_is_published_with_the_refusal_of_its_bytes(home: Registry, tmp_path: Path) -> None:
    refused_then_certified(home, tmp_path)
    (event,) = attests(home)
    assert (event.state, event.media_type) == ("refused", EVALUATION)
    assert json.loads(read_blob(home.store, event.statement))["suite"] == str(Digest.of(b"suite"))
    assert home.resolve(NAME, INT8).artifact.state == "refused"
    assert not owner.verify(home).damages


def test_the_refusal_travels_and_twice_is_as_good_as_once(home: Registry, tmp_path: Path) -> None:
    refused_then_certified(home, tmp_path)
    other = Registry(tmp_path / "other")
    url = str(other.store.root)
    home.push(f"{NAME}:1.2.0", url)
    assert other.resolve(NAME, INT8).artifact.state == "refused"
    assert home.push(f"{NAME}:1.1.0", url).events == 1
    assert home.pull(f"{NAME}:1.1.0", url).events == home.push(f"{NAME}:1.1.0", url).events == 0
    assert len(attests(other)) == len(attests(home)) == 1
    assert not owner.verify(other).damages


def test_the_record_of_a_refusal_survives_a_dead_collector(
    home: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place has the same statement already, and it is condemned."""
    with monkeypatch.context() as before:
        before.setattr(committing, "record_refusals", lambda ledger, since: None)
        refused_then_certified(home, tmp_path)
    request = ExchangeRequest(NAME, [Version.parse("1.1.0")])
    places = memory_remote(), memory_remote()
    exchange(home.store, places[0], request)
    (statement,) = [
        line.event.statement for line in load(places[0], NAME).tail if line.event.kind == "attest"
    ]
    with places[1].push() as push:
        push.put(BytesIO(read_blob(places[0], statement)))
    places[1].add_note("condemned", "f" * 16, BlobKey(statement).path.encode())
    exchange(home.store, places[1], request)
    assert load(places[1], NAME).refused == load(places[0], NAME).refused != set()


def test_a_refusal_is_recorded_if_its_line_is_sealed_at_once(
    home: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(committing, "record_refusals", lambda ledger, since: None)
        home.add(draft(tmp_path / "first", "z"), "1.0.0")
        refused_then_certified(home, tmp_path)
        for number in range(4):  # so 1.1.0 is not among the newest four
            home.add(draft(tmp_path / f"later-{number}", f"later-{number}"), f"2.{number}.0")
    remote = memory_remote()
    send = partial(exchange, home.store, remote)
    send(ExchangeRequest(NAME, [Version.parse("1.0.0")]))
    while load(remote, NAME).seq < SEGMENT_LINES - 1:
        Decisions(remote).tag(Ref(NAME, "1.0.0"), f"channel-{load(remote, NAME).seq}")
    send(ExchangeRequest(NAME, [Version.parse(f"{text}.0") for text in ("1.1", "2.0", "2.1", "2.2", "2.3")]))
    assert load(remote, NAME).refused


def test_a_registry_from_before_gets_it_with_the_next_write(
    home: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(committing, "record_refusals", lambda ledger, since: None)
        refused_then_certified(home, tmp_path)
    assert home.resolve(NAME, INT8).artifact.state == "certified"
    owner.pin(home, f"{NAME}:1.2.0")
    assert home.resolve(NAME, INT8).artifact.state == "refused"
    owner.pin(home, f"{NAME}:1.2.0", undo=True)
    assert len(attests(home)) == 1 and not owner.verify(home).damages


def test_two_registries_that_each_put_it_on_record_tell_each_other_nothing(
    home: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(committing, "record_refusals", lambda ledger, since: None)
        refused_then_certified(home, tmp_path)
    other = Registry(tmp_path / "other")
    home.push(f"{NAME}:1.1.0", str(other.store.root))
    owner.pin(home, f"{NAME}:1.2.0")
    home.push(f"{NAME}:1.1.0", str(other.store.root))
    assert len(attests(other)) == len(attests(home)) == 1


def reported(root: Path, verdict_state: str, **changed: Any) -> Draft:
    """A version with a report of ours, which may say other things than its verdict."""
    root.mkdir()
    (root / "model.onnx").write_bytes(b"int8")
    value = {"artifact": {"int8_model_digest": str(Digest.of(b"int8"))}, "state": "refused"}
    report = {**value, "suite_digest": str(Digest.of(b"suite")), **changed}
    (root / "recall_delta.json").write_text(json.dumps(report))
    verdict = Verdict(verdict_state, "G4/point", ("it loses",), Digest.of(b"suite"), "recall_delta.json")
    return Draft(
        NAME,
        root,
        (DraftArtifact("onnx-int8", "int8", "model.onnx", verdict=verdict),),
        (DraftFile("report", "recall_delta.json"),),
    )


def test_the_report_is_the_statement(home: Registry, tmp_path: Path) -> None:
    published = home.add(reported(tmp_path / "draft", "refused"))
    (event,) = attests(home)
    assert (event.media_type, event.statement) == (RECALL_DELTA, published.manifest.files[0].digest)


def test_a_report_that_says_other_things_is_no_statement(home: Registry, tmp_path: Path) -> None:
    home.add(reported(tmp_path / "draft", "refused", state="certified"))
    (event,) = attests(home)
    assert event.media_type == EVALUATION and not owner.verify(home).damages


def claimed(root: Path, verdict: Verdict) -> Draft:
    """A version with the bytes `int8` and a verdict that names no suite, as an import makes them."""
    root.mkdir()
    (root / "model.onnx").write_bytes(b"int8")
    return Draft(NAME, root, (DraftArtifact("onnx-int8", "int8", "model.onnx", verdict=verdict),))


@pytest.fixture
def claim(home: Registry, tmp_path: Path) -> Digest:
    """The manifest of 1.1.0, which refuses without a suite; 1.2.0 has the same bytes, without a verdict."""
    refused = Verdict("refused", reasons=("its maker says so",))
    published = home.add(claimed(tmp_path / "refused", refused), "1.1.0")
    home.add(claimed(tmp_path / "unknown", Verdict("unknown")), "1.2.0")
    return published.digest


def test_a_refusal_without_a_suite_is_one_of_the_bytes(home: Registry, claim: Digest) -> None:
    (event,) = attests(home)
    assert (event.state, event.media_type, event.manifest) == ("refused", EVALUATION, claim)
    statement = json.loads(read_blob(home.store, event.statement))
    assert (statement["suite"], statement["claimed"]) == (str(claim), True)
    assert statement["reasons"] == ["its maker says so"]
    found = home.resolve(NAME, INT8)
    assert (str(found.located.version), found.artifact.state) == ("1.2.0", "refused")
    assert not owner.verify(home).damages


def test_a_refusal_without_a_suite_travels(home: Registry, claim: Digest, tmp_path: Path) -> None:
    other = Registry(tmp_path / "other")
    home.push(f"{NAME}:1.2.0", str(other.store.root))
    assert other.resolve(NAME, INT8).artifact.state == "refused"
    assert home.push(f"{NAME}:1.1.0", str(other.store.root)).events == 1
    assert len(attests(other)) == 1 and not owner.verify(other).damages


def test_a_refusal_without_a_suite_stops_a_channel(home: Registry, claim: Digest) -> None:
    owner.set_policy(
        home, read_policy(b'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\n', "policy")
    )
    (finding,) = promote(home, "1.2.0").findings
    assert finding.detail == "model.onnx is unknown, a later evaluation says refused"


def test_a_version_that_is_on_record_is_not_read_again(
    home: Registry, claim: Digest, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Digest] = []
    before = Log.read_manifest
    monkeypatch.setattr(Log, "read_manifest", lambda log, digest: read.append(digest) or before(log, digest))
    owner.pin(home, f"{NAME}:1.2.0")
    assert read == []


@pytest.mark.parametrize("state", ["certified", "unknown"])
def test_only_a_refusal_may_be_claimed_without_a_suite(state: str) -> None:
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(Digest.of(b"int8"))}
    claim = {**value, "suite": str(Digest.of(b"manifest")), "claimed": True}
    assert read_evaluation(json.dumps({**claim, "state": "refused"}).encode())[1].claimed
    with pytest.raises(InputError, match="only a refusal may be claimed without a suite"):
        read_evaluation(json.dumps({**claim, "state": state}).encode())


def test_a_version_without_refusals_has_no_attestation(home: Registry, tmp_path: Path) -> None:
    home.add(reported(tmp_path / "draft", "unknown"))
    assert not attests(home)


@pytest.mark.parametrize("suite, passes", [(b"suite", True), (b"field", False)])
def test_a_policy_names_the_suites_that_must_be_passed(
    home: Registry, tmp_path: Path, suite: bytes, passes: bool
) -> None:
    home.add(draft(tmp_path / "a", "a"), "1.0.0")
    rule = f'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\nsuites = ["{Digest.of(suite)}"]\n'
    owner.set_policy(home, read_policy(rule.encode(), "policy"))
    (finding,) = [each for each in promote(home, "1.0.0").findings if each.requirement == "suites"]
    if passes:
        assert finding.verdict == "pass"
        return
    assert finding.detail == f"model_int8.onnx: suite {Digest.of(suite).short} never judged it"
    artifact = home.get(f"{NAME}:1.0.0").manifest.artifacts[1].digest
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact)}
    report = json.dumps({**value, "suite": str(Digest.of(suite)), "state": "certified"}).encode()
    owner.attest(home, f"{NAME}:1.0.0", report)
    assert promote(home, "1.0.0").moved


def test_a_refusal_names_its_suite(home: Registry, tmp_path: Path) -> None:
    refused_then_certified(home, tmp_path)
    owner.set_policy(
        home, read_policy(b'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\n', "policy")
    )
    (finding,) = promote(home, "1.2.0").findings
    assert finding.verdict == "fail"
    assert finding.detail.endswith(f"a later evaluation says refused on suite {Digest.of(b'suite').short}")
