"""The Hub's protocol, with the real `huggingface_hub` as client; other clients are in tests/e2e/test_hub_clients.py."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import HfApi, errors, hf_hub_download, snapshot_download
from support.registries import owner
from support.registries.drafts import write_draft
from support.registries.gated import LAX, draft
from support.servers.regserve import Site, wait

from onnxreg.registry.log.log import read_blob
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.family import pipeline_of

NAME = "acme/pii"
COMPANIONS = {"config.json", "openmed-onnx.json"}
OWN = {"model.onnx", "model_int8.onnx", "tokenizer.json", *COMPANIONS}
ALIASES = {"model_quantized.onnx", "onnx/model.onnx", "onnx/model_int8.onnx", "onnx/model_quantized.onnx"}


@pytest.fixture(autouse=True)
def online(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture
def api(site) -> HfApi:
    return HfApi(endpoint=site.url, token=False)


def paths(api: HfApi, revision: str | None = None) -> set[str]:
    return set(api.list_repo_files(NAME, revision=revision))


def snapshot(site: Site, cache: Path, revision: str | None = None) -> tuple[str, dict[str, bytes]]:
    """The name of a snapshot's directory, and the files in it."""
    root = Path(snapshot_download(NAME, revision=revision, endpoint=site.url, cache_dir=cache, token=False))
    files = (path for path in root.rglob("*") if path.is_file())
    return root.name, {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def download(site: Site, cache: Path, path: str, revision: str | None = None, name: str = NAME) -> bytes:
    file = hf_hub_download(name, path, revision=revision, endpoint=site.url, cache_dir=cache, token=False)
    return Path(file).read_bytes()


def test_a_snapshot_holds_the_files_of_the_newest_release(site, filled, tmp_path):
    version = filled.get(NAME)
    name, files = snapshot(site, tmp_path)
    assert name == version.digest.hex[:40]
    assert files.keys() == OWN | ALIASES
    assert files["openmed-onnx.json"] == read_blob(filled.store, version.digest)
    assert files["onnx/model_quantized.onnx"] == files["model_int8.onnx"] == b"int8 b " * 25
    assert files["onnx/model.onnx"] == files["model.onnx"] == b"fp32 b " * 100


def test_a_revision_is_a_version_a_channel_or_a_digest(site, filled, tmp_path):
    digest = filled.get(f"{NAME}:0.1.0").digest
    for revision in ("0.1.0", "stable", str(digest), digest.hex, digest.hex[:40]):
        assert download(site, tmp_path, "model.onnx", revision) == b"fp32 a " * 100
        headers = site.get(f"/{NAME}/resolve/{revision}/model.onnx").headers
        assert headers["x-repo-commit"] == digest.hex[:40]
        assert ("immutable" in headers["cache-control"]) == (len(revision) >= 40)
    assert len(list((tmp_path / "models--acme--pii" / "snapshots").iterdir())) == 1
    second = site.get(f"/{NAME}/resolve/{digest.hex}/onnx/model_int8.onnx").headers["cache-control"]
    assert "immutable" not in second, "a second name never is"


def test_a_second_download_moves_no_byte_of_a_file(site, tmp_path):
    def downloads() -> list[str]:
        snapshot(site, tmp_path)
        site.get("/healthz")
        wait(lambda: "/healthz" in site.lines[-1])
        lines = [json.loads(line) for line in site.lines]
        site.lines.clear()
        return [line["path"] for line in lines if line["method"] == "GET" and "/resolve/" in line["path"]]

    assert len(downloads()) >= len(OWN)
    assert downloads() == []


def test_the_document_of_a_model_and_its_folders(api, filled):
    info = api.model_info(NAME, files_metadata=True)
    commit = filled.get(NAME).digest.hex[:40]
    assert (info.id, info.sha, info.pipeline_tag) == (NAME, commit, "token-classification")
    sizes = {file.rfilename: (file.size, file.lfs and file.lfs.sha256) for file in info.siblings or ()}
    assert sizes.keys() == OWN | ALIASES
    assert sizes["onnx/model.onnx"] == sizes["model.onnx"] == (700, sizes["model.onnx"][1])
    (entry,) = api.get_paths_info(NAME, ["onnx/model.onnx", "nothing"])
    assert (entry.path, entry.size) == ("onnx/model.onnx", 700)
    assert api.model_info("tiny").id == "tiny"
    top = [entry.path for entry in api.list_repo_tree(NAME)]
    assert sorted(top) == sorted({path.partition("/")[0] for path in OWN | ALIASES})
    inside = {entry.path for entry in api.list_repo_tree(NAME, "onnx")}
    assert inside == {path for path in ALIASES if path.startswith("onnx/")}
    with pytest.raises(errors.RemoteEntryNotFoundError):
        list(api.list_repo_tree(NAME, "nothing"))


def test_channels_are_branches_and_versions_are_tags(api, filled):
    refs = api.list_repo_refs(NAME)
    old, new = (filled.get(f"{NAME}:{version}").digest.hex[:40] for version in ("0.1.0", "0.2.0"))
    assert {ref.name: ref.target_commit for ref in refs.branches} == {"main": new, "stable": old}
    assert {ref.name: ref.target_commit for ref in refs.tags} == {"0.1.0": old, "0.2.0": new}
    filled.tag(f"{NAME}:0.1.0", "main")
    assert api.model_info(NAME, revision="main").sha == old


def test_absent_models_files_and_revisions(site, tmp_path):
    for name, words in (("acme/nothing", "has no model acme/nothing"), ("Acme/PII", "")):
        with pytest.raises(errors.RepositoryNotFoundError) as absent:
            download(site, tmp_path, "model.onnx", name=name)
        assert words in str(absent.value)
    for revision in ("9.9.9", "nothing", "0" * 40, "refs/pr/1"):
        with pytest.raises(errors.RevisionNotFoundError):
            download(site, tmp_path, "model.onnx", revision)
    with pytest.raises(errors.RemoteEntryNotFoundError, match="no file nothing"):
        download(site, tmp_path, "nothing.json")
    assert site.get(f"/{NAME}/resolve/main/../../../registry.json").status == 404


def test_a_yanked_version_is_there_by_digest_alone(api, filled):
    digest = filled.get(f"{NAME}:0.2.0").digest
    filled.yank(f"{NAME}:0.2.0", "broken")
    assert api.model_info(NAME).sha == filled.get(f"{NAME}:0.1.0").digest.hex[:40]
    with pytest.raises(errors.RevisionNotFoundError, match="yanked"):
        api.model_info(NAME, revision="0.2.0")
    assert api.model_info(NAME, revision=digest.hex[:40]).sha == digest.hex[:40]


def test_a_refused_file_has_no_alias_and_is_in_no_channel(api, site, filled, tmp_path):
    """The client asks for the files of a channel by its commit."""
    filled.add(draft(tmp_path / "refused", "r", "refused"), "0.3.0")
    filled.tag(f"{NAME}:0.3.0", "beta")
    sound = {"model.onnx", "onnx/model.onnx", *COMPANIONS}
    for revision in ("0.3.0", filled.get(f"{NAME}:0.3.0").digest.hex):
        assert paths(api, revision) == sound | {"model_int8.onnx"}
    for revision in ("beta", "main"):
        assert paths(api, revision) == sound
        assert snapshot(site, tmp_path / revision, revision)[1].keys() == sound


def test_a_policy_bars_a_channel(api, filled):
    assert api.model_info(NAME, revision="stable").sha
    owner.set_policy(filled, read_policy(LAX, "policy"))
    with pytest.raises(errors.GatedRepoError):
        api.model_info(NAME, revision="stable")
    assert api.model_info(NAME, revision="0.1.0").sha


# Second names


def test_external_data_beside_the_graphs_folder_gets_no_second_name(api, filled, tmp_path):
    plain = draft(tmp_path / "plain", "x")
    (plain.root / "a").mkdir()
    (plain.root / "model.onnx").rename(plain.root / "a" / "model.onnx")
    (plain.root / "weights.data").write_bytes(b"weights")
    data = DraftFile("external-data", "weights.data")
    graph = replace(plain.artifacts[0], path="a/model.onnx", sidecars=(data,))
    filled.add(replace(plain, artifacts=(graph,)), "0.4.0")
    assert paths(api, "0.4.0") == {"a/model.onnx", "weights.data", *COMPANIONS}


def test_stages_of_a_pipeline_have_the_names_of_their_clients(api, site, filled, tmp_path):
    plain = draft(tmp_path / "plain", "x")
    full, small = plain.artifacts
    graphs = {"enc.onnx": full, "enc8.onnx": small, "dec.onnx": full}
    for path in graphs:
        (plain.root / path).write_bytes(path.encode())
    stages = {"enc.onnx": "encoder_model", "enc8.onnx": "encoder_model", "dec.onnx": "decoder:merged"}
    artifacts = tuple(replace(graph, path=path, sidecars=(), parent=None) for path, graph in graphs.items())
    fields = {**plain.fields, "model_family": pipeline_of(stages)}
    filled.add(replace(plain, artifacts=artifacts, fields=fields), "0.4.0")
    assert site.get(f"/{NAME}/resolve/0.4.0/onnx/encoder_model_quantized.onnx").body == b"enc8.onnx"
    stems = ("encoder_model", "encoder_model_int8", "encoder_model_quantized")
    second_names = {f"{folder}{stem}.onnx" for folder in ("", "onnx/") for stem in stems}
    assert paths(api, "0.4.0") == {*graphs, *second_names, *COMPANIONS}


def test_many_files_in_deep_folders_are_listed_at_once(site, filled, tmp_path):
    deep, folder = write_draft(tmp_path / "deep", NAME, "d", 100), "a/b/c/d/e/f/g/h/i/j"
    (deep.root / folder).mkdir(parents=True)
    files = [DraftFile("other", f"{folder}/{number}.json") for number in range(500)]
    for file in files:
        (deep.root / file.path).write_bytes(b"{}")
    filled.add(replace(deep, companions=(*deep.companions, *files)), "0.5.0")
    entries = site.get(f"/api/models/{NAME}/tree/0.5.0?recursive=true").json
    folders = {entry["path"]: entry["oid"] for entry in entries if entry["type"] == "directory"}
    assert len(folders) == len(set(folders.values())) == 11
