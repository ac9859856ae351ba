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

from onnxreg.cli.export import Profile
from onnxreg.converters.android import AndroidOptions, export_android
from onnxreg.converters.rebuilding import PROFILES, recorded_suite
from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft
from onnxreg.schema.evidence import Check

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


def publish(
    registry: Registry,
    checkpoint: Path,
    change: Callable[[Draft], Draft] = lambda draft: draft,
    **options: Any,
) -> str:
    """Export through the real path, with a draft that is changed on its way."""
    with registry.workspace() as workspace:
        chosen = AndroidOptions(**options)
        draft = export_android(str(checkpoint), workspace, name=NAME, options=chosen)
        return str(registry.add(change(draft)).ref)


def with_tools(**tools: str) -> Callable[[Draft], Draft]:
    """As if other versions of some tools had made it."""

    def change(draft: Draft) -> Draft:
        recipe = draft.fields["recipe"]
        fields = {**draft.fields, "recipe": {**recipe, "tools": {**recipe["tools"], **tools}}}
        return replace(draft, fields=fields)

    return change


@pytest.fixture(scope="module")
def published(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with two exports: 0.1.0 evaluated on a suite, 0.1.1 not and said to be made by another onnx."""
    root = tmp_path_factory.mktemp("published")
    registry = Registry(root / "home")
    publish(registry, bert, eval_suite=suite_in(root), int8_embeddings=True, min_gold_chars=100)
    publish(registry, bert, with_tools(onnx="0.0.1", isa="arm64+sve"), int8=False)
    return root


@pytest.fixture
def registry(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(shutil.copytree(published / "home", tmp_path / "home")))
    return Registry()


def test_every_profile_can_be_rebuilt() -> None:
    assert set(PROFILES) == {profile.value for profile in Profile}


def states(done: Mapping[str, Any]) -> set[str]:
    return {file["state"] for file in done["files"]}


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
    assert {"model.onnx", "model_int8.onnx", "model.ort", "recall_delta.json", "config.json"} <= {
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
    assert not registry.verify().unreferenced


def test_what_does_not_come_out_again(reg: Reg, registry: Registry, bert: Path) -> None:
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

    ref = publish(registry, bert, spoil, int8=False)
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
    shown = reg("rebuild", ref, "--source", bert)
    assert shown.status == 4
    assert "2 files, 1 check" in shown.err


def test_measured_numbers_are_compared_by_tolerance(
    reg: Reg, registry: Registry, bert: Path, published: Path
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
            config = draft.root / "config.json"
            value = json.loads(config.read_bytes())
            value["quant_recall_delta"] = (value.get("quant_recall_delta") or 0.0) + by * 0.002
            if "_onnx_quantization" in value:
                config.write_text(json.dumps(value))
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
    near = publish(registry, bert, moved(0.5), eval_suite=suite)
    done = reg("rebuild", near, *words)
    assert (done.status, states(done.json)) == (0, {"same", "within tolerance"})
    assert {file["role"] for file in done.json["files"] if file["state"] != "same"} >= {"golden"}
    far = publish(registry, bert, moved(2.0), eval_suite=suite)
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
    assert needed.status == 2 and str(recorded_suite(manifest, manifest.recipe)) in needed.err
    other = tmp_path / "other.json"
    other.write_text(json.dumps(FIXTURES[1:]))
    refused = reg("rebuild", f"{NAME}:0.1.0", "--source", bert, "--eval-suite", other)
    assert refused.status == 2 and "another suite" in refused.err
    unused = reg("rebuild", f"{NAME}:0.1.1", "--source", bert, "--eval-suite", suite_in(published))
    assert unused.status == 2 and "not evaluated" in unused.err


def recipe_of(name: str, **changes: Any) -> Callable[[Draft], Draft]:
    def change(draft: Draft) -> Draft:
        recipe = {**draft.fields["recipe"], **changes}
        return replace(draft, name=name, fields={**draft.fields, "recipe": recipe})

    return change


def test_what_has_no_recipe_to_run(reg: Reg, registry: Registry, bert: Path, tmp_path: Path) -> None:
    output = tmp_path / "files"
    registry.write_out(f"{NAME}:0.1.1", output)
    added = reg("add", output / "model.onnx", output / "config.json", "--name", "acme/added")
    assert added.status == 0
    done = reg("rebuild", "acme/added", "--source", bert)
    assert done.status == 3 and "reg add and reg import" in done.err
    newer = publish(registry, bert, recipe_of("acme/newer", profile_version=99), int8=False)
    done = reg("rebuild", newer, "--source", bert)
    assert done.status == 2 and "android v99" in done.err
    foreign = publish(registry, bert, recipe_of("acme/foreign", trust_remote_code=True), int8=False)
    done = reg("rebuild", foreign, "--source", bert)
    assert done.status == 2 and "--trust-remote-code" in done.err
    broken = publish(registry, bert, recipe_of("acme/broken", parameters={}), int8=False)
    assert reg("rebuild", broken, "--source", bert).status == 4
