"""Policies: strict reading, and each demand met and missed."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.gates import statements
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.gates.rule import PromotionCandidate, Rule
from onnxreg.schema.gates.statements import RULES, EvaluationDocument, FaithfulnessReport, RecordedProof
from onnxreg.schema.manifest.manifest import Manifest

FULL = b"""
[[rule]]
channel = "stable"
models = ["acme/*"]
certified = ["onnx-int8"]
signed_by = ["release", "lab"]
signatures = 1
max_recall_loss = 0.005
loss_interval = true
where = "metric['sts/spearman'] >= 0.82 and size < 1MB"
synthetic = false
max_size = {onnx-int8 = "40MB"}
licenses = ["Apache-2.0"]
contract = ["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
devices = ["ort-android-1.23", {ort = "1.20", name = "old"}]
breaking = false
"""
INT8 = Digest.of(b"int8")
TENSORS = {
    side: [{"name": side, "dtype": "float32", "shape": [{"kind": "static", "value": 2}]}]
    for side in ("inputs", "outputs")
}
CONTRACT = (
    "sha256:"
    + hashlib.sha256(
        b'{"inputs":[{"dtype":"float32","name":"inputs","shape":[2]}],'
        b'"outputs":[{"dtype":"float32","name":"outputs","shape":[2]}]}'
    ).hexdigest()
)
SUITE, FIELD = str(Digest.of(b"suite")), str(Digest.of(b"field"))
SPEARMAN = {
    "name": "sts/spearman",
    "metric": "spearman",
    "value": 0.83,
    "verdict": "pass",
    "dataset": SUITE,
    "direction": "higher",
}


def document(**changes: Any) -> dict[str, Any]:
    """A manifest with one float32 and one certified int8 artifact."""
    loss = {"name": "quant_recall_delta", "metric": "character_recall", "value": 0.002, "verdict": "pass"}
    evidence = {
        "artifact": str(INT8),
        "parent": str(Digest.of(b"checkpoint")),
        "suite": str(Digest.of(b"suite")),
    }
    int8 = {
        "format": "onnx-int8",
        "path": "model_int8.onnx",
        "precision": "int8",
        "digest": str(INT8),
        "size": 30,
        "metadata": {"opset": 18},
        "checks": [{**loss, "interval": [0.001, 0.004]}, SPEARMAN],
        "certification": {"state": "certified", "evidence": {**evidence, "synthetic": False}},
    }
    fp32 = {
        "format": "onnx",
        "path": "model.onnx",
        "precision": "float32",
        "digest": str(Digest.of(b"fp32")),
        "size": 100,
        "metadata": {"opset": 18},
    }
    config = {"role": "config", "path": "config.json", "digest": str(Digest.of(b"{}")), "size": 2}
    return {
        "format": "openmed-onnx",
        "format_version": 2,
        "name": "acme/pii",
        "formats": ["onnx", "onnx-int8"],
        "artifacts": [fp32, {**int8, **changes.pop("int8", {})}],
        "files": [config],
        "license": "Apache-2.0",
        **changes,
    }


def two_alike() -> dict[str, Any]:
    """A manifest with two artifacts that differ in path and bytes only."""
    fp32 = document()["artifacts"][0]
    other = {**fp32, "path": "other.onnx", "digest": str(Digest.of(b"other"))}
    return document(formats=["onnx"], artifacts=[fp32, other])


def two_evaluated(*figures: float) -> dict[str, Any]:
    """A manifest with artifacts that were evaluated for one metric, and have no loss of recall."""
    artifacts = []
    for number, figure in enumerate(figures):
        digest = str(Digest.of(str(number).encode()))
        artifact = document()["artifacts"][1]
        evidence = artifact["certification"]["evidence"] | {"artifact": digest}
        changes = {"path": f"{number}.onnx", "digest": digest, "checks": [SPEARMAN | {"value": figure}]}
        artifacts.append(artifact | changes | {"certification": {"state": "certified", "evidence": evidence}})
    return document(formats=["onnx-int8"], artifacts=artifacts)


def candidate(value: dict[str, Any] | None = None, **more: Any) -> PromotionCandidate:
    manifest = Manifest.from_json(value or document())
    data = manifest.encode()
    return PromotionCandidate(manifest, Digest.of(data), len(data), **more)


CHILD = document(int8={"parent": str(Digest.of(b"fp32"))})


def proof(*signers: str, **changes: str) -> RecordedProof:
    """A proof about the int8 artifact of `document`."""
    head = {"format": "onnxreg-faithfulness", "format_version": 1, "rules": RULES, "verdict": "proven"}
    about = {"artifact": str(INT8), "parent": str(Digest.of(b"fp32")), **changes}
    return RecordedProof(
        FaithfulnessReport.from_json({**head, **about}), tuple(frozenset({name}) for name in signers)
    )


def by_rules(version: int) -> RecordedProof:
    made = proof()
    return replace(made, report=made.report.model_copy(update={"rules": version}))


def verdicts(rule: dict[str, Any], found: PromotionCandidate) -> list[str]:
    return [each.verdict for each in Rule.from_json({"channel": "stable", **rule}).evaluate(found)]


def later(
    state: str, loss: float | None = None, artifact: Digest = INT8, **more: Any
) -> tuple[EvaluationDocument, ...]:
    """An evaluation on another suite, with the loss that it measured."""
    check = {"name": "quant_recall_delta", "metric": "recall", "verdict": "info", "value": loss, **more}
    head = {"format": "onnxreg-evaluation", "format_version": 1}
    about = {"artifact": str(artifact), "suite": FIELD, "state": state}
    checks = {} if loss is None else {"checks": [check]}
    return (EvaluationDocument.from_json(head | about | checks),)


def certification(state: str, synthetic: bool | None = False) -> dict[str, Any]:
    found = document()["artifacts"][1]["certification"]
    evidence = {key: item for key, item in found["evidence"].items() if key != "synthetic"}
    said = {} if synthetic is None else {"synthetic": synthetic}
    return {"int8": {"certification": {"state": state, "evidence": {**evidence, **said}}}}


def checks(**changes: Any) -> dict[str, Any]:
    check = {
        key: item
        for key, item in document()["artifacts"][1]["checks"][0].items()
        if changes.get(key, 0) is not None
    }
    return {
        "int8": {"checks": [{**check, **{key: item for key, item in changes.items() if item is not None}}]}
    }


RELEASE, LAB = frozenset({"release", "1" * 64}), frozenset({"lab", "2" * 64})

CANDIDATES: dict[str, Callable[[], PromotionCandidate]] = {
    "plain": lambda: candidate(),
    "refused": lambda: candidate(document(**certification("refused"))),
    "unknown": lambda: candidate(document(**certification("unknown"))),
    "refused later": lambda: candidate(evaluations=later("refused")),
    "certified again": lambda: candidate(evaluations=later("certified")),
    "not evaluable later": lambda: candidate(evaluations=later("unknown")),
    "a later certificate lifts no refusal": lambda: candidate(
        document(**certification("refused")), evaluations=later("certified")
    ),
    "a later certificate lifts no unknown": lambda: candidate(
        document(**certification("unknown")), evaluations=later("certified")
    ),
    "a refusal of other bytes": lambda: candidate(evaluations=later("refused", artifact=Digest.of(b"else"))),
    "signed by name": lambda: candidate(signers=(RELEASE,)),
    "signed by another": lambda: candidate(signers=(LAB,)),
    "all signed": lambda: candidate(signers=(LAB, RELEASE)),
    "suite that refused once": lambda: candidate(evaluations=later("certified") + later("refused")),
    "loss that is not known": lambda: candidate(document(int8={"checks": []})),
    "loss that could not be measured": lambda: candidate(
        document(int8={"checks": [{**document()["artifacts"][1]["checks"][0], "value": None}]})
    ),
    "no interval": lambda: candidate(document(**checks(interval=None))),
    "loss found later": lambda: candidate(evaluations=later("unknown", loss=0.006)),
    "a loss without an interval found later": lambda: candidate(evaluations=later("unknown", loss=0.001)),
    "a loss with an interval found later": lambda: candidate(
        evaluations=later("unknown", loss=0.001, interval=(0.0, 0.002))
    ),
    "a metric on another suite": lambda: candidate(
        document(int8={"checks": [SPEARMAN | {"dataset": FIELD}]})
    ),
    "a metric of artifacts of which none was evaluated": lambda: candidate(two_alike()),
    "two evaluated artifacts, one of them too bad": lambda: candidate(two_evaluated(0.83, 0.8)),
    "two evaluated artifacts": lambda: candidate(two_evaluated(0.83, 0.84)),
    "a synthetic suite": lambda: candidate(document(**certification("certified", True))),
    "a suite that does not say": lambda: candidate(document(**certification("certified", None))),
    "the licence as an old card spells it": lambda: candidate({**document(), "license": "apache-2.0"}),
    "a licence of no list in another case": lambda: candidate({**document(), "license": "acme terms"}),
    "no licence": lambda: candidate({**document(), "license": None}),
    "a device whose artifact is here, and one alike is not": lambda: candidate(
        two_alike(), held=("other.onnx",)
    ),
    "a device whose artifact is not here": lambda: candidate(held=("none.onnx",)),
    "a contract that an artifact has": lambda: candidate(document(int8={"metadata": TENSORS})),
    "a contract of an artifact that is not here": lambda: candidate(
        document(int8={"metadata": TENSORS}), held=("model.onnx",)
    ),
    "a proof on record": lambda: candidate(CHILD, proofs=(proof(),)),
    "no proof on record": lambda: candidate(CHILD),
    "a proof about another parent": lambda: candidate(
        CHILD, proofs=(proof(parent=str(Digest.of(b"other"))),)
    ),
    "a proof that is bounded": lambda: candidate(CHILD, proofs=(proof(verdict="bounded"),)),
    "a proof of a child without a parent": lambda: candidate(proofs=(proof(),)),
    "a proof that is not signed": lambda: candidate(
        CHILD, proofs=(proof(),), signers=(frozenset({"release"}),)
    ),
    "a proof that a later one takes back": lambda: candidate(
        CHILD, proofs=(proof(), proof(verdict="not-provable"))
    ),
    "a proof that takes an earlier one back": lambda: candidate(
        CHILD, proofs=(proof(verdict="not-provable"), proof())
    ),
    "a signed proof before one by somebody else": lambda: candidate(
        CHILD,
        proofs=(proof("release"), proof("other", verdict="bounded"), proof(verdict="bounded")),
        signers=(frozenset({"release"}),),
    ),
    "a signed proof that its key takes back": lambda: candidate(
        CHILD,
        proofs=(proof("release"), proof("release", verdict="bounded"), proof("other")),
        signers=(frozenset({"release"}),),
    ),
    "a proof by other rules": lambda: candidate(CHILD, proofs=(by_rules(1),)),
    "a proof by the demanded key": lambda: candidate(
        CHILD, proofs=(proof("release"),), signers=(frozenset({"release"}),)
    ),
    "no breaking change": lambda: candidate(before=Manifest.from_json({**document(), "license": "MIT"})),
    "a breaking change": lambda: candidate(
        {**document(), "labels": ["A"]}, before=Manifest.from_json({**document(), "labels": ["B"]})
    ),
}

CASES = """
pass | certified | "certified": ["onnx-int8"]
fail | a format that is not there | "certified": ["ort"]
fail | refused | "certified": ["onnx-int8"] | itself
fail | unknown | "certified": ["onnx-int8"] | itself
fail | never evaluated | "certified": ["onnx"]
fail | refused later | "certified": ["onnx-int8"] | itself
pass | certified again | "certified": ["onnx-int8"] | itself
pass | not evaluable later | "certified": ["onnx-int8"] | itself
fail | a later certificate lifts no refusal | "certified": ["onnx-int8"] | itself
fail | a later certificate lifts no unknown | "certified": ["onnx-int8"] | itself
pass | a refusal of other bytes | "certified": ["onnx-int8"] | itself
pass | signed by name | "signed_by": ["release"] | itself
pass | signed by id | "signed_by": ["RELEASE_ID"] | signed by name
fail | signed by nobody | "signed_by": ["release"]
fail | signed by another | "signed_by": ["release"] | itself
fail | all must sign | "signed_by": ["release", "lab"] | signed by another
pass | all signed | "signed_by": ["release", "lab"] | itself
pass | one of two signed | "signed_by": ["release", "lab"], "signatures": 1 | signed by another
fail | one key by two names is one key | "signed_by": ["release", "RELEASE_ID"] | signed by name
pass | suite | "suites": ["SUITE"]
fail | suite that never judged | "suites": ["SUITE", "FIELD"]
pass | two suites | "suites": ["SUITE", "FIELD"] | certified again
fail | suite that proves nothing | "suites": ["FIELD"] | not evaluable later
fail | suite that refused once | "suites": ["FIELD"] | itself
fail | suites of nothing | "suites": ["SUITE"], "certified": ["onnx"]
pass | loss | "max_recall_loss": 0.002
fail | too much loss | "max_recall_loss": 0.0019
fail | loss that is not known | "max_recall_loss": 1 | itself
fail | loss of a format without any | "max_recall_loss": 1, "certified": ["onnx"]
fail | loss that could not be measured | "max_recall_loss": 1 | itself
pass | the interval | "max_recall_loss": 0.004, "loss_interval": true
fail | the interval reaches above | "max_recall_loss": 0.0039, "loss_interval": true
fail | no interval | "max_recall_loss": 1, "loss_interval": true | itself
fail | loss found later | "max_recall_loss": 0.005 | itself
fail | a loss without an interval found later | "max_recall_loss": 0.005, "loss_interval": true | itself
pass | a loss with an interval found later | "max_recall_loss": 0.005, "loss_interval": true | itself
pass | no loss found later | "max_recall_loss": 0.005 | not evaluable later
pass | a metric | "where": "metric['sts/spearman'] >= 0.82"
pass | a metric of the certified format | "where": "metric['sts/spearman'] >= 0.82", "certified": ["onnx-int8"]
fail | a metric that is too low | "where": "metric['sts/spearman'] >= 0.84"
fail | a metric that was not measured | "where": "metric['sts/pearson'] >= 0"
fail | a metric on another suite | "where": "metric['sts/spearman'] >= 0" | itself
fail | a metric of an artifact that was not evaluated | "where": "metric['sts/spearman'] >= 0.82", "certified": ["onnx"]
fail | a metric of artifacts of which none was evaluated | "where": "not metric['sts/spearman'] >= 0.82" | itself
fail | two evaluated artifacts, one of them too bad | "where": "metric['sts/spearman'] >= 0.82" | itself
pass | two evaluated artifacts | "where": "metric['sts/spearman'] >= 0.82" | itself
pass | any field of an artifact | "where": "certified and opset <= 18 and download_size <= 32 and license = Apache-2.0"
fail | the effective state | "where": "certified" | refused later
pass | a real suite | "synthetic": false
fail | a synthetic suite | "synthetic": false | itself
fail | a suite that does not say | "synthetic": false | itself
pass | size with companions | "max_size": {"onnx-int8": 32}
fail | too large | "max_size": {"onnx-int8": 31}
pass | licence | "licenses": ["MIT", "Apache-2.0"]
pass | the licence in another spelling | "licenses": ["apache-2.0 or mit", "apache-2.0"]
pass | the licence as an old card spells it | "licenses": ["Apache-2.0"] | itself
pass | a licence of no list in another case | "licenses": ["Acme Terms"] | itself
fail | another licence | "licenses": ["MIT"]
fail | no licence | "licenses": ["MIT"] | itself
pass | a device | "devices": ["ort-android-1.23"]
fail | a device that nothing runs on | "devices": [{"ort": "1.23", "ram": 10}]
pass | a device whose artifact is here, and one alike is not | "devices": ["ort-android-1.23"] | itself
fail | a device whose artifact is not here | "devices": ["ort-android-1.23"] | itself
pass | a contract that an artifact has | "contract": ["CONTRACT"] | itself
fail | a contract of an artifact that is not here | "contract": ["CONTRACT"] | itself
fail | a contract that no artifact has | "contract": ["CONTRACT"]
pass | a proof on record | "faithful": true | itself
fail | no proof on record | "faithful": true | itself
fail | a proof about another parent | "faithful": true | itself
fail | a proof that is bounded | "faithful": true | itself
fail | a proof of a child without a parent | "faithful": true | itself
fail | a proof that is not signed | "faithful": true, "signed_by": ["release"] | itself
fail | a proof that a later one takes back | "faithful": true | itself
pass | a proof that takes an earlier one back | "faithful": true | itself
pass | a signed proof before one by somebody else | "faithful": true, "signed_by": ["release"] | itself
fail | a signed proof that its key takes back | "faithful": true, "signed_by": ["release"] | itself
fail | a proof by other rules | "faithful": true | itself
pass | a proof by the demanded key | "faithful": true, "signed_by": ["release"] | itself
pass | nothing before | "breaking": false
pass | no breaking change | "breaking": false | itself
fail | a breaking change | "breaking": false | itself
"""
"""The verdict, the case, its rule, and the candidate: `itself` is that of the case's name, by default the plain one."""


def read_case(line: str) -> tuple[str, str, dict[str, Any], PromotionCandidate]:
    verdict, name, rule, *other = line.split(" | ")
    for word, text in (("SUITE", SUITE), ("FIELD", FIELD), ("CONTRACT", CONTRACT), ("RELEASE_ID", "1" * 64)):
        rule = rule.replace(f'"{word}"', f'"{text}"')
    key = (other or ["plain"])[0]
    return verdict, name, json.loads(f"{{{rule}}}"), CANDIDATES[name if key == "itself" else key]()


@pytest.mark.parametrize("line", CASES.strip().splitlines())
def test_a_rule_passes_or_fails(line: str) -> None:
    expected, _, rule, found = read_case(line)
    results = verdicts(rule, found)
    assert results
    assert ("fail" if "fail" in results else "pass") == expected


def test_every_demand_passes_and_fails_somewhere() -> None:
    cases = map(read_case, CASES.strip().splitlines())
    seen = {(word, expected) for expected, _, rule, _ in cases for word in rule}
    demands = Rule.model_fields.keys() - {"channel", "models", "signatures", "loss_interval"}
    assert seen >= {(word, verdict) for word in demands for verdict in ("pass", "fail")}


def test_only_what_is_demanded_is_looked_at() -> None:
    found = Rule.from_json({"channel": "stable", "licenses": ["MIT"]}).evaluate(candidate())
    assert [each.requirement for each in found] == ["licenses"]


def test_reads_and_writes_the_whole_file() -> None:
    policy = read_policy(FULL, "policy.toml")
    assert Policy.read(policy.to_json()) == policy
    assert policy.to_json()[0]["max_size"] == {"onnx-int8": 40_000_000}
    assert policy.to_json()[0]["where"] == "metric['sts/spearman'] >= 0.82 and size < 1MB"
    assert policy.to_json()[0]["devices"] == [
        "ort-android-1.23",
        {"ort": "1.20", "name": "old"},
    ]
    assert len(policy.covering("acme/pii", "stable")) == 1
    assert not policy.covering("acme/pii", "beta") and not policy.covering("other", "stable")


def test_an_empty_policy_governs_nothing() -> None:
    assert read_policy(b"", "policy.toml") == Policy()


BAD = {
    "not TOML": (b"[[rule", "not TOML"),
    "not text": (b"\xff", "not TOML"),
    "another table": (b"[rules]", "no such key"),
    "an unknown word": (b'[[rule]]\nchannel="a"\nlicence=["MIT"]', "no such key"),
    "no channel": (b'[[rule]]\nlicenses=["MIT"]', "channel: it is missing"),
    "a version for a channel": (b'[[rule]]\nchannel="1.0.0"\nlicenses=["MIT"]', "not a channel"),
    "nothing demanded": (b'[[rule]]\nchannel="a"', "demands nothing"),
    "an empty list": (b'[[rule]]\nchannel="a"\nlicenses=[]', "at least one"),
    "a word twice": (b'[[rule]]\nchannel="a"\nlicenses=["MIT","MIT"]', "different"),
    "no such device": (b'[[rule]]\nchannel="a"\ndevices=["ort-android-9.9"]', "there is no device preset"),
    "no size": (b'[[rule]]\nchannel="a"\nmax_size={ort="big"}', "not a size"),
    "a loss beyond 1": (b'[[rule]]\nchannel="a"\nmax_recall_loss=5', "less than or equal to 1"),
    "an expression that means nothing": (
        b'[[rule]]\nchannel="a"\nwhere="metric > 1"',
        "where: the expression cannot be read: expected the name of the metric",
    ),
    "an expression about the version": (
        b'[[rule]]\nchannel="a"\nwhere="certified and newest"',
        "where: newest is not a field of an artifact",
    ),
    "an expression that is too deep": (
        b'[[rule]]\nchannel="a"\nwhere="' + b"not " * 65 + b'certified"',
        "nested deeper than 64 levels",
    ),
    "an expression that is not a text": (b'[[rule]]\nchannel="a"\nwhere=1', "where"),
    "an interval of nothing": (
        b'[[rule]]\nchannel="a"\nlicenses=["MIT"]\nloss_interval=true',
        "max_recall_loss",
    ),
    "more signatures than keys": (b'[[rule]]\nchannel="a"\nsigned_by=["b"]\nsignatures=2', "signatures is 2"),
    "no signature": (b'[[rule]]\nchannel="a"\nsigned_by=["b"]\nsignatures=0', "greater than 0"),
    "breaking wanted": (b'[[rule]]\nchannel="a"\nbreaking=true', "it must be False"),
    "synthetic wanted": (b'[[rule]]\nchannel="a"\nsynthetic=true', "it must be False"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_policy_is_refused(case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(InputError, match=message) as caught:
        read_policy(data, "policy.toml")
    assert caught.value.message.startswith("policy.toml")


def test_an_unknown_word_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        read_policy(b'[[rule]]\nchannel="a"\nmax_recal_loss=1', "policy.toml")
    assert "max_recall_loss" in caught.value.hint


def report(**changes: Any) -> bytes:
    value = later("refused", 0.03, interval=[0.01, 0.05])[0].to_json() | {"synthetic": False} | changes
    return json.dumps({key: item for key, item in value.items() if item is not None}).encode()


def test_reads_an_evaluation() -> None:
    found = statements.read_evaluation(report())
    assert (found.artifact, str(found.suite), found.state, found.synthetic) == (INT8, FIELD, "refused", False)
    assert found.loss is not None and (found.loss.value, found.loss.interval) == (0.03, (0.01, 0.05))


def test_a_report_of_another_kind_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="report is not valid") as caught:
        statements.read_evaluation(b"{}")
    assert "docs/gates.md" in caught.value.hint


@pytest.mark.parametrize(
    "changes", [{"artifact": None}, {"suite": None}, {"state": "good"}, {"format_version": 2}]
)
def test_refuses_an_evaluation_that_does_not_say_what_of(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        statements.read_evaluation(report(**changes))
