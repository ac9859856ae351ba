"""The Hub's protocol, with the real `huggingface_hub` as client; other clients are in tests/e2e/test_hub_clients.py."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from support.registries import owner
from support.registries.drafts import write_draft
from support.registries.gated import LAX, draft
from support.servers.regserve import Site, running, wait

from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.server.settings import Settings
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.family import pipeline_of

NAME = "acme/pii"
OWN = {"model.onnx", "model_int8.onnx", "config.json", "tokenizer.json", "openmed-onnx.json"}
ALIASES = {"model_quantized.onnx", "onnx/model.onnx", "onnx/model_int8.onnx", "onnx/model_quantized.onnx"}


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture
def api(site: Site) -> HfApi:
    return HfApi(endpoint=site.url, token=False)


def paths(api: HfApi, revision: str | None = None) -> set[str]:
    return set(api.list_repo_files(NAME, revision=revision))


def test_a_snapshot_holds_the_files_of_the_newest_release(
    site: Site, filled: Registry, tmp_path: Path
) -> None:
    version = filled.get(NAME)
    root = Path(snapshot_download(NAME, endpoint=site.url, cache_dir=tmp_path, token=False))
    assert root.name == version.digest.hex[:40]
    files = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    assert files.keys() == OWN | ALIASES
    assert files["openmed-onnx.json"] == read_blob(filled.store, version.digest)
    assert files["onnx/model_quantized.onnx"] == files["model_int8.onnx"] == b"int8 b " * 25
    assert files["onnx/model.onnx"] == files["model.onnx"] == b"fp32 b " * 100


def test_a_revision_is_a_version_a_channel_or_a_digest(site: Site, filled: Registry, tmp_path: Path) -> None:
    digest = filled.get(f"{NAME}:0.1.0").digest
    for revision in ("0.1.0", "stable", str(digest), digest.hex, digest.hex[:40]):
        file = hf_hub_download(
            NAME, "model.onnx", revision=revision, endpoint=site.url, cache_dir=tmp_path, token=False
        )
        assert Path(file).read_bytes() == b"fp32 a " * 100
        answer = site.get(f"/{NAME}/resolve/{revision}/model.onnx")
        immutable = len(revision) >= 40
        assert answer.headers["x-repo-commit"] == digest.hex[:40]
        assert ("immutable" in answer.headers["cache-control"]) == immutable
    assert len(list((tmp_path / "models--acme--pii" / "snapshots").iterdir())) == 1


def test_a_second_download_moves_no_byte_of_a_file(site: Site, tmp_path: Path) -> None:
    def downloads() -> list[str]:
        snapshot_download(NAME, endpoint=site.url, cache_dir=tmp_path, token=False)
        site.get("/healthz")
        wait(lambda: "/healthz" in site.lines[-1])
        lines = [json.loads(line) for line in site.lines]
        site.lines.clear()
        return [line["path"] for line in lines if line["method"] == "GET" and "/resolve/" in line["path"]]

    assert len(downloads()) >= len(OWN)
    assert downloads() == []


def test_the_document_of_a_model(api: HfApi, filled: Registry) -> None:
    info = api.model_info(NAME, files_metadata=True)
    manifest = filled.get(NAME)
    assert (info.id, info.sha, info.pipeline_tag) == (NAME, manifest.digest.hex[:40], "token-classification")
    sizes = {file.rfilename: (file.size, file.lfs and file.lfs.sha256) for file in info.siblings or ()}
    assert sizes.keys() == OWN | ALIASES
    assert sizes["onnx/model.onnx"] == sizes["model.onnx"] == (700, sizes["model.onnx"][1])
    (entry,) = api.get_paths_info(NAME, ["onnx/model.onnx", "nothing"])
    assert (entry.path, entry.size) == ("onnx/model.onnx", 700)  # type: ignore[union-attr]
    assert api.model_info("tiny").id == "tiny"


def test_folders(api: HfApi) -> None:
    top = [entry.path for entry in api.list_repo_tree(NAME)]
    assert sorted(top) == sorted({path.partition("/")[0] for path in OWN | ALIASES})
    assert {entry.path for entry in api.list_repo_tree(NAME, "onnx")} == {
        path for path in ALIASES if path.startswith("onnx/")
    }
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(NAME, "nothing"))


def test_channels_are_branches_and_versions_are_tags(api: HfApi, filled: Registry) -> None:
    refs = api.list_repo_refs(NAME)
    old, new = (filled.get(f"{NAME}:{version}").digest.hex[:40] for version in ("0.1.0", "0.2.0"))
    assert {ref.name: ref.target_commit for ref in refs.branches} == {"main": new, "stable": old}
    assert {ref.name: ref.target_commit for ref in refs.tags} == {"0.1.0": old, "0.2.0": new}
    filled.tag(f"{NAME}:0.1.0", "main")
    assert api.model_info(NAME, revision="main").sha == old


def test_absent_models_files_and_revisions(site: Site, tmp_path: Path) -> None:
    def get(name: str, path: str, revision: str | None = None) -> Any:
        return hf_hub_download(
            name, path, revision=revision, endpoint=site.url, cache_dir=tmp_path, token=False
        )

    with pytest.raises(RepositoryNotFoundError, match="has no model acme/nothing"):
        get("acme/nothing", "model.onnx")
    with pytest.raises(RepositoryNotFoundError):
        get("Acme/PII", "model.onnx")
    for revision in ("9.9.9", "nothing", "0" * 40, "refs/pr/1"):
        with pytest.raises(RevisionNotFoundError):
            get(NAME, "model.onnx", revision)
    with pytest.raises(RemoteEntryNotFoundError, match="no file nothing"):
        get(NAME, "nothing.json")
    assert site.get(f"/{NAME}/resolve/main/../../../registry.json").status == 404


def test_a_yanked_version_is_there_by_digest_alone(api: HfApi, filled: Registry) -> None:
    digest = filled.get(f"{NAME}:0.2.0").digest
    filled.yank(f"{NAME}:0.2.0", "broken")
    assert api.model_info(NAME).sha == filled.get(f"{NAME}:0.1.0").digest.hex[:40]
    with pytest.raises(RevisionNotFoundError, match="yanked"):
        api.model_info(NAME, revision="0.2.0")
    assert api.model_info(NAME, revision=digest.hex[:40]).sha == digest.hex[:40]


def test_a_refused_file_has_no_alias_and_is_in_no_channel(
    api: HfApi, filled: Registry, tmp_path: Path
) -> None:
    filled.add(draft(tmp_path / "refused", "r", "refused"), "0.3.0")
    filled.tag(f"{NAME}:0.3.0", "beta")
    sound = {"model.onnx", "onnx/model.onnx", "config.json", "openmed-onnx.json"}
    assert (
        paths(api, "0.3.0")
        == paths(api, filled.get(f"{NAME}:0.3.0").digest.hex)
        == sound | {"model_int8.onnx"}
    )
    assert paths(api, "beta") == paths(api) == sound


@pytest.mark.parametrize("revision", ["beta", "main"])
def test_a_snapshot_of_a_channel_has_no_refused_file(
    site: Site, filled: Registry, tmp_path: Path, revision: str
) -> None:
    """The client asks for the files of a channel by its commit."""
    filled.add(draft(tmp_path / "refused", "r", "refused"), "0.3.0")
    filled.tag(f"{NAME}:0.3.0", "beta")
    root = Path(
        snapshot_download(NAME, revision=revision, endpoint=site.url, cache_dir=tmp_path / "c", token=False)
    )
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert files == {"model.onnx", "onnx/model.onnx", "config.json", "openmed-onnx.json"}


def test_a_second_name_is_never_immutable(site: Site, filled: Registry) -> None:
    digest = filled.get(NAME).digest
    caching = [
        site.get(f"/{NAME}/resolve/{digest.hex}/{path}").headers["cache-control"]
        for path in ("model_int8.onnx", "onnx/model_int8.onnx")
    ]
    assert ["immutable" in item for item in caching] == [True, False]


def test_external_data_beside_the_graphs_folder_gets_no_second_name(filled: Registry, tmp_path: Path) -> None:
    plain = draft(tmp_path / "plain", "x")
    (tmp_path / "plain" / "a").mkdir()
    (tmp_path / "plain" / "model.onnx").rename(tmp_path / "plain" / "a" / "model.onnx")
    (tmp_path / "plain" / "weights.data").write_bytes(b"weights")
    graph = replace(
        plain.artifacts[0], path="a/model.onnx", sidecars=(DraftFile("external-data", "weights.data"),)
    )
    filled.add(replace(plain, artifacts=(graph,)), "0.4.0")
    with running(filled.store.root) as site:
        names = paths(HfApi(endpoint=site.url, token=False), "0.4.0")
    assert names == {"a/model.onnx", "weights.data", "config.json", "openmed-onnx.json"}


def test_stages_of_a_pipeline_have_the_names_of_their_clients(filled: Registry, tmp_path: Path) -> None:
    plain = draft(tmp_path / "plain", "x")
    full, small = plain.artifacts
    graphs = {"enc.onnx": full, "enc8.onnx": small, "dec.onnx": full}
    for path in graphs:
        (tmp_path / "plain" / path).write_bytes(path.encode())
    stages = {"enc.onnx": "encoder_model", "enc8.onnx": "encoder_model", "dec.onnx": "decoder:merged"}
    artifacts = tuple(replace(graph, path=path, sidecars=(), parent=None) for path, graph in graphs.items())
    fields = {**plain.fields, "model_family": pipeline_of(stages)}
    filled.add(replace(plain, artifacts=artifacts, fields=fields), "0.4.0")
    with running(filled.store.root) as site:
        names = paths(HfApi(endpoint=site.url, token=False), "0.4.0")
        assert site.get(f"/{NAME}/resolve/0.4.0/onnx/encoder_model_quantized.onnx").body == b"enc8.onnx"
    stems = ("encoder_model", "encoder_model_int8", "encoder_model_quantized")
    second_names = {f"{folder}{stem}.onnx" for folder in ("", "onnx/") for stem in stems}
    assert names == {*graphs, *second_names, "config.json", "openmed-onnx.json"}


def test_many_files_in_deep_folders_are_listed_at_once(filled: Registry, tmp_path: Path) -> None:
    deep = write_draft(tmp_path / "deep", NAME, "d", 100)
    folder = "/".join("abcdefghij")
    (tmp_path / "deep" / folder).mkdir(parents=True)
    files = [DraftFile("other", f"{folder}/{number}.json") for number in range(2000)]
    for file in files:
        (tmp_path / "deep" / file.path).write_bytes(b"{}")
    filled.add(replace(deep, companions=(*deep.companions, *files)), "0.5.0")
    with running(filled.store.root) as site:
        entries = site.get(f"/api/models/{NAME}/tree/0.5.0?recursive=true").json
    folders = {entry["path"]: entry["oid"] for entry in entries if entry["type"] == "directory"}
    assert len(folders) == 11
    assert len(set(folders.values())) == 11


def test_a_policy_bars_a_channel(api: HfApi, filled: Registry) -> None:
    assert api.model_info(NAME, revision="stable").sha
    owner.set_policy(filled, read_policy(LAX, "policy"))
    with pytest.raises(GatedRepoError):
        api.model_info(NAME, revision="stable")
    assert api.model_info(NAME, revision="0.1.0").sha


@pytest.fixture
def guarded(filled: Registry) -> Iterator[Site]:
    with running(filled.store.root, Settings("t0ken")) as site:
        yield site
