"""`reg import`: what `pull --output` wrote is taken in again; and a repository of the Hub, by the real client."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.sampling import sampled
from support.servers.hub import Hub, Repository, in_lfs, running

from onnxreg.converters.importers.adopt import adopt
from onnxreg.registry import Registry
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.vocabulary import FILENAME

pytestmark = pytest.mark.usefixtures("reader_in_process")
BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert"
BACK = ("--registry", "other", "import", "out", "--name", "acme/bert")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A registry with one version, which lies in the directory `out` beside it, and its manifest's digest."""
    root = tmp_path_factory.mktemp("written")
    (root / "workspace").mkdir()
    registry = Registry(root / "r")
    published = registry.add(adopt(BERT, root / "workspace", name="acme/bert")[0])
    registry.write_out(Ref("acme/bert", digest=published.digest), root / "out")
    return root, str(published.digest)


@pytest.fixture
def digest(written: tuple[Path, str], tmp_path: Path) -> str:
    root, found = written
    for name in ("out", "r"):
        shutil.copytree(root / name, tmp_path / name)
    return found


def test_the_same_files_give_the_same_digest(reg, digest):
    """Also if another tool laid the manifest out in another way, and beside a file that it does not name."""
    done = reg(*BACK, "--version", "1.0.0", "--json").json
    assert (done["ref"], done["digest"], done["differences"]) == ("acme/bert:1.0.0", digest, [])
    assert reg("--registry", "other", "verify").status == 0
    for words in (BACK, ("--registry", "r", *BACK[2:])):
        assert reg(*words).ended(0, "nothing new")
    edit(lambda value: None, canonical=False)(Path("out"))
    Path("out/notes.txt").write_text("mine")
    done = reg("--registry", "third", *BACK[2:], "--json").json
    assert (done["digest"], [item["path"] for item in done["differences"]]) == (digest, ["notes.txt"])
    shown = reg("--registry", "fourth", *BACK[2:]).out.splitlines()
    assert [line.split()[0] for line in shown if "notes.txt" in line] == ["notes.txt"]
    for words in (["out"], ["out/model.onnx", f"out/{FILENAME}"]):
        done = reg("--registry", "other", "add", *words, "--name", "acme/bert")
        assert done.ended(2, "reg import ", " --name NAME")


def edit(change: Callable[[Any], object], canonical: bool = True) -> Callable[[Path], object]:
    def write(directory: Path) -> None:
        value = json.loads((directory / FILENAME).read_bytes())
        change(value)
        style: dict[str, Any] = {"separators": (",", ":"), "sort_keys": True} if canonical else {"indent": 2}
        (directory / FILENAME).write_text(json.dumps(value, ensure_ascii=False, **style))

    return write


def link_out(directory: Path) -> None:
    (directory / "config.json").rename(directory.parent / "elsewhere.json")
    (directory / "config.json").symlink_to("../elsewhere.json")


STATED = {"state": "certified"}
FOREIGN = {"format": "transformersjs", "path": "m"}
SPOILED: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "a companion that was edited": (lambda out: (out / "config.json").write_bytes(b"{} "), 4, "config.json is not the file that"),
    "weights that were replaced": (lambda out: shutil.copy(out / "model.onnx", out / "model_fp16.onnx"), 4, "model_fp16.onnx is not the file that"),
    "a model that was cut": (lambda out: (out / "model.onnx").write_bytes(b"\x08\x09"), 2, "model.onnx is not an ONNX file"),
    "a file that is missing": (lambda out: (out / "model.ort").unlink(), 2, "which is missing"),
    "a verdict by another tool": (edit(lambda value: value["artifacts"][0].update(certification=STATED), False), 2, f"{FILENAME} was edited by another tool: "),
    "an artifact by another tool": (edit(lambda value: value["artifacts"].append(FOREIGN), False), 2, f"{FILENAME} was edited by another tool: "),
    "a manifest that is none": (lambda out: (out / FILENAME).write_text("{"), 2, FILENAME),
    "another name": (edit(lambda value: value.update(name="acme/other")), 2, "use --name acme/other"),
    "other operators": (edit(lambda value: value["artifacts"][0]["metadata"].update(operators=["Add"])), 2, "states other operators of model.onnx"),
    "other inputs": (edit(lambda value: value["artifacts"][0]["metadata"]["inputs"][0].update(name="words")), 2, "states other inputs of model.onnx"),
    "a path outside": (edit(lambda value: value["artifacts"][0].update(path="../model.onnx")), 2, "path"),
    "a link out of the directory": (link_out, 2, "a link that leads out of"),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(SPOILED, 3))
def test_damaged_files_are_refused(reg, digest, case):
    spoil, status, message = SPOILED[case]
    spoil(Path("out"))
    assert reg(*BACK).ended(status, message)


@pytest.mark.more
def test_the_exports_of_a_run_directory_are_taken_back(reg, tmp_path):
    """The directory of a training, into which a version with `exports/model.onnx` was written."""
    workspace = tmp_path / "workspace"
    (workspace / "exports").mkdir(parents=True)
    draft, _ = adopt(BERT, workspace, name="acme/bert")
    (model,) = [item for item in draft.artifacts if item.path == "model.onnx"]
    (workspace / "model.onnx").rename(workspace / "exports/model.onnx")
    draft = replace(draft, artifacts=(replace(model, path="exports/model.onnx"),))
    registry = Registry(tmp_path / "r")
    published = registry.add(draft)
    Path("run/checkpoints").mkdir(parents=True)
    registry.write_out(Ref("acme/bert", digest=published.digest), tmp_path / "run/exports")
    shutil.copytree("run/exports", "copy")
    for place, other in (("run/exports", "r1"), ("copy", "r2")):
        done = reg("--registry", other, "import", place, "--name", "acme/bert", "--json").json
        assert (done["digest"], done["differences"]) == (str(published.digest), [])
    Path("run/exports/model.onnx").unlink()
    lost = reg("--registry", "other", "import", "run/exports", "--name", "acme/bert")
    assert lost.ended(2, "exports/model.onnx, which is missing")


# hf://

FILES = {
    **{name: name for name in ("config.json", "tokenizer.json")},
    "onnx/model.onnx": "model.onnx",
    "onnx/model_quantized.onnx": "model_int8.onnx",
}
WORDS = ("import", "hf://acme/ner", "--name", "acme/ner", "--version", "1.0.0")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(tmp_path / "hub") as hub:
        hub.enter(monkeypatch, tmp_path / "hf")
        hub.repositories["models/acme/ner"] = Repository()
        hub.repositories["models/acme/ner"].add("main", "new", {})
        files = {path: (BERT / name).read_bytes() for path, name in FILES.items()}
        weights = {"model.safetensors": b"weights", "2_Dense/model.safetensors": b"dense"}
        hub.commit("acme/ner", {**files, **weights, "README.md": b"---\nlicense: mit\n---\n"})
        yield hub


def test_a_repository_becomes_a_version(reg, hub):
    done = reg(*WORDS, "--json")
    assert done.status == 0, done.err
    manifest, commit = done.json["manifest"], hub.history("acme/ner")[-1].id
    assert manifest["source"] == {"id": "acme/ner", "revision": commit}
    full, small = manifest["artifacts"]
    assert (full["path"], small["path"]) == ("onnx/model.onnx", "onnx/model_quantized.onnx")
    assert (manifest["license"], small["parent"]) == ("mit", full["digest"])
    assert [line for line in hub.requests if line.startswith("GET") and "safetensors" in line] == [
        f"GET /acme/ner/resolve/{commit}/2_Dense/model.safetensors"
    ]
    assert "2_Dense/model.safetensors" in {file["path"] for file in manifest["files"]}
    hub.requests.clear()
    assert reg(*WORDS[:4]).ended(0, "nothing new")
    assert not any(line.startswith("GET") and "/resolve/" in line for line in hub.requests)
    hub.commit("acme/ner", {"README.md": b"---\nlicense: apache-2.0\n---\n"})
    old = reg("import", f"hf://acme/ner@{commit}", "--name", "acme/old", "--json").json
    assert old["manifest"]["license"] == "mit"
    hub.commit("acme/ner", {"registry.json": b"{}"})
    assert reg(*WORDS).ended(2, "reg pull NAME hf://acme/ner")
    missing = reg("import", "hf://acme/nothing", "--name", "acme/ner")
    assert missing.ended(3, "the Hub has no repository acme/nothing")


def certify(value: Any) -> None:
    artifact = value["artifacts"][2]
    evidence = dict.fromkeys(("artifact", "parent", "suite"), artifact["digest"])
    artifact["certification"] = {"state": "certified", "evidence": evidence}


def test_verdicts_in_a_repository_are_those_of_a_stranger(reg, digest, hub):
    """The same files in a directory, which the user vouches for, keep the manifest of their publisher."""
    edit(certify)(Path("out"))
    hub.commit("acme/ner", dict.fromkeys(FILES))
    hub.commit("acme/ner", {path.name: path.read_bytes() for path in Path("out").iterdir()})
    done = reg("import", "hf://acme/ner", "--name", "acme/bert", "--json")
    assert {item["certification"]["state"] for item in done.json["manifest"]["artifacts"]} == {"unknown"}
    believed = reg(*BACK, "--json").json["manifest"]["artifacts"]
    assert {item["certification"]["state"] for item in believed} == {"unknown", "certified"}


@pytest.mark.more
def test_external_data_of_any_name_is_downloaded(reg, hub, tmp_path):
    """One file for all tensors of one graph, and one for each tensor of another."""
    for name, together in (("model", True), ("model_fp16", False)):
        model = onnx.load(BERT / ("model.onnx" if together else "model_int8.onnx"))
        options: dict[str, Any] = {"all_tensors_to_one_file": together, "location": "weights [1]"}
        onnx.save(model, tmp_path / f"{name}.onnx", save_as_external_data=True, size_threshold=0, **options)
    files = {f"onnx/{path.name}": path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    hub.commit("acme/ner", files | {"onnx/model.bin": b"weights of another framework"})
    done = reg(*WORDS, "--json")
    assert done.status == 0, done.err
    first = done.json["manifest"]["artifacts"][0]
    assert [file["path"] for file in first["files"]] == ["onnx/weights [1]"]
    assert not [line for line in hub.requests if line.startswith("GET") and "model.bin" in line]
    hub.commit("acme/ner", {"onnx/weights [1]": None})
    assert reg("import", "hf://acme/ner", "--name", "acme/other").ended(2, "weights [1]")


@pytest.mark.more
def test_a_damaged_file_in_the_cache_is_downloaded_again(reg, hub, tmp_path):
    data = hub.read("acme/ner", "onnx/model.onnx")
    (hub.root / sha256(data).hexdigest()).write_bytes(data)
    pointer = in_lfs(sha256(data).hexdigest(), len(data))
    hub.repositories["models/acme/ner"].add(
        "main", "lfs", {**hub.files("acme/ner"), "onnx/model.onnx": pointer}
    )
    assert reg(*WORDS).status == 0
    (blob,) = (path for path in (tmp_path / "hf").glob("**/blobs/*") if len(path.name) == 64)
    blob.chmod(0o644)
    blob.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert reg(*WORDS[:4]).ended(0, "nothing new")


@pytest.mark.more
def test_a_repository_of_openmed(reg, hub):
    hub.commit("acme/ner", dict.fromkeys(FILES))
    hub.commit("acme/ner", {path.name: path.read_bytes() for path in BERT.iterdir()})
    done = reg(*WORDS, "--json")
    assert done.status == 0, done.err
    assert done.json["manifest"]["recipe"]["profile"] == "openmed-v1"
