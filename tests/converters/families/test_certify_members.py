"""Members of a family with certificates: judged on suites of their own, as every other artifact is."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.families import small

from onnxreg.cli.main import main
from onnxreg.converters.evaluation import evaluate
from onnxreg.converters.families.family_plan import plan_family
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.registry import Registry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.manifest.draft import Draft

ROWS = 24
SUITES = {
    "backbone": {"suite": "field.npz", "item_scores": True},
    "head:bean": {"suite": "beans.npz", "metrics": [{"metric": "top_1", "limit": 1.0}], "item_scores": True},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("family")
    small.write(root)
    draw = np.random.default_rng(9)
    np.savez(root / "field.npz", input=small.images(ROWS, 11), labels=draw.integers(0, 4, ROWS))
    np.savez(root / "beans.npz", input=small.images(ROWS, 12), labels=draw.integers(0, 3, ROWS))
    return root


def document(certify: dict[str, Any]) -> Any:
    return small.document(ood=None, evaluation=None, variants={"head": ["int8"]}, certify=certify)


@pytest.fixture(scope="module")
def exported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Draft:
    workspace = tmp_path_factory.mktemp("workspace")
    return small.export(document(SUITES), root, workspace)


def certificates(draft: Draft) -> dict[str, Any]:
    return {
        item.path: json.loads((draft.root / item.path).read_bytes())
        for item in draft.companions
        if item.role == "certificate"
    }


def test_each_reduced_precision_has_a_certificate(exported: Draft, root: Path) -> None:
    documents = certificates(exported)
    judged = ("backbone-fp16", "backbone-int8", "heads/bean-int8")
    assert set(documents) == {f"certificates/{path}.onnx.json" for path in judged}
    head = documents["certificates/heads/bean-int8.onnx.json"]
    parent = exported.root / "heads/bean-fp32.onnx"
    assert head["parent"] == str(Digest.of(parent.read_bytes()))
    assert head["suite"] == str(Digest.of((root / "beans.npz").read_bytes()))
    (record,) = head["metrics"]
    assert (record["metric"], record["samples"]) == ("top_1", ROWS)
    states = {item.path: item.verdict.state for item in exported.artifacts}
    assert states["heads/bean-int8.onnx"] != "unknown" or head["reasons"]
    assert states["heads/corn-int8.onnx"] == "unknown"


@pytest.mark.more
def test_a_head_that_lost_its_weights_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head whose INT8 graph answers wrongly, judged on rows that the float32 one gets right."""
    images = small.images(200, 13)
    draft = small.export(document({}), root, tmp_path / "first")
    embeddings = load_session(draft.root / "backbone-fp32.onnx").run(["embedding"], {"input": images})[0]
    logits = load_session(draft.root / "heads/bean-fp32.onnx").run(None, {"embedding": embeddings})[0]
    np.savez(tmp_path / "right.npz", input=images, labels=logits.argmax(1))
    wrong = lambda path, *_: lambda feed: {"logits": -load_session(path).run(None, feed)[0]}
    monkeypatch.setattr(evaluate, "artifact_runner", wrong)
    request = {"head:bean": {"suite": str(tmp_path / "right.npz")}}
    refused = small.export(document(request), root, tmp_path / "second")
    states = {item.path: item.verdict.state for item in refused.artifacts}
    assert states["heads/bean-int8.onnx"] == "refused"


def test_published_scores_give_the_verdict_again(exported: Draft, tmp_path: Path, capsys: Any) -> None:
    registry = Registry(tmp_path / "home")
    registry.add(replace(exported, root=Path(shutil.copytree(exported.root, tmp_path / "copy"))))
    home = ["--registry", str(tmp_path / "home")]
    assert main([*home, "certificates", "acme/crops", "--recompute", "--json"]) == 0
    assert "bean-int8.onnx" in capsys.readouterr().out


def test_the_record_has_digests_in_place_of_paths(exported: Draft, root: Path) -> None:
    recorded = exported.fields["recipe"]["parameters"]["family"]["certify"]
    assert recorded["backbone"]["suite"] == str(Digest.of((root / "field.npz").read_bytes()))
    assert "field.npz" not in json.dumps(recorded)
    plain = plan_family(document({}), root).recorded
    assert "certify" not in plain


@pytest.mark.parametrize(
    ("certify", "kind", "message"),
    [
        ({"head:ben": {"suite": "beans.npz"}}, InputError, "neither the backbone nor a head"),
        ({"ood": {"suite": "beans.npz"}}, InputError, "neither the backbone nor a head"),
        ({"backbone": {"suite": "absent.npz"}}, NotFoundError, "no evaluation suite"),
        ({"backbone": {"suite": "swin/config.json"}}, InputError, r"config\.json"),
        ({"backbone": {"suite": "field.npz", "metrics": [{"metric": "sts"}]}}, InputError, "sts"),
        ({"backbone": {"suite": "twice.npz"}}, InputError, "the same row was used before"),
        ({"head:bean": {"suite": "field.npz"}}, InputError, "has the class 3"),
        ({"backbone": {"suite": "field.npz", "artifacts": ["x.onnx"]}}, InputError, "x.onnx"),
    ],
)
def test_bad_suites(
    root: Path, tmp_path: Path, certify: dict[str, Any], kind: type[Exception], message: str
) -> None:
    np.savez(root / "twice.npz", input=np.repeat(small.images(1, 1), 2, 0), labels=np.zeros(2, np.int64))
    with pytest.raises(kind, match=message):
        small.export(document(certify), root, tmp_path)
