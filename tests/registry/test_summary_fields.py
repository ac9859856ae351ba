"""What the index file repeats of a manifest for questions: contracts, contrib operators, metrics, the profile of a recipe."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import Home
from support.trust.tamper import Tree

from onnxreg.registry import resolution
from onnxreg.registry.log import log
from onnxreg.registry.resolution import NoAnswerError, Resolution
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.schema.core.bounds import MAX_METRICS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.draft import Draft, Verdict
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.resolve import Query

NAME = "acme/pii"


def recorded(registry: Home, key: str, version: str = "1.0.0") -> list[Any]:
    """The values of a key in the index file, by artifact."""
    artifacts = Tree(registry.store.root).state(NAME)["summaries"][version]["artifacts"]
    return [artifact.get(key) for artifact in artifacts]


# Contracts

INPUT = {
    "name": "input_ids",
    "dtype": "int64",
    "shape": [{"kind": "dynamic", "name": "batch"}, {"kind": "static", "value": 16}],
}
OUTPUT = {"name": "logits", "dtype": "float32", "shape": [{"kind": "dynamic", "name": ""}]}


def typed(draft: Draft, labels: list[str], outputs: int = 1) -> Draft:
    """With recorded tensors of the first artifact, and labels."""
    first, int8 = draft.artifacts
    metadata = {"opset": 18, "inputs": [INPUT], "outputs": [OUTPUT] * outputs}
    fields = {**draft.fields, "labels": labels}
    return replace(draft, artifacts=(replace(first, fields={"metadata": metadata}), int8), fields=fields)


@pytest.fixture
def grown(registry, make_draft) -> Home:
    """Two releases with the same labels, and a third with others."""
    registry.add(typed(make_draft(seed="a"), ["O", "NAME"]), "1.0.0")
    registry.add(typed(make_draft(seed="b"), ["O", "NAME"]), "1.1.0")
    registry.add(typed(make_draft(seed="c"), ["NAME", "O"]), "2.0.0")
    return registry


def contract(registry: Home, version: str) -> Any:
    value, other = recorded(registry, "contract", version)
    assert other is None, "no tensor of it is recorded"
    return value


def understanding(*contracts: str) -> Query:
    return Query.read({"contract": list(contracts)})


def test_the_digest_of_a_contract_is_that_of_the_document_in_the_docs(grown):
    files = grown.get(f"{NAME}:1.0.0").manifest.files
    tokenizer = {file.path: str(file.digest) for file in files if file.role == "tokenizer"}
    document = {
        "inputs": [{"name": "input_ids", "dtype": "int64", "shape": [None, 16]}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape": [None]}],
        "labels": ["O", "NAME"],
        **({"tokenizer": tokenizer} if tokenizer else {}),
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    assert contract(grown, "1.0.0") == f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def test_an_app_stays_on_the_newest_release_that_it_understands(grown, make_draft):
    first, other = contract(grown, "1.0.0"), contract(grown, "2.0.0")
    assert first == contract(grown, "1.1.0") != other
    resolved = grown.resolve(NAME, understanding(first))
    assert str(resolved.located.version) == "1.1.0"
    assert {item.code for item in resolved.outcome.rejected} == {"contract"}
    assert str(grown.resolve(NAME, understanding(first, other)).located.version) == "2.0.0"
    with pytest.raises(NoAnswerError) as caught:
        grown.resolve(f"{NAME}:2.0.0", understanding(first))
    assert "the app was written for another one" in str(caught.value.hint)
    grown.add(typed(make_draft(seed="d"), ["O", "NAME"], outputs=2), "3.0.0")
    assert contract(grown, "3.0.0") not in (first, other)


# Contrib operators

NEEDS = ["MatMulNBits", "MatMulNBits bits=8"]
OPERATORS = [{"domain": "com.microsoft", "name": "MatMulNBits", "opset": 1}]
INT8 = Query(formats=("onnx-int8",))


def needing(draft: Draft, **fields: Any) -> Draft:
    """With 8-bit weights in its second artifact."""
    first, int8 = draft.artifacts
    loads = {"metadata": {"opset": 18}}
    int8 = replace(int8, precision="int8-weights", fields={**int8.fields, **loads, **fields})
    return replace(draft, artifacts=(replace(first, fields={**first.fields, **loads}), int8))


@pytest.fixture
def weights(registry, make_draft) -> Home:
    registry.add(needing(make_draft(), operators=OPERATORS, contrib=NEEDS), "1.0.0")
    return registry


def on_device(registry: Home, query: Query, release: str) -> Resolution:
    return resolution.resolve(registry.store, Ref.parse(NAME), query, Device(release))


def test_an_old_device_is_not_offered_what_it_cannot_load(weights):
    assert recorded(weights, "contrib") == [None, NEEDS] and not owner.verify(weights).damages
    assert on_device(weights, INT8, "1.23").artifact.precision == "int8-weights"
    with pytest.raises(NotFoundError) as caught:
        on_device(weights, INT8, "1.22")
    assert "needs MatMulNBits bits=8, ONNX Runtime 1.22 lacks it, 1.23 has it" in str(caught.value.hint)
    fallback = on_device(weights, Query(), "1.22")
    assert fallback.artifact.precision == "float32"
    assert [each.code for each in fallback.outcome.rejected] == ["contrib"]


def test_needs_that_nobody_recorded_are_not_proven(registry, make_draft):
    registry.add(needing(make_draft(), operators=OPERATORS), "1.0.0")
    with pytest.raises(NotFoundError) as caught:
        on_device(registry, INT8, "1.31")
    assert "has contrib operators that are not recorded" in str(caught.value.hint)


# Metrics

SUITE, OTHER = str(Digest.of(b"suite")), str(Digest.of(b"other"))


def check(name: str, value: float | None, dataset: str | None = SUITE, **more: Any) -> dict[str, Any]:
    direction = {} if name.startswith(("character_recall", "quant_recall_delta")) else {"direction": "higher"}
    value_keys = {"name": name, "metric": name.partition("/")[0], "value": value, "verdict": "info"}
    return value_keys | direction | ({"dataset": dataset} if dataset else {}) | more


MEASURED = (
    check("sts/spearman", 0.83),
    check("sts/spearman/loss", -0.002, direction="lower"),
    check("sts/pearson", None),
    check("sts/kendall", 0.7, OTHER),
    check("size", 400, None),
    check("quant_recall_delta", 0.001),
    check("character_recall/DATE", 0.9),
)


def evaluated(draft: Draft, checks: Sequence[dict[str, Any]] = MEASURED, suite: str | None = SUITE) -> Draft:
    """With these checks of the int8 artifact, judged on the suite."""
    first, int8 = draft.artifacts
    verdict = Verdict("certified", "rule", suite=Digest.parse(suite)) if suite else int8.verdict
    judged = replace(int8, verdict=verdict, fields={**int8.fields, "checks": list(checks)})
    source = {"source": {"id": "acme/base", "digest": str(Digest.of(b"base"))}}
    return replace(draft, artifacts=(first, judged), fields={**draft.fields, **source})


@pytest.fixture
def measured(registry, make_draft) -> Home:
    registry.add(evaluated(make_draft()), "1.0.0")
    return registry


TRUE = (
    "metric['sts/spearman'] >= 0.82 and metric['sts/spearman/loss'] < 0.01",
    "metric['quant_recall_delta'] <= 0.005",
    "metric['character_recall/DATE'] >= 0.9 and recall.DATE >= 0.9",
)
FALSE = (
    "metric['sts/spearman'] > 0.83",
    "metric['sts/pearson'] >= 0",
    "metric['sts/kendall'] >= 0",
    "metric.size >= 0",
    "metric['character_recall/NAME'] >= 0",
)


def asked(registry: Home, text: str) -> bool:
    """The same answer of the catalog here, of a reading elsewhere, and of resolve: true of the int8 artifact."""
    expression = parse(text)
    here, there = LocalCatalog(registry.store).refresh(artifacts=True), Catalog(registry.id)
    there.update(registry.store, artifacts=True)
    paths = [row.path for row in here.query(expression)]
    assert [row.path for row in there.query(expression)] == paths
    assert paths in ([], ["model_int8.onnx"])
    try:
        assert registry.resolve(NAME, Query(where=expression)).artifact.path == "model_int8.onnx"
    except NotFoundError:
        assert not paths
    return bool(paths)


def test_metrics_are_those_of_the_suite_of_the_verdict(measured, monkeypatch):
    expected = {"sts/spearman": 0.83, "sts/spearman/loss": -0.002, "quant_recall_delta": 0.001}
    assert recorded(measured, "metrics") == [None, expected] and not owner.verify(measured).damages
    assert [text for text in (*TRUE, *FALSE) if asked(measured, text)] == [*TRUE]
    monkeypatch.setattr(log, "read_blob", None)  # the index file alone answers
    assert str(measured.resolve(NAME, Query(where=parse(TRUE[0]))).located.version) == "1.0.0"


def test_the_state_line_has_the_first_metrics_of_a_suite_only(registry, make_draft):
    checks = [check(f"m{number}", number) for number in range(MAX_METRICS + 1)]
    registry.add(evaluated(make_draft(), checks), "1.0.0")
    assert recorded(registry, "metrics") == [None, {f"m{number}": number for number in range(MAX_METRICS)}]
    registry.check()
    assert [asked(registry, f"metric.m{MAX_METRICS - less} > 0") for less in (1, 0)] == [True, False]
    registry.add(evaluated(make_draft(), suite=None), "2.0.0")
    assert recorded(registry, "metrics", "2.0.0") == [None, None]


# An index file that somebody edited

WRONG = {"contract": f"sha256:{'0' * 64}", "contrib": ["MatMulNBits"], "metrics": {"sts/spearman": 0.99}}
MALFORMED = {
    "contract": ["", 7, ["sha256:" + 64 * "0"]],
    "contrib": [{}, "MatMulNBits", [8], [None]],
    "metrics": [[], "0.9", {"f1": "0.9"}, {"f1": None}, {"f1": True}],
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_value_is_damage_and_a_malformed_one_an_error(registry, make_draft, key):
    make = {"contract": lambda draft: typed(draft, ["O"]), "contrib": needing, "metrics": evaluated}[key]
    registry.add(make(make_draft()), "1.0.0")
    index = 0 if key == "contract" else 1

    def edit(value: Any) -> None:
        def change(state: Any) -> None:
            state["summaries"]["1.0.0"]["artifacts"][index][key] = value

        Tree(registry.store.root).edit_state(NAME, change)

    edit(WRONG[key])
    assert owner.verify(registry).damages
    with pytest.raises(IntegrityError, match="says other things of manifest"):
        resolution.resolve(registry.store, Ref.parse(NAME), Query(), verify=True)
    for value in MALFORMED[key]:
        edit(value)
        with pytest.raises(IntegrityError, match="cannot be read"):
            registry.resolve(NAME, Query(where=parse("metric.f1 > 0")))


# The profile of a recipe

PROFILES = {
    "profile = mobile": {"0.1.0"},
    "profile != mobile": {"0.2.0"},
    "not profile = mobile": {"0.2.0", "0.3.0"},
    "profile ~ '*'": {"0.1.0", "0.2.0"},
    "profile in (web, mobile)": {"0.1.0", "0.2.0"},
    "profile not in (web)": {"0.1.0"},
    "profile = ''": set(),
}


def test_a_profile_is_asked_for(registry, make_draft):
    """`acme/pii` 0.1.0 of the profile mobile, 0.2.0 of web, and 0.3.0 of none."""
    for number, profile in enumerate(("mobile", "web", None), 1):
        draft = make_draft(seed=str(number))
        recipe = {"profile": profile, "profile_version": 1, "steps": [], "tools": {}}
        fields = {**draft.fields, **({"recipe": recipe} if profile else {})}
        registry.add(replace(draft, fields=fields), f"0.{number}.0")
    for text, versions in PROFILES.items():
        found = LocalCatalog(registry.store).refresh(artifacts=True)
        assert {row.version for row in found.query(parse(text))} == versions, text
    mobile = Query(where=parse("profile = mobile"))
    assert str(registry.resolve("acme/pii:0.1.0", mobile).located.version) == "0.1.0"
    with pytest.raises(NotFoundError):
        registry.resolve("acme/pii:0.2.0", mobile)
