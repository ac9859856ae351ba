"""`ls`, `show`, `resolve`, `diff`, `log`, `verify`, `schema`: what they print, for people and for programs."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.formats import json_schema
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

Reg = Callable[..., Any]


@pytest.fixture(autouse=True)
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(home))
    return Registry(home)


MALFORMED: dict[str, tuple[Callable[[Any], None], str]] = {
    "a wrong type": (lambda value: value.update(license=5), "is not valid at license"),
    "a key is missing": (lambda value: value["artifacts"][0].pop("path"), "is not valid at artifacts.0.path"),
    "a rule is broken": (
        lambda value: value["artifacts"][0].update(certification={"state": "certified"}),
        "certified without evidence of the artifact",
    ),
    "another model": (lambda value: value.update(name="other"), "is the manifest of other"),
    "another version": (lambda value: value.update(format_version=3), "this build reads 1 and 2"),
}


@pytest.mark.parametrize(("change", "reason"), MALFORMED.values(), ids=MALFORMED.keys())
def test_show_refuses_a_malformed_manifest(
    reg: Reg, registry: Registry, tmp_path: Path, change: Callable[[Any], None], reason: str
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"model")
    registry.add(Draft("small", tmp_path, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    Tree(registry.store.root).plant_manifest("small", change)
    for words in (("show", "small"), ("show", "small", "--json"), ("diff", "small", "small")):
        shown = reg(*words)
        assert (shown.status, reason in shown.err) == (4, True), shown.err


def test_ls(reg: Reg) -> None:
    assert reg("ls").out == (
        "NAME      NEWEST  VERSIONS  CHANNELS\n"
        "acme/pii  0.2.0          2  stable=0.1.0\n"
        "tiny      0.1.0          1\n"
    )
    assert reg("ls", "--json").json == {
        "models": [
            {"name": "acme/pii", "versions": 2, "newest": "0.2.0", "channels": {"stable": "0.1.0"}},
            {"name": "tiny", "versions": 1, "newest": "0.1.0", "channels": {}},
        ]
    }


def test_ls_of_a_model(reg: Reg, registry: Registry) -> None:
    registry.yank("acme/pii:0.2.0", "wrong labels")
    listed = reg("ls", "acme/pii", "--json").json
    assert (listed["name"], listed["registry"]) == ("acme/pii", registry.id)
    new, old = listed["versions"]
    assert (new["version"], new["yanked"], new["channels"]) == ("0.2.0", True, [])
    published = registry.get("acme/pii:0.1.0")
    size = sum({entry.digest: entry.size for entry in published.manifest.all_files()}.values())
    assert old == {
        "version": "0.1.0",
        "manifest": str(published.digest),
        "size": size,
        "state": "refused",
        "states": {"model.onnx": "unknown", "model_int8.onnx": "refused"},
        "yanked": False,
        "held": None,
        "channels": ["stable"],
    }
    header, first, second = reg("ls", "acme/pii").out.splitlines()
    assert header.split() == ["VERSION", "MANIFEST", "SIZE", "CHANNELS", "STATE"]
    assert first.split() == ["0.2.0", new["manifest"][7:19], "yanked"]
    assert second.split() == [
        "0.1.0",
        old["manifest"][7:19],
        "43.8",
        "kB",
        "stable",
        "1",
        "of",
        "2",
        "refused",
    ]


def test_ls_of_a_registry_without_models(reg: Reg, tmp_path: Path) -> None:
    Registry(tmp_path / "empty")
    assert reg("--registry", "empty", "ls").out.startswith("empty holds no models yet: reg export")
    seen = reg("ls", "--remote", "./empty").out
    assert "holds no models yet: reg push brings some" in seen
    assert reg("--registry", "empty", "ls", "--json").json == {"models": []}


def test_show_json_is_the_manifest_byte_for_byte(reg: Reg, registry: Registry) -> None:
    shown = reg("show", "acme/pii", "--json").out.encode()
    published = registry.get("acme/pii")
    assert shown == published.data
    assert hashlib.sha256(shown).hexdigest() == published.digest.hex


def test_show(reg: Reg) -> None:
    shown = reg("show", "acme/pii:0.1.0", "--full").out
    for line in (
        "acme/pii:0.1.0",
        "source   acme/pii-base@main",
        "labels   2: O, B-NAME",
        "recipe   android v1",
        "note: model.onnx: outside the mobile-safe operators: Einsum",
        "  such operators run on the CPU; NNAPI and XNNPACK may leave them to it",
        "warning: model.onnx: opset 18 needs ORT 1.14",
        "refused by G4/point: model_int8.onnx",
        "  recall of NAME falls by 0.02",
        "skipped: ort: onnxruntime is not installed",
    ):
        assert line in shown.splitlines()
    rows = [line.split() for line in shown.splitlines()]
    assert ["model_int8.onnx", "onnx-int8", "int8", "8.8", "kB", "refused"] in rows
    assert ["model_int8.onnx", "quant_recall_delta", "0.02", "0.005", "120", "fail"] in rows
    assert ["recall_delta.json", "report", "14", "B"] in rows


def test_resolve(reg: Reg) -> None:
    found = reg("resolve", "acme/pii:stable", "--format", "onnx-int8", "--json").json
    assert (found["name"], found["version"]) == ("acme/pii", "0.1.0")
    artifact = found["artifact"]
    assert (artifact["format"], artifact["precision"], artifact["state"]) == ("onnx-int8", "int8", "refused")
    assert found["rejected"] == [
        {
            "artifact": "model.onnx",
            "version": "0.1.0",
            "code": "format",
            "detail": "is onnx-android, wanted onnx-int8",
        }
    ]
    assert found["size"] == sum(entry["size"] for entry in found["files"])
    main, *companions = found["files"]
    assert main["digest"] == artifact["digest"]
    data = Path(main["url"].removeprefix("file://")).read_bytes()
    assert hashlib.sha256(data).hexdigest() == artifact["digest"].removeprefix("sha256:")
    assert [entry["role"] for entry in companions] == ["config", "report"]
    shown = reg("resolve", "acme/pii:stable", "--format", "onnx-int8").out
    assert shown.startswith("acme/pii:0.1.0  onnx-int8  int8  refused\n")
    assert "model.onnx  format  is onnx-android, wanted onnx-int8" in shown


def test_resolve_says_why_nothing_answers(reg: Reg) -> None:
    done = reg("resolve", "acme/pii", "--precision", "int4")
    assert done.status == 3
    assert "model.onnx is float32, wanted int4" in done.err


def test_diff(reg: Reg) -> None:
    found = reg("diff", "acme/pii:0.1.0", "acme/pii", "--json").json
    keys = {"format", "format_version", "compatible", "summary", "counts", "changes", "overview"}
    assert set(found) == keys
    label = next(change for change in found["changes"] if change["kind"] == "label-added")
    assert (label["old"], label["new"]) == (None, "I-NAME")
    shown = reg("diff", "acme/pii:0.1.0", "acme/pii", "--full").out
    assert " ".join(shown.splitlines()[:2]) == found["summary"]
    assert f"  {label['message']}" in shown.splitlines()


def test_diff_of_the_same_is_empty(reg: Reg) -> None:
    assert reg("diff", "tiny", "tiny").out == "The two versions do not differ.\n"
    assert reg("diff", "tiny", "tiny", "--json").json["changes"] == []


def test_log(reg: Reg, registry: Registry) -> None:
    found = reg("log", "acme/pii", "--json").json
    assert (found["name"], found["registry"]) == ("acme/pii", registry.id)
    kinds = [line["event"]["kind"] for line in found["lines"]]
    assert kinds == ["publish", "publish", "tag"]
    assert found["head"] == found["lines"][-1]["digest"]
    for before, after in zip(found["lines"], found["lines"][1:], strict=False):
        assert after["prev"] == before["digest"]
    header, first, *_ = reg("log", "acme/pii").out.splitlines()
    assert header.split() == ["SEQ", "TIME", "EVENT", "WHAT", "ACTOR", "REASON"]
    assert first.split()[2:4] == ["publish", "0.1.0"]
    assert first.split()[-2:] == ["ada", "first"]


def test_log_shows_where_a_line_came_from(reg: Reg, registry: Registry) -> None:
    assert reg("--registry", "copy", "pull", "tiny", registry.store.root).status == 0
    (line,) = reg("--registry", "copy", "log", "tiny", "--json").json["lines"]
    (original,) = reg("log", "tiny", "--json").json["lines"]
    assert line["via"].pop("time") >= line["event"]["time"]
    assert line["via"] == {"registry": registry.id, "seq": 1, "head": original["digest"]}
    assert line["event"] == original["event"]


def test_verify(reg: Reg) -> None:
    found = reg("verify", "--json").json
    assert (found["ok"], found["models"], found["versions"], found["damages"]) == (True, 2, 3, [])
    assert reg("verify", "acme/pii:0.1.0", "--json").json["versions"] == 1
    assert reg("verify").out.startswith("read 2 models, 3 versions, ")


@pytest.mark.parametrize("name", json_schema.MODELS)
def test_schema(reg: Reg, name: str) -> None:
    assert reg("builtin", "schemas", name).out == json_schema.text(name)
    assert json.loads(json_schema.text(name))["$id"] == f"urn:onnxreg:{name}"
    assert name in reg("builtin", "schemas").out.splitlines()


@pytest.mark.parametrize(
    ("words", "key", "told"),
    [
        (["remote", "list"], "remotes", "there are no remotes: reg remote add"),
        (["ls"], "models", "holds no models yet"),
        (["query"], "matches", "no artifact fits"),
        (["verify", "--signatures"], "versions", "there are no versions yet"),
    ],
    ids=lambda value: str(value),
)
def test_an_empty_list_says_so(words: list[str], key: str, told: str, reg: Reg, tmp_path: Path) -> None:
    Registry(tmp_path / "empty")
    assert told in reg("--registry", "empty", *words).out
    assert reg("--registry", "empty", *words, "--json").json[key] == []


def test_remotes_need_no_registry(reg: Reg) -> None:
    assert "there are no remotes" in reg("--registry", "nowhere", "remote", "list").out
    assert not Path("nowhere").exists()


def test_a_version_made_from_local_files_is_not_its_own_source(
    reg: Reg, tmp_path: Path, draft: Callable[..., Any]
) -> None:
    made = draft(tmp_path / "w")
    source = {"id": made.name, "digest": str(Digest.of(b"files"))}
    Registry(tmp_path / "r").add(replace(made, fields={**made.fields, "source": source}))
    assert (
        f"source   local files, digest {Digest.of(b'files').short}..."
        in reg("--registry", "r", "show", made.name).out
    )
