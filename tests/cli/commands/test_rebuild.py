"""`reg rebuild`: what comes out again, and what is said where it does not."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.exports import export_android
from support.registries import owner

from onnxreg.converters.profiles.profile_catalog import find
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.manifest import Source
from onnxreg.schema.manifest.parts import Check

Reg = Callable[..., Any]
Make = Callable[..., Path]
NAME = "acme/x"
FIXTURES = [
    {
        "id": f"private-{n}",
        "text": "the patient w20 w21",
        "gold_spans": [{"start": 12, "end": 19, "label": "NAME"}],
    }
    for n in range(40)
]


def suite_in(directory: Path) -> Path:
    path = directory / "suite.json"
    path.write_text(json.dumps(FIXTURES))
    return path


@pytest.fixture(scope="module")
def drafts(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Draft]:
    """Two exports: one evaluated on a suite, one without INT8."""
    root = tmp_path_factory.mktemp("drafts")
    options = {
        "evaluated": {"eval_suite": suite_in(root), "int8_embeddings": True, "min_gold_chars": 100},
        "plain": {"int8": False},
    }
    for kind in options:
        (root / kind).mkdir()
    return {
        kind: export_android(str(bert), root / kind, name=NAME, options=chosen)
        for kind, chosen in options.items()
    }


def publish(registry: Registry, draft: Draft, change: Callable[[Draft], Draft] = lambda draft: draft) -> str:
    """Publish a copy of a draft, changed on its way."""
    with registry.workspace() as workspace:
        shutil.copytree(draft.root, workspace, dirs_exist_ok=True)
        return str(registry.add(change(replace(draft, root=workspace))).ref)


def with_tools(**tools: str) -> Callable[[Draft], Draft]:
    """As if other versions of some tools had made it."""

    def change(draft: Draft) -> Draft:
        recipe = draft.fields["recipe"]
        fields = {**draft.fields, "recipe": {**recipe, "tools": {**recipe["tools"], **tools}}}
        return replace(draft, fields=fields)

    return change


@pytest.fixture(scope="module")
def published(drafts: dict[str, Draft], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry of both: 0.1.0 evaluated, 0.1.1 said to be made by another onnx."""
    root = tmp_path_factory.mktemp("published")
    registry = Registry(root / "home")
    publish(registry, drafts["evaluated"])
    publish(registry, drafts["plain"], with_tools(onnx="0.0.1", isa="arm64+sve"))
    return root


@pytest.fixture
def registry(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(shutil.copytree(published / "home", tmp_path / "home")))
    return Registry()


def states(done: Mapping[str, Any]) -> set[str]:
    return {file["state"] for file in done["files"]}


@pytest.mark.more
def test_two_directories_two_processes_two_hash_seeds_and_another_registry(
    published: Path, bert: Path, registry: Registry, tmp_path: Path
) -> None:
    """Each process pulls the version from the registry that exported it, and rebuilds it from a copy of the source."""
    running = []
    for seed in ("1", "2"):
        place = tmp_path / f"place-{seed}" / ("deeper" * int(seed))
        checkpoint = shutil.copytree(bert, place / f"checkpoint-{seed}")
        home = place / "registry"
        Registry(home).pull(f"{NAME}:0.1.0", str(published / "home"))
        words = ["--registry", home, "rebuild", f"{NAME}:0.1.0", "--source", checkpoint, "--json"]
        command = [sys.executable, "-m", "onnxreg.cli", *words, "--eval-suite", suite_in(place)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "HOME": str(place)}
        running.append(
            subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, env=environment, cwd=place)
        )
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    first, second = map(json.loads, said)
    assert first == second
    assert (states(first), first["tools"], first["checks"], first["fields"]) == ({"same"}, [], [], [])
    manifest = registry.get(f"{NAME}:0.1.0").manifest
    assert {file["path"] for file in first["files"]} == {entry.path for entry in manifest.all_files()}
    assert {"model.onnx", "model_int8.onnx", "model.ort", "config.json"} <= {
        file["path"] for file in first["files"]
    }


def test_tools_that_differ_are_named_and_nothing_is_published(
    reg: Reg, registry: Registry, bert: Path
) -> None:
    before = registry.log(NAME)
    done = reg("rebuild", f"{NAME}:0.1.1", "--source", bert)
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["onnx", "0.0.1"] in [line[:2] for line in lines]
    assert ["isa", "arm64+sve"] in [line[:2] for line in lines]
    assert f"{NAME}:0.1.1 was rebuilt" in done.out
    assert registry.log(NAME) == before
    assert not owner.verify(registry).unreferenced


def test_differences_of_a_rebuild_are_listed(
    reg: Reg, registry: Registry, bert: Path, drafts: dict[str, Draft]
) -> None:
    def spoil(draft: Draft) -> Draft:
        """Bytes, a missing file, a label and a measurement that the recipe does not give; by another torch."""
        (draft.root / "id2label.json").write_text("{}")
        kept = tuple(each for each in draft.companions if each.path != "tokenizer_config.json")
        (draft.root / "tokenizer_config.json").unlink()
        tokenizer = {"path": ".", "files": ["tokenizer.json"]}
        first, *rest = draft.artifacts
        checks = [dict(check) for check in first.fields["checks"]]
        checks[0]["value"] += 0.5
        changed = replace(first, fields={**first.fields, "checks": checks})
        fields = {**draft.fields, "tokenizer": tokenizer, "labels": list(reversed(draft.fields["labels"]))}
        return with_tools(torch="1.0.0")(
            replace(draft, artifacts=(changed, *rest), companions=kept, fields=fields)
        )

    ref = publish(registry, drafts["plain"], spoil)
    done = reg("rebuild", ref, "--source", bert, "--json")
    assert done.status == 4
    found = done.json
    assert found["matches"] is False
    bad = {file["path"]: file["state"] for file in found["files"] if file["state"] != "same"}
    assert bad == {"id2label.json": "differs", "tokenizer_config.json": "extra"}
    assert [fact["name"] for fact in found["tools"]] == ["torch"]
    assert len(found["checks"]) == 1 and found["checks"][0]["name"].startswith(
        "onnx-android/float32/model.onnx"
    )
    assert {fact["name"].partition("[")[0] for fact in found["fields"]} == {"labels", "tokenizer.files"}
    assert "other tools made it: torch 1.0.0" in done.error["hint"]
    assert "2 files, 1 check" in done.error["message"]


@pytest.mark.more
def test_measured_numbers_are_compared_by_tolerance(
    reg: Reg, registry: Registry, bert: Path, published: Path, drafts: dict[str, Draft]
) -> None:
    """As another machine would measure them: a hair's breadth away everywhere; further away it is a difference."""

    def moved(by: float) -> Callable[[Draft], Draft]:
        def change(draft: Draft) -> Draft:
            for path in draft.root.glob("*.golden.json"):
                value = json.loads(path.read_bytes())
                for case in value["cases"]:
                    for tensor in case["outputs"].values():
                        tensor["data"] = [each + by * tensor["atol"] for each in tensor["data"]]
                path.write_text(json.dumps(value))
            artifacts = [
                replace(
                    each,
                    fields={**each.fields, "checks": [shifted(check, by) for check in each.fields["checks"]]},
                )
                for each in draft.artifacts
            ]
            return replace(draft, artifacts=tuple(artifacts))

        return change

    def shifted(check: Mapping[str, Any], by: float) -> dict[str, Any]:
        if check["value"] is None:
            return dict(check)
        told = {**check, "value": check["value"] + by * 0.002}
        return Check.from_json({key: item for key, item in told.items() if key != "interval"}).to_json()

    suite = suite_in(published)
    words = ("--source", bert, "--eval-suite", suite, "--json")
    near = publish(registry, drafts["evaluated"], moved(0.5))
    done = reg("rebuild", near, *words)
    assert (done.status, states(done.json)) == (0, {"same", "within tolerance"})
    assert {file["role"] for file in done.json["files"] if file["state"] != "same"} >= {"golden"}
    far = publish(registry, drafts["evaluated"], moved(2.0))
    done = reg("rebuild", far, *words)
    assert done.status == 4
    wrong = [file for file in done.json["files"] if file["state"] == "differs"]
    assert {file["role"] for file in wrong} >= {"golden"} and all(file["where"] for file in wrong)
    assert done.json["checks"]


def test_another_source_is_refused_before_anything_is_made(
    reg: Reg, registry: Registry, make_checkpoint: Make, bert: Path, tmp_path: Path
) -> None:
    source = registry.get(f"{NAME}:0.1.1").manifest.source
    assert source is not None
    for other in (make_checkpoint("bert", seed=1), Path(shutil.copytree(bert, tmp_path / "copy"))):
        if other == tmp_path / "copy":
            (other / "tokenizer_config.json").write_text("{}")
        done = reg("rebuild", f"{NAME}:0.1.1", "--source", other)
        assert done.status == 2
        assert str(source.digest) in done.err and "model.safetensors" in done.err
    assert reg("rebuild", f"{NAME}:0.1.1", "--source", tmp_path / "nowhere").status == 3
    needed = reg("rebuild", f"{NAME}:0.1.1")
    assert needed.status == 2 and "--source" in needed.err


def test_the_suite_must_be_the_recorded_one(
    reg: Reg, registry: Registry, bert: Path, tmp_path: Path, published: Path
) -> None:
    needed = reg("rebuild", f"{NAME}:0.1.0", "--source", bert)
    manifest = registry.get(f"{NAME}:0.1.0").manifest
    assert manifest.recipe is not None
    assert needed.status == 2 and manifest.recipe.parameters["recipe"]["evaluation"]["suite"] in needed.err
    other = tmp_path / "other.json"
    other.write_text(json.dumps(FIXTURES[1:]))
    refused = reg("rebuild", f"{NAME}:0.1.0", "--source", bert, "--eval-suite", other)
    assert refused.status == 2 and "the evaluation suite is not what" in refused.err
    unused = reg("rebuild", f"{NAME}:0.1.1", "--source", bert, "--eval-suite", suite_in(published))
    assert unused.status == 2 and "without the evaluation suite" in unused.err


def recorded(root: Path, name: str, source: Source, **changes: Any) -> Draft:
    """A version that says it was made by a recipe, of which nothing is ever run."""
    root.mkdir()
    (root / "model.onnx").write_bytes(b"graph")
    asked = find("android").recipe()
    recipe = {
        "profile": asked.profile,
        "profile_version": asked.profile_version,
        "steps": [],
        "tools": {},
        "parameters": {"recipe": asked.to_json()},
        **changes,
    }
    fields = {"source": source.to_json(), "recipe": recipe}
    return Draft(name, root, (DraftArtifact("onnx-android", "float32", "model.onnx"),), (), fields)


def test_a_version_without_a_recipe_is_refused(
    reg: Reg, registry: Registry, bert: Path, tmp_path: Path
) -> None:
    output = tmp_path / "files"
    published = registry.write_out(f"{NAME}:0.1.1", output)
    source = published.manifest.source
    assert source is not None
    assert reg("add", output / "model.onnx", output / "config.json", "--name", "acme/added").status == 0
    plain = find("android").recipe().to_json()
    cases: dict[str, tuple[dict[str, Any], int, str]] = {
        "acme/newer": ({"profile_version": 99}, 2, "android v99"),
        "acme/foreign": ({"trust_remote_code": True}, 2, "--trust-remote-code"),
        "acme/broken": ({"parameters": {}}, 3, "no recipe to run again"),
        "acme/strange": ({"parameters": {"recipe": {"steps": 18}}}, 4, "not valid at task"),
        "acme/odd": (
            {"parameters": {"recipe": {**plain, "evaluation": {"suite": "x"}}}},
            4,
            "names a file",
        ),
    }
    for name, (changes, _, _) in cases.items():
        registry.add(recorded(tmp_path / name.replace("/", "-"), name, source, **changes))
    for name, (status, said) in {
        "acme/added": (3, "reg add and reg import"),
        **{name: (status, said) for name, (_, status, said) in cases.items()},
    }.items():
        done = reg("rebuild", name, "--source", bert)
        assert (done.status, said in done.err) == (status, True), done.err
