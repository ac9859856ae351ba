"""`reg certificates`: what a version's certificates say, and whether its item scores give the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.registry import Registry
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft

Reg = Callable[..., Any]
Make = Callable[..., Path]
PATH = "certificates/model_int8.onnx.json"
SCORES = "certificates/model_int8.onnx.mean_cosine.csv"


@pytest.fixture(scope="module")
def drafts(make_checkpoint: Make, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Draft]:
    """Two exports of one encoder: without item scores, and with them."""
    root = tmp_path_factory.mktemp("certify")
    rows = [{"text": f"w{10 + n % 50} w{10 + n // 50}", "group": f"document {n // 2}"} for n in range(500)]
    (root / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    drafts = {}
    for item_scores in (False, True):
        evaluation = {"suite": str(root / "suite.jsonl"), "name": "texts", "item_scores": item_scores}
        value = {
            "task": "pooling",
            "steps": [
                {"name": "fp32", "pass": "OnnxConversion"},
                {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"},
            ],
            "outputs": [{"step": "fp32", "path": "model.onnx"}, {"step": "int8", "path": "model_int8.onnx"}],
            "evaluation": evaluation,
        }
        workspace = root / str(item_scores)
        workspace.mkdir()
        plan = plan_export(RecipeFile.from_json(value), str(make_checkpoint("bert", "")), "acme/x")
        drafts[item_scores] = execute(plan, workspace)
    return drafts


@pytest.fixture
def publish(
    drafts: dict[bool, Draft], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Registry]:
    """Publish a copy of a draft, one of its files edited."""
    registry = Registry(tmp_path / "home", create=True)
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))

    def run(item_scores: bool, path: str = "", edit: Callable[[bytes], bytes] = bytes) -> Registry:
        draft = drafts[item_scores]
        with registry.workspace() as workspace:
            for name in draft.paths():
                (workspace / name).parent.mkdir(parents=True, exist_ok=True)
                data = (draft.root / name).read_bytes()
                (workspace / name).write_bytes(edit(data) if name == path else data)
            registry.add(replace(draft, root=workspace))
        return registry

    return run


def test_every_figure_is_listed(reg: Reg, publish: Callable[..., Registry]) -> None:
    publish(False)
    shown = reg("certificates", "acme/x")
    assert shown.status == 0
    assert "mean_cosine v1" in shown.out and "certified" in shown.out
    (certificate,) = reg("certificates", "acme/x", "--json").json["certificates"]
    assert (certificate["artifact"], certificate["state"]) == ("model_int8.onnx", "certified")
    assert certificate["differences"] is None
    (metric,) = certificate["metrics"]
    assert (metric["metric"], metric["samples"], metric["groups"]) == ("mean_cosine", 500, 250)
    assert 0 <= metric["loss"] < metric["limit"] == 0.01


def test_the_checks_of_the_manifest_have_the_name_of_the_suite(publish: Callable[..., Registry]) -> None:
    artifact = publish(False).get("acme/x").manifest.artifacts[1]
    names = {check.name: check.direction for check in artifact.checks if check.name.startswith("texts/")}
    assert names == {"texts/mean_cosine": "higher", "texts/mean_cosine/loss": "lower"}


def test_a_query_finds_the_artifact_by_its_metric(reg: Reg, publish: Callable[..., Registry]) -> None:
    publish(False)
    for expression, count in (
        ("metric['texts/mean_cosine'] >= 0.5", 1),
        ("metric['texts/mean_cosine/loss'] < 0.01", 1),
        ("metric['texts/mean_cosine'] > 1.5", 0),
    ):
        assert len(reg("query", expression, "--json").json["matches"]) == count


def test_item_scores_give_the_same_verdict(reg: Reg, publish: Callable[..., Registry]) -> None:
    publish(True)
    done = reg("certificates", "acme/x", "--recompute")
    assert done.status == 0 and "1 certificates as recorded" in done.out
    assert reg("certificates", "acme/x", "--recompute", "--json").json["certificates"][0]["differences"] == []


def by_no_rule(data: bytes) -> bytes:
    value = canonical.decode(data, "certificate")
    value["metrics"][0]["rule"] = "loss/none"
    return canonical.encode(value) + b"\n"


def test_a_later_refusal_of_the_bytes_is_said(
    reg: Reg, publish: Callable[..., Registry], tmp_path: Path
) -> None:
    registry = publish(False)
    digest = registry.get("acme/x").manifest.artifacts[1].digest
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(digest)}
    value |= {"suite": str(Digest.of(b"field")), "state": "refused"}
    owner.attest(registry, "acme/x", json.dumps(value).encode())
    (certificate,) = reg("certificates", "acme/x", "--json").json["certificates"]
    assert (certificate["state"], certificate["stated"]) == ("refused", "certified")
    assert "refused" in reg("certificates", "acme/x").out
    assert "refused" in reg("show", "acme/x", "--json").err


def test_item_scores_are_numbers_in_an_order_of_their_own(drafts: dict[bool, Draft]) -> None:
    header, *rows = (drafts[True].root / SCORES).read_text().splitlines()
    assert header == "group,parent:cosine,candidate:cosine"
    pairs = [tuple(map(float, row.split(","))) for row in rows]
    assert len(pairs) == 500 and [group for group, *_ in pairs] == [n // 2 for n in range(500)]
    groups = [pairs[n : n + 2] for n in range(0, 500, 2)]
    scores = [[row[1:] for row in group] for group in groups]
    assert scores == sorted(sorted(group) for group in scores)


def test_without_item_scores_it_says_that_it_cannot(reg: Reg, publish: Callable[..., Registry]) -> None:
    publish(False)
    done = reg("certificates", "acme/x", "--recompute")
    assert done.status == 3
    assert "no item scores" in done.err and "--item-scores" in done.err


def edit_scores(data: bytes) -> bytes:
    header, _, *rows = data.splitlines(keepends=True)
    return b"".join([header, b"0,1,0.5\n", *rows])


def raise_limit(data: bytes) -> bytes:
    value = canonical.decode(data, "certificate")
    value["metrics"][0]["loss"] = 0.0
    return canonical.encode(value) + b"\n"


def other_artifact(data: bytes) -> bytes:
    value = canonical.decode(data, "certificate")
    return canonical.encode({**value, "artifact": str(Digest.of(b"other"))})


def refusal(data: bytes) -> bytes:
    return canonical.encode({**canonical.decode(data, "certificate"), "state": "refused"})


@pytest.mark.parametrize(
    ("path", "edit", "message"),
    [
        (SCORES, edit_scores, "blob"),
        (PATH, raise_limit, "loss is 0.0, recomputed"),
        (PATH, by_no_rule, "do not fit the metric"),
        (PATH, other_artifact, "another artifact or suite"),
        (PATH, refusal, "says refused, the manifest says certified"),
    ],
    ids=["scores", "loss", "rule", "artifact", "state"],
)
def test_edits_are_noticed(
    reg: Reg, publish: Callable[..., Registry], path: str, edit: Callable[[bytes], bytes], message: str
) -> None:
    publish(True, path, edit)
    done = reg("certificates", "acme/x", "--recompute")
    assert done.status in (3, 4) and message in done.err


def test_a_version_without_certificates_says_so(
    reg: Reg, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", str(home))
    done = reg("certificates", "acme/pii:0.1.0")
    assert done.status == 3 and "has no certificates" in done.err
