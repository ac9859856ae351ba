"""`reg push --layout hub`: the usual files of a model beside the registry, in the same commit and without a second upload."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import snapshot_download
from hypothesis import example, given
from hypothesis import strategies as st
from support.registries import owner
from support.registries.drafts import write_draft
from support.registries.gated import draft as judged_draft
from support.registries.gated import refusal
from support.sampling import sampled
from support.servers.hub import Hub

from onnxreg.registry import Registry
from onnxreg.registry.maintain import verify
from onnxreg.registry.remotes import open_url
from onnxreg.registry.store.hub import replace_metadata
from onnxreg.schema.core.errors import InputError, IntegrityError, RemoteError
from onnxreg.schema.manifest.draft import DraftFile

# The client hands its uploads to its HTTP library in a way that this one calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
NAME = REPO = "acme/pii"
URL = f"hf://{REPO}"
GRAPHS = {"model.onnx", "model_int8.onnx", "model_quantized.onnx"}
LAYOUT = {"config.json", "tokenizer.json", "openmed-onnx.json", *GRAPHS, *(f"onnx/{name}" for name in GRAPHS)}
OTHERS = re.compile(
    r"blobs/.*|index/.*|gc/.*|registry\.json|policy\.jsonl|\.gitattributes|README\.md|layout\.json"
)


@pytest.fixture
def registry(hub, tmp_path) -> Registry:
    """0.1.0 and 0.2.0, which differ in their weights, and 0.3.0, whose task and licence are known; none is pushed."""
    registry = Registry(tmp_path / "home")
    registry.add(write_draft(tmp_path / "a", NAME, "a", 100), "0.1.0")
    registry.add(write_draft(tmp_path / "b", NAME, "b", 100), "0.2.0")
    text = "Finds <b>names</b> in letters"
    registry.add(judged_draft(tmp_path / "d", "d", task="token-classification", description=text), "0.3.0")
    return registry


def push(registry: Registry, version: str, layout: str | None = None) -> int:
    return registry.push(f"{NAME}:{version}", URL, layout=layout).blobs


def show(registry: Registry, version: str = "0.1.0") -> int:
    """Push a version, and show its files from then on."""
    return push(registry, version, "hub")


def retract(registry: Registry, version: str) -> None:
    registry.yank(f"{NAME}:{version}", "broken")
    push(registry, version)


@pytest.fixture
def laid_out(registry) -> Registry:
    """The repository shows 0.1.0."""
    show(registry)
    return registry


def shown(hub: Hub) -> set[str]:
    """The paths that are not part of the registry."""
    return {path for path in hub.files(REPO) if not OTHERS.fullmatch(path)}


def card(hub: Hub) -> dict[str, object]:
    return dict(yaml.safe_load(hub.read(REPO, "README.md").split(b"---\n")[1]))


def graph(hub: Hub) -> bytes:
    return hub.read(REPO, "onnx/model.onnx")


def test_a_client_of_the_hub_loads_what_was_pushed(hub, laid_out, tmp_path):
    assert shown(hub) == LAYOUT and verify(open_url(URL)).damages == []
    patterns = ["*.json", "onnx/*"]
    root = Path(
        snapshot_download(REPO, endpoint=hub.endpoint, cache_dir=tmp_path / "c", allow_patterns=patterns)
    )
    assert (root / "onnx" / "model_quantized.onnx").read_bytes() == b"int8 a " * 25
    assert (root / "config.json").read_bytes() == b"{}"
    assert json.loads((root / "openmed-onnx.json").read_bytes())["name"] == NAME


def test_it_is_the_commit_of_the_push_and_no_byte_goes_twice(hub, registry):
    push(registry, "0.1.0")
    commits_before = len(hub.history(REPO))
    hub.requests.clear()
    show(registry, "0.2.0")
    titles = [commit.title for commit in hub.history(REPO)[commits_before:]]
    assert titles == ["Prepare the layout", f"Publish {NAME}"]
    uploads = [line for line in hub.requests if line.startswith("PUT")]
    assert len(uploads) == len(set(uploads))
    graphs = {path: hub.files(REPO)[path] for path in shown(hub) if path.endswith(".onnx")}
    blobs = {file.sha256 for path, file in hub.files(REPO).items() if path.startswith("blobs/")}
    assert {file.sha256 for file in graphs.values()} <= blobs


def test_present_files_are_copied_without_an_upload(hub, registry):
    push(registry, "0.1.0")
    hub.requests.clear()
    assert not show(registry)
    assert shown(hub) == LAYOUT
    assert not [line for line in hub.requests if line.startswith("PUT")]
    head = hub.history(REPO)[-1]
    show(registry)
    assert hub.history(REPO)[-1] is head


def test_later_pushes_and_yanks_move_it(hub, laid_out):
    old, new = b"fp32 a " * 100, b"fp32 b " * 100
    push(laid_out, "0.2.0")
    assert graph(hub) == new
    laid_out.yank(f"{NAME}:0.2.0", "broken", remote=open_url(URL))
    assert graph(hub) == old
    laid_out.yank(f"{NAME}:0.2.0", undo=True, remote=open_url(URL))
    assert graph(hub) == new
    retract(laid_out, "0.2.0")
    assert graph(hub) == old
    retract(laid_out, "0.1.0")
    assert shown(hub) == set()


def test_a_refused_file_is_not_shown(hub, registry, tmp_path):
    registry.add(judged_draft(tmp_path / "refused", "r", "refused"), "0.4.0")
    show(registry, "0.4.0")
    assert shown(hub) == {"config.json", "openmed-onnx.json", "model.onnx", "onnx/model.onnx"}


def test_a_later_certificate_does_not_show_what_the_manifest_refuses(hub, registry, tmp_path):
    registry.add(judged_draft(tmp_path / "refused", "r", "refused"), "0.4.0")
    report = refusal(registry, "0.4.0").replace(b'"refused"', b'"certified"')
    owner.attest(registry, f"{NAME}:0.4.0", report)
    show(registry, "0.4.0")
    assert shown(hub) == {"config.json", "openmed-onnx.json", "model.onnx", "onnx/model.onnx"}


# What others write


def test_a_file_of_others_or_that_somebody_changed_is_never_replaced(hub, registry):
    push(registry, "0.1.0")
    hub.commit(REPO, {"config.json": b"mine", "onnx/model.onnx": b"mine", "notes.txt": b"mine"})
    with pytest.raises(InputError, match=r"would replace: config\.json, onnx/model\.onnx"):
        show(registry, "0.2.0")
    assert "layout.json" not in hub.files(REPO)
    assert hub.read(REPO, "config.json") == b"mine"
    push(registry, "0.2.0")
    hub.commit(REPO, {"config.json": None, "onnx/model.onnx": None})
    show(registry, "0.2.0")
    assert shown(hub) == LAYOUT | {"notes.txt"}
    hub.commit(REPO, {"onnx/model.onnx": b"mine"})
    with pytest.raises(InputError, match=r"would replace: onnx/model\.onnx"):
        show(registry, "0.2.0")
    push(registry, "0.3.0")
    assert graph(hub) == b"mine"


def test_somebody_elses_commit_comes_between(hub, laid_out):
    hub.before(r"POST .*/commit/", lambda: hub.commit(REPO, {"notes.txt": b"mine"}))
    push(laid_out, "0.2.0")
    assert shown(hub) == LAYOUT | {"notes.txt"}
    assert hub.read(REPO, "model_quantized.onnx") == b"int8 b " * 25


def test_a_repository_has_the_layout_of_one_model(hub, laid_out, tmp_path):
    laid_out.add(write_draft(tmp_path / "c", "tiny", "c", 100), "1.0.0")
    with pytest.raises(InputError, match="has the layout of acme/pii already"):
        laid_out.push("tiny", URL, layout="hub")
    laid_out.push("tiny", URL)
    assert graph(hub) == b"fp32 a " * 100


def test_only_the_hub_has_a_layout(registry, tmp_path):
    for url, text in ((str(tmp_path / "remote"), "hub"), (URL, "hug")):
        with pytest.raises(InputError, match="no layout"):
            registry.push(NAME, url, layout=text)


def test_no_path_of_a_model_is_part_of_the_registry(hub, registry, tmp_path):
    draft = write_draft(tmp_path / "evil", NAME, "e", 100)
    names = ["index/tiny.jsonl", "gc/condemned/x", "LICENSE", "layout.json"]
    for name in names:
        (tmp_path / "evil" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "evil" / name).write_bytes(b"evil")
    extra = tuple(DraftFile("other", name) for name in names)
    registry.add(replace(draft, companions=(*draft.companions, *extra)), "0.4.0")
    show(registry, "0.4.0")
    assert shown(hub) == LAYOUT
    assert json.loads(hub.read(REPO, "layout.json"))["name"] == NAME


@pytest.mark.parametrize("step", ["commit", "preupload"])
def test_after_an_interruption_the_next_push_finishes(hub, registry, step):
    hub.fail(rf"POST .*/{step}/", times=1, status=400)
    with pytest.raises(RemoteError):
        show(registry)
    show(registry)
    assert shown(hub) == LAYOUT


@pytest.mark.parametrize("data", sampled([b"{", b"[" * 100_000, b'{"theme": "dark"}', b"[]"], 2), ids=len)
def test_a_damaged_record_is_named(hub, laid_out, other, data):
    push(laid_out, "0.2.0")
    hub.commit(REPO, {"layout.json": data})
    with pytest.raises(IntegrityError, match=r"layout\.json is damaged"):
        show(laid_out, "0.2.0")
    retract(laid_out, "0.1.0")
    assert other.pull(f"{NAME}:0.2.0", URL).versions


PATHS = ["notes.txt", "registry.json", "index/tiny.jsonl", "README.md", "../x", ".git/x"]


@pytest.mark.parametrize("path", sampled(PATHS, 2))
def test_an_edited_record_deletes_nothing_of_others(hub, laid_out, path):
    record = json.loads(hub.read(REPO, "layout.json"))
    record["files"][path] = record["files"]["config.json"]
    hub.commit(REPO, {"notes.txt": b"mine", "layout.json": json.dumps(record).encode()})
    before = hub.files(REPO)
    with pytest.raises((InputError, IntegrityError)):
        show(laid_out, "0.2.0")
    push(laid_out, "0.2.0")
    assert not before.keys() - hub.files(REPO).keys()


# The card


@pytest.mark.parametrize("people", [b"", b"license: mit\n"])
def test_the_card_says_what_the_manifest_says_and_forgets_it(hub, registry, people):
    push(registry, "0.1.0")
    text = hub.read(REPO, "README.md").replace(b"---\n", b"---\n" + people, 1)
    hub.commit(REPO, {"README.md": text + b"\nWords of people.\n"})
    show(registry, "0.3.0")
    said = {"pipeline_tag": "token-classification", "base_model": "acme/base", "library_name": "onnxreg"}
    assert card(hub).items() >= {**said, "license": "mit" if people else "apache-2.0"}.items()
    assert rb"Finds \<b\>names\</b\> in letters" in hub.read(REPO, "README.md")
    assert hub.read(REPO, "README.md").endswith(b"\nWords of people.\n")
    retract(registry, "0.3.0")
    assert card(hub).get("license") == ("mit" if people else None)
    assert "base_model" not in card(hub)


def test_the_card_shows_how_other_libraries_load_it(hub, registry, tmp_path):
    show(registry, "0.3.0")
    text = hub.read(REPO, "README.md").decode()
    assert f'await pipeline("token-classification", "{REPO}")' in text
    (code,) = re.findall("```python\n(.*?)```", text, re.DOTALL)
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    program = [sys.executable, "-c", f"{code}\nprint(folder)"]
    done = subprocess.run(program, env={**os.environ, **own}, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    loaded = {f"onnx/{path.name}" for path in folder.glob("onnx/*")}
    assert loaded == {path for path in shown(hub) if path.startswith("onnx/")}
    assert not (folder / "blobs").exists()
    retract(registry, "0.3.0")
    assert "await pipeline" not in hub.read(REPO, "README.md").decode()


def metadata(card: str) -> dict[str, Any]:
    """The values between the first two lines `---`; a value may have these characters too."""
    return dict(yaml.safe_load(re.split(r"^---\n", card, flags=re.MULTILINE)[1]))


@pytest.mark.parametrize(
    "front",
    [
        "{license: mit, tags: [a]}\n",
        "license: &l mit\nother: *l\ntags: [a]\n",
        "license: mit\ntags: |\n  a\n\n",
    ],
)
def test_values_are_kept_in_any_style(front):
    card = f"---\n{front}---\ntext\n"
    before = yaml.safe_load(front)
    new = replace_metadata(card, {"tags": ["b"]}, {"tags": before["tags"]})
    assert metadata(new) == before | {"tags": ["b"]} and new.endswith("---\ntext\n")


@pytest.mark.parametrize("value", ["2020-13-45", "!!bool foo", "!!timestamp foo", '!!int ""'])
def test_a_card_whose_metadata_cannot_be_read_stays(value):
    card = f"---\ndate: {value}\n---\ntext\n"
    assert replace_metadata(card, {"license": "mit"}, {}) == card


VALUES = st.recursive(
    st.text("ab #:-'\"\n", max_size=8) | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("xy", min_size=1), inner, max_size=2),
    max_leaves=4,
)


@example(people={}, written={}, next_time={"a": "a---"})
@example(people={}, written={}, next_time={"a": "---\n"})
@given(
    people=st.dictionaries(st.sampled_from("abcdef"), VALUES),
    written=st.dictionaries(st.sampled_from("uvwxyz"), VALUES),
    next_time=st.dictionaries(st.sampled_from("abuvwxyz"), VALUES),
)
def test_the_values_are_those_of_people_and_ours(people, written, next_time):
    text = "".join(
        f"# about {key}\n{yaml.safe_dump({key: value})}" for key, value in {**people, **written}.items()
    )
    new = replace_metadata(f"---\n{text or '{}'}\n---\n", next_time, written)
    assert metadata(new) == {**next_time, **people}
