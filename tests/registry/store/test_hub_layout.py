"""`reg push --layout hub`: the usual files of a model beside the registry, in the same commit and without a second upload."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import snapshot_download
from huggingface_hub.utils import close_session
from support.registries.drafts import write_draft
from support.registries.gated import draft as judged_draft
from support.servers.hub import Hub, running

from onnxreg.registry import Registry
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store import hub_client
from onnxreg.registry.store.open import open_url
from onnxreg.schema.core.errors import InputError, IntegrityError, RemoteError
from onnxreg.schema.manifest.draft import DraftFile

# The client hands its uploads to its HTTP library in a way that this one calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
REPO, NAME = "acme/pii", "acme/pii"
URL = f"hf://{REPO}"
NEWEST = "hub"
GRAPHS = {"model.onnx", "model_int8.onnx", "model_quantized.onnx"}
LAYOUT = {"config.json", "tokenizer.json", "openmed-onnx.json", *GRAPHS, *(f"onnx/{name}" for name in GRAPHS)}
OTHERS = re.compile(
    r"blobs/.*|index/.*|gc/.*|registry\.json|policy\.jsonl|\.gitattributes|README\.md|layout\.json"
)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(tmp_path / "hub") as hub:
        hub.enter(monkeypatch, tmp_path / "hf")
        monkeypatch.setattr(hub_client, "MAX_WAIT_SECONDS", 0.02)
        yield hub
        close_session()


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "home")
    registry.add(write_draft(tmp_path / "a", NAME, "a", 100), "0.1.0")
    registry.add(write_draft(tmp_path / "b", NAME, "b", 100), "0.2.0")
    return registry


def shown(hub: Hub) -> set[str]:
    """The paths that are not part of the registry."""
    return {path for path in hub.files(REPO) if not OTHERS.fullmatch(path)}


def card(hub: Hub) -> dict[str, object]:
    return dict(yaml.safe_load(hub.read(REPO, "README.md").split(b"---\n")[1]))


def test_a_client_of_the_hub_loads_what_was_pushed(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    assert shown(hub) == LAYOUT and verify(open_url(URL)).damages == []
    patterns = ["*.json", "onnx/*"]
    root = Path(
        snapshot_download(REPO, endpoint=hub.endpoint, cache_dir=tmp_path / "c", allow_patterns=patterns)
    )
    assert (root / "onnx" / "model_quantized.onnx").read_bytes() == b"int8 a " * 25
    assert (root / "config.json").read_bytes() == b"{}"
    assert json.loads((root / "openmed-onnx.json").read_bytes())["name"] == NAME


def test_it_is_the_commit_of_the_push_and_no_byte_goes_twice(hub: Hub, registry: Registry) -> None:
    registry.push(f"{NAME}:0.1.0", URL)
    commits_before = len(hub.history(REPO))
    hub.requests.clear()
    registry.push(f"{NAME}:0.2.0", URL, layout=NEWEST)
    titles = [commit.title for commit in hub.history(REPO)[commits_before:]]
    assert titles == ["Prepare the layout", f"Publish {NAME}"]
    uploads = [line for line in hub.requests if line.startswith("PUT")]
    assert len(uploads) == len(set(uploads))
    graphs = {path: hub.files(REPO)[path] for path in shown(hub) if path.endswith(".onnx")}
    blobs = {file.sha256 for path, file in hub.files(REPO).items() if path.startswith("blobs/")}
    assert {file.sha256 for file in graphs.values()} <= blobs


def test_present_files_are_copied_without_an_upload(hub: Hub, registry: Registry) -> None:
    registry.push(f"{NAME}:0.1.0", URL)
    hub.requests.clear()
    assert not registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST).blobs
    assert shown(hub) == LAYOUT
    assert not [line for line in hub.requests if line.startswith("PUT")]
    head = hub.history(REPO)[-1]
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    assert hub.history(REPO)[-1] is head


def test_later_pushes_and_yanks_move_it(hub: Hub, registry: Registry) -> None:
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    registry.push(f"{NAME}:0.2.0", URL)
    assert hub.read(REPO, "onnx/model.onnx") == b"fp32 b " * 100
    registry.yank(f"{NAME}:0.2.0", "broken", remote=open_url(URL))
    assert hub.read(REPO, "onnx/model.onnx") == b"fp32 a " * 100
    registry.yank(f"{NAME}:0.2.0", undo=True, remote=open_url(URL))
    assert hub.read(REPO, "onnx/model.onnx") == b"fp32 b " * 100
    registry.yank(f"{NAME}:0.2.0", "broken")
    registry.push(f"{NAME}:0.2.0", URL)
    assert hub.read(REPO, "onnx/model.onnx") == b"fp32 a " * 100
    registry.yank(f"{NAME}:0.1.0", "broken too")
    registry.push(f"{NAME}:0.1.0", URL)
    assert shown(hub) == set()


def test_a_refused_file_is_not_shown(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    registry.add(judged_draft(tmp_path / "refused", "r", "refused"), "0.3.0")
    registry.push(f"{NAME}:0.3.0", URL, layout=NEWEST)
    assert shown(hub) == {"config.json", "openmed-onnx.json", "model.onnx", "onnx/model.onnx"}


def test_a_file_of_others_is_never_replaced(hub: Hub, registry: Registry) -> None:
    registry.push(f"{NAME}:0.1.0", URL)
    hub.commit(REPO, {"config.json": b"mine", "onnx/model.onnx": b"mine", "notes.txt": b"mine"})
    with pytest.raises(InputError, match=r"would replace: config\.json, onnx/model\.onnx"):
        registry.push(f"{NAME}:0.2.0", URL, layout=NEWEST)
    assert "layout.json" not in hub.files(REPO)
    assert hub.read(REPO, "config.json") == b"mine"
    registry.push(f"{NAME}:0.2.0", URL)
    hub.commit(REPO, {"config.json": None, "onnx/model.onnx": None})
    registry.push(f"{NAME}:0.2.0", URL, layout=NEWEST)
    assert shown(hub) == LAYOUT | {"notes.txt"}


def test_a_repository_has_the_layout_of_one_model(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    registry.add(write_draft(tmp_path / "c", "tiny", "c", 100), "1.0.0")
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    with pytest.raises(InputError, match="has the layout of acme/pii already"):
        registry.push("tiny", URL, layout=NEWEST)
    registry.push("tiny", URL)
    assert hub.read(REPO, "onnx/model.onnx") == b"fp32 a " * 100


def test_only_the_hub_has_a_layout(registry: Registry, tmp_path: Path) -> None:
    for url, text in ((str(tmp_path / "remote"), NEWEST), (URL, "hug")):
        with pytest.raises(InputError, match="no layout"):
            registry.push(NAME, url, layout=text)


def test_the_card_says_what_the_manifest_says(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    text = "Finds <b>names</b> in letters"
    draft = judged_draft(tmp_path / "d", "d", task="token-classification", description=text)
    registry.add(draft, "0.3.0")
    registry.push(f"{NAME}:0.3.0", URL)
    hub.commit(REPO, {"README.md": hub.read(REPO, "README.md") + b"\nWords of people.\n"})
    registry.push(f"{NAME}:0.3.0", URL, layout=NEWEST)
    metadata = card(hub)
    assert metadata["license"] == "apache-2.0"
    assert metadata["pipeline_tag"] == "token-classification"
    assert metadata["base_model"] == "acme/base"
    assert metadata["library_name"] == "onnxreg"
    assert rb"Finds \<b\>names\</b\> in letters" in hub.read(REPO, "README.md")
    assert hub.read(REPO, "README.md").endswith(b"\nWords of people.\n")


def test_the_card_shows_how_other_libraries_load_it(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    registry.add(judged_draft(tmp_path / "d", "d", task="token-classification"), "0.3.0")
    registry.push(f"{NAME}:0.3.0", URL, layout=NEWEST)
    text = hub.read(REPO, "README.md").decode()
    assert f'await pipeline("token-classification", "{REPO}")' in text
    (code,) = re.findall("```python\n(.*?)```", text, re.DOTALL)
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    program = [sys.executable, "-c", f"{code}\nprint(folder)"]
    done = subprocess.run(program, env={**os.environ, **own}, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert {f"onnx/{path.name}" for path in folder.glob("onnx/*")} == {
        path for path in shown(hub) if path.startswith("onnx/")
    }
    assert not (folder / "blobs").exists()
    registry.yank(f"{NAME}:0.3.0", "broken")
    registry.push(f"{NAME}:0.3.0", URL)
    assert "await pipeline" not in hub.read(REPO, "README.md").decode()


def test_a_damaged_record_is_named(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    registry.push(f"{NAME}:0.2.0", URL)
    for data in (b"{", b"[" * 100_000, b'{"theme": "dark"}', b"[]"):
        hub.commit(REPO, {"layout.json": data})
        with pytest.raises(IntegrityError, match=r"layout\.json is damaged"):
            registry.push(f"{NAME}:0.2.0", URL, layout=NEWEST)
    registry.yank(f"{NAME}:0.1.0", "broken")
    registry.push(f"{NAME}:0.1.0", URL)
    assert Registry(tmp_path / "other").pull(f"{NAME}:0.2.0", URL).versions


@pytest.mark.parametrize("step", ["commit", "preupload"])
def test_after_an_interruption_the_next_push_finishes(
    hub: Hub, registry: Registry, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.fail(rf"POST .*/{step}/", times=1, status=400)
    with pytest.raises(RemoteError):
        registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    assert shown(hub) == LAYOUT


def test_somebody_elses_commit_comes_between(hub: Hub, registry: Registry) -> None:
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    other: Callable[[], object] = lambda: hub.commit(REPO, {"notes.txt": b"mine"})
    hub.before(r"POST .*/commit/", other)
    registry.push(f"{NAME}:0.2.0", URL)
    assert shown(hub) == LAYOUT | {"notes.txt"}
    assert hub.read(REPO, "model_quantized.onnx") == b"int8 b " * 25


@pytest.mark.parametrize(
    "path", ["notes.txt", "registry.json", "index/tiny.jsonl", "README.md", "../x", ".git/x"]
)
def test_an_edited_record_deletes_nothing_of_others(hub: Hub, registry: Registry, path: str) -> None:
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    hub.commit(REPO, {"notes.txt": b"mine"})
    record = json.loads(hub.read(REPO, "layout.json"))
    record["files"][path] = record["files"]["config.json"]
    hub.commit(REPO, {"layout.json": json.dumps(record).encode()})
    before = hub.files(REPO)
    with pytest.raises((InputError, IntegrityError)):
        registry.push(f"{NAME}:0.2.0", URL, layout=NEWEST)
    registry.push(f"{NAME}:0.2.0", URL)
    assert not before.keys() - hub.files(REPO).keys()


def test_a_file_that_somebody_changed_is_theirs(hub: Hub, registry: Registry) -> None:
    registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    hub.commit(REPO, {"onnx/model.onnx": b"mine"})
    with pytest.raises(InputError, match=r"would replace: onnx/model\.onnx"):
        registry.push(f"{NAME}:0.1.0", URL, layout=NEWEST)
    registry.push(f"{NAME}:0.2.0", URL)
    assert hub.read(REPO, "onnx/model.onnx") == b"mine"


def test_no_path_of_a_model_is_part_of_the_registry(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    draft = write_draft(tmp_path / "evil", NAME, "e", 100)
    names = ["index/tiny.jsonl", "gc/condemned/x", "LICENSE", "layout.json"]
    for name in names:
        (tmp_path / "evil" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "evil" / name).write_bytes(b"evil")
    extra = tuple(DraftFile("other", name) for name in names)
    registry.add(replace(draft, companions=(*draft.companions, *extra)), "0.3.0")
    registry.push(f"{NAME}:0.3.0", URL, layout=NEWEST)
    assert shown(hub) == LAYOUT
    assert json.loads(hub.read(REPO, "layout.json"))["name"] == NAME


def test_the_card_forgets_what_is_no_longer_shown(hub: Hub, registry: Registry, tmp_path: Path) -> None:
    registry.add(judged_draft(tmp_path / "d", "d", task="token-classification"), "0.3.0")
    registry.push(f"{NAME}:0.1.0", URL)
    people = hub.read(REPO, "README.md").replace(b"---\n", b"---\nlicense: mit\n", 1)
    hub.commit(REPO, {"README.md": people})
    registry.push(f"{NAME}:0.3.0", URL, layout=NEWEST)
    assert (card(hub)["license"], card(hub)["base_model"]) == ("mit", "acme/base")
    registry.yank(f"{NAME}:0.3.0", "broken")
    registry.push(f"{NAME}:0.3.0", URL)
    assert card(hub)["license"] == "mit"
    assert "base_model" not in card(hub)
