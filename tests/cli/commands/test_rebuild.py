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

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.profiles.profile_catalog import find
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.manifest import Check

NAME = "acme/x"
EVALUATED, PLAIN = f"{NAME}:0.1.0", f"{NAME}:0.1.1"
SPAN = {"start": 12, "end": 19, "label": "NAME"}
FIXTURES = [{"id": f"private-{n}", "text": "the patient w20 w21", "gold_spans": [SPAN]} for n in range(40)]


def suite_in(directory: Path) -> Path:
    path = directory / "suite.json"
    path.write_text(json.dumps(FIXTURES))
    return path


@pytest.fixture(scope="module")
def drafts(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Draft]:
    """Two exports: one evaluated on a suite, one without INT8."""
    root, made = tmp_path_factory.mktemp("drafts"), {}
    cache = StepCache(root / "cache")
    evaluation = {"eval_suite": suite_in(root), "int8_embeddings": True, "min_gold_chars": 100}
    for kind, options in {"evaluated": evaluation, "plain": {"int8": False}}.items():
        (root / kind).mkdir()
        made[kind] = export_android(str(bert), root / kind, name=NAME, options=options, cache=cache)
    return made


def publish(registry: Registry, draft: Draft, change: Callable[[Draft], Draft] = lambda draft: draft) -> str:
    """Publish a copy of a draft, changed on its way."""
    with registry.workspace() as workspace:
        shutil.copytree(draft.root, workspace, dirs_exist_ok=True)
        return str(registry.add(change(replace(draft, root=workspace))).ref)


def with_tools(**tools: str) -> Callable[[Draft], Draft]:
    """As if other versions of some tools had made it."""

    def change(draft: Draft) -> Draft:
        recipe = draft.fields["recipe"]
        return replace(
            draft, fields={**draft.fields, "recipe": {**recipe, "tools": {**recipe["tools"], **tools}}}
        )

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
    published, bert, registry, tmp_path
):
    """Each process pulls the version from the registry that exported it, and rebuilds it from a copy of the source."""
    running = []
    for seed in ("1", "2"):
        place = tmp_path / f"place-{seed}" / ("deeper" * int(seed))
        checkpoint = shutil.copytree(bert, place / f"checkpoint-{seed}")
        Registry(place / "registry").pull(EVALUATED, str(published / "home"))
        words = ["--registry", place / "registry", "rebuild", EVALUATED, "--source", checkpoint, "--json"]
        command = [sys.executable, "-m", "onnxreg.cli", *words, "--eval-suite", suite_in(place)]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "HOME": str(place)}
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=place))
    first, second = (json.loads(process.communicate()[0]) for process in running)
    assert [process.returncode for process in running] == [0, 0] and first == second
    assert (states(first), first["tools"], first["checks"], first["fields"]) == ({"same"}, [], [], [])
    paths = {file["path"] for file in first["files"]}
    assert paths == {entry.path for entry in registry.get(EVALUATED).manifest.all_files()}
    assert {"model.onnx", "model_int8.onnx", "model.ort", "config.json"} <= paths


def test_tools_that_differ_are_named_and_nothing_is_published(reg, registry, bert):
    before = registry.log(NAME)
    done = reg("rebuild", PLAIN, "--source", bert)
    assert done.ended(0, f"{PLAIN} was rebuilt")
    tools = [line.split()[:2] for line in done.out.splitlines()]
    assert ["onnx", "0.0.1"] in tools and ["isa", "arm64+sve"] in tools
    assert registry.log(NAME) == before and not owner.verify(registry).unreferenced


def test_differences_of_a_rebuild_are_listed(reg, registry, bert, drafts):
    def spoil(draft: Draft) -> Draft:
        """Bytes, a missing file, a label and a measurement that the recipe does not give; by another torch."""
        (draft.root / "id2label.json").write_text("{}")
        (draft.root / "tokenizer_config.json").unlink()
        kept = tuple(each for each in draft.companions if each.path != "tokenizer_config.json")
        first, *others = draft.artifacts
        checks = [dict(check) for check in first.fields["checks"]]
        checks[0]["value"] += 0.5
        changed = replace(first, fields={**first.fields, "checks": checks})
        tokenizer = {"path": ".", "files": ["tokenizer.json"]}
        fields = {**draft.fields, "tokenizer": tokenizer, "labels": list(reversed(draft.fields["labels"]))}
        made = replace(draft, artifacts=(changed, *others), companions=kept, fields=fields)
        return with_tools(torch="1.0.0")(made)

    done = reg("rebuild", publish(registry, drafts["plain"], spoil), "--source", bert, "--json")
    found = done.json
    assert (done.status, found["matches"]) == (4, False)
    bad = {file["path"]: file["state"] for file in found["files"] if file["state"] != "same"}
    assert bad == {"id2label.json": "differs", "tokenizer_config.json": "extra"}
    assert [fact["name"] for fact in found["tools"]] == ["torch"]
    (check,) = found["checks"]
    assert check["name"].startswith("artifacts[onnx-android/float32/model.onnx]")
    assert {fact["name"].partition("[")[0] for fact in found["fields"]} == {"labels", "tokenizer.files"}
    assert "other tools made it: torch 1.0.0" in done.error["hint"]
    assert "2 files, 1 check" in done.error["message"]


def moved(by: float) -> Callable[[Draft], Draft]:
    """As another machine would measure: everything is that many tolerances away."""

    def shifted(check: Mapping[str, Any]) -> dict[str, Any]:
        if check["value"] is None:
            return dict(check)
        changed = {**check, "value": check["value"] + by * 0.002}
        return Check.from_json({key: item for key, item in changed.items() if key != "interval"}).to_json()

    def change(draft: Draft) -> Draft:
        for path in draft.root.glob("*.golden.json"):
            value = json.loads(path.read_bytes())
            for case in value["cases"]:
                for tensor in case["outputs"].values():
                    tensor["data"] = [each + by * tensor["atol"] for each in tensor["data"]]
            path.write_text(json.dumps(value))
        fields = [
            {**each.fields, "checks": list(map(shifted, each.fields["checks"]))} for each in draft.artifacts
        ]
        both = zip(draft.artifacts, fields, strict=True)
        return replace(draft, artifacts=tuple(replace(each, fields=about) for each, about in both))

    return change


@pytest.mark.more
def test_measured_numbers_are_compared_by_tolerance(reg, registry, bert, published, drafts):
    """A hair's breadth away is the same; further away is a difference."""
    words = ("--source", bert, "--eval-suite", suite_in(published), "--json")
    done = reg("rebuild", publish(registry, drafts["evaluated"], moved(0.5)), *words)
    assert (done.status, states(done.json)) == (0, {"same", "within tolerance"})
    assert {file["role"] for file in done.json["files"] if file["state"] != "same"} >= {"golden"}
    done = reg("rebuild", publish(registry, drafts["evaluated"], moved(2.0)), *words)
    wrong = [file for file in done.json["files"] if file["state"] == "differs"]
    assert {file["role"] for file in wrong} >= {"golden"} and all(file["where"] for file in wrong)
    assert done.status == 4 and done.json["checks"]


def test_another_source_or_suite_is_refused_before_anything_is_made(
    reg, registry, make_checkpoint, bert, tmp_path
):
    source = registry.get(PLAIN).manifest.source
    recipe = registry.get(EVALUATED).manifest.recipe
    assert source is not None and recipe is not None
    copy = Path(shutil.copytree(bert, tmp_path / "copy"))
    (copy / "tokenizer_config.json").write_text("{}")
    for other in (make_checkpoint("bert", seed=1), copy):
        assert reg("rebuild", PLAIN, "--source", other).ended(2, source.digest, "model.safetensors")
    assert reg("rebuild", PLAIN, "--source", "./nowhere").status == 3
    assert reg("rebuild", PLAIN).ended(2, "--source")
    suite = recipe.parameters["recipe"]["evaluation"]["suite"]
    assert reg("rebuild", EVALUATED, "--source", bert).ended(2, suite)
    Path("other.json").write_text(json.dumps(FIXTURES[1:]))
    words = ("--source", bert, "--eval-suite", "other.json")
    assert reg("rebuild", EVALUATED, *words).ended(2, "the evaluation suite is not what")
    assert reg("rebuild", PLAIN, *words).ended(2, "without the evaluation suite")


ANDROID = find("android").recipe()
RECORDED: dict[str, tuple[dict[str, Any], int, str]] = {
    "newer": ({"profile_version": 99}, 2, "android v99"),
    "foreign": ({"trust_remote_code": True}, 2, "--trust-remote-code"),
    "broken": ({"parameters": {}}, 3, "no recipe to run again"),
    "strange": ({"parameters": {"recipe": {"steps": 18}}}, 4, "not valid at task"),
    "odd": (
        {"parameters": {"recipe": {**ANDROID.to_json(), "evaluation": {"suite": "x"}}}},
        4,
        "names a file",
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_a_version_without_a_recipe_is_refused(reg, registry, bert, tmp_path, case):
    """A version that says it was made by a recipe, of which nothing is ever run."""
    changes, status, said = RECORDED[case]
    source = registry.get(PLAIN).manifest.source
    assert source is not None
    (tmp_path / case).mkdir()
    (tmp_path / case / "model.onnx").write_bytes(b"graph")
    about = {"profile": ANDROID.profile, "profile_version": ANDROID.profile_version, "steps": [], "tools": {}}
    recipe = {**about, "parameters": {"recipe": ANDROID.to_json()}, **changes}
    artifacts = (DraftArtifact("onnx-android", "float32", "model.onnx"),)
    fields = {"source": source.to_json(), "recipe": recipe}
    registry.add(Draft(f"acme/{case}", tmp_path / case, artifacts, (), fields))
    assert reg("rebuild", f"acme/{case}", "--source", bert).ended(status, said)


def test_a_version_that_was_added_is_not_rebuilt(reg, registry, bert, tmp_path, reader_in_process):
    registry.write_out(PLAIN, tmp_path / "out")
    assert reg("add", "out/model.onnx", "out/config.json", "--name", "acme/added").status == 0
    assert reg("rebuild", "acme/added", "--source", bert).ended(3, "reg add and reg import")
