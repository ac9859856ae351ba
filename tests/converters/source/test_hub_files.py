"""Files of the Hub: by their digests, in a folder of our own, whatever an endpoint names."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import close_session
from support.servers.hub import File, Hub, Repository, running

from onnxreg.converters.importers.confine import fetch_repository
from onnxreg.converters.tasks.checkpoint import locate
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError, RemoteError

NAME = "acme/tiny"
MAIN = f"models/{NAME}"


@dataclass(frozen=True)
class Named(File):
    """A file of which the Hub states another object id."""

    name: str = ""

    @property
    def oid(self) -> str:
        return self.name


def file(data: bytes) -> File:
    return File(data, len(data))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(tmp_path / "hub") as found:
        found.enter(monkeypatch, tmp_path / "hf")
        found.repositories[MAIN] = Repository()
        found.repositories[MAIN].add("main", "new", {"config.json": file(b"{}"), "model.bin": file(b"x")})
        yield found
        close_session()


def outside(tmp_path: Path) -> list[str]:
    """The files outside the cache and the emulator."""
    return [str(path) for path in tmp_path.rglob("*") if path.parts[len(tmp_path.parts)] not in ("hf", "hub")]


@pytest.mark.parametrize("what", ["{root}/victim/.zshenv", "../../../../../../victim"])
def test_a_digest_of_the_hub_is_no_path(hub, tmp_path, what):
    hub.files(NAME)["config.json"] = Named(b"touch pwned", 11, name=what.format(root=tmp_path))
    with pytest.raises(RemoteError):
        fetch_repository(f"hf://{NAME}")
    assert outside(tmp_path) == []


@pytest.mark.parametrize("commit", ["../../../victim", "main", "a" * 64, ""])
def test_a_commit_of_the_hub_is_no_path(hub, tmp_path, commit):
    hub.history(NAME)[-1].id = commit
    with pytest.raises(RemoteError):
        fetch_repository(f"hf://{NAME}")
    assert outside(tmp_path) == []


@pytest.mark.parametrize(
    "path", ["../x.json", "a/../../x.json", "/tmp/x.json", "..\\..\\x.json", "a\0b.json", f"{'a' * 300}.json"]
)
def test_odd_names_of_files_are_refused(hub, tmp_path, path):
    hub.files(NAME)[path] = file(b"{}")
    with pytest.raises(RegError):
        fetch_repository(f"hf://{NAME}")
    assert outside(tmp_path) == []
    del hub.files(NAME)[path]
    hub.files(NAME)[path.removesuffix(".json")] = file(b"not asked for")
    assert fetch_repository(f"hf://{NAME}").hub_id == NAME


@pytest.mark.parametrize("sent", [b"{ }", b"[]", b"{}" + b" " * 5000])
def test_other_bytes_than_listed_are_not_kept(hub, tmp_path, sent):
    honest = hub.files(NAME)["config.json"]
    hub.files(NAME)["config.json"] = Named(sent, len(sent), name=honest.oid)
    with pytest.raises((IntegrityError, RemoteError)):
        fetch_repository(f"hf://{NAME}")
    hub.files(NAME)["config.json"] = honest
    directory = fetch_repository(f"hf://{NAME}").directory
    assert (directory / "config.json").read_bytes() == b"{}"


def test_a_file_is_downloaded_once_and_again_if_it_was_damaged(hub):
    directory = fetch_repository(f"hf://{NAME}").directory
    hub.requests.clear()
    assert fetch_repository(f"hf://{NAME}").directory == directory
    assert not [line for line in hub.requests if "/resolve/" in line]
    (directory / "config.json").write_bytes(b"xx")
    assert (fetch_repository(f"hf://{NAME}").directory / "config.json").read_bytes() == b"{}"


def test_a_download_that_breaks_off_is_continued(hub):
    data = bytes(range(256)) * 100
    hub.files(NAME)["vocab.txt"] = file(data)
    hub.fail(r"GET .*/vocab\.txt", cut=len(data) - 1, times=8)
    with pytest.raises(RemoteError):
        fetch_repository(f"hf://{NAME}")
    hub.faults.clear()
    path = fetch_repository(f"hf://{NAME}").directory / "vocab.txt"
    assert path.read_bytes() == data
    (blob,) = (other for other in (path.parents[2] / "blobs").iterdir() if other.samefile(path))
    blob.rename(blob.with_suffix(".part")).write_bytes(data + b"too long")
    assert (fetch_repository(f"hf://{NAME}").directory / "vocab.txt").read_bytes() == data


def test_without_a_network_the_hub_is_not_reached(hub, monkeypatch):
    locate(NAME)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(RemoteError, match="cannot be reached"):
        locate(NAME)


@pytest.mark.more
def test_a_listing_is_bounded_also_if_it_begins_again_and_again(hub, monkeypatch):
    for number in range(1100):
        hub.files(NAME)[f"folder{number}/x.bin"] = file(b"")
    assert locate(NAME).hub_id == NAME
    monkeypatch.setattr("onnxreg.converters.source.hub.MAX_FILES", 1000)
    with pytest.raises(RemoteError):
        locate(NAME)
    for number in range(1100):
        del hub.files(NAME)[f"folder{number}/x.bin"]
    whole = HfApi.list_repo_tree
    monkeypatch.setattr(HfApi, "list_repo_tree", lambda *args, **more: cycle([*whole(*args, **more)]))
    with pytest.raises(RemoteError, match="more than 1,000 files"):
        locate(NAME)


@pytest.mark.parametrize("answer", [b"[" * 100_000, b"{}", b"null", b"<html>", b'{"sha": 1}', b"\xff"])
def test_an_answer_that_is_not_the_hubs_is_an_error_of_the_remote(hub, answer):
    hub.fail("GET /api/", status=200, times=9, body=answer)
    with pytest.raises(RemoteError):
        locate(NAME)


def test_a_missing_revision_is_no_missing_repository(hub):
    for name, words in ((f"{NAME}@nope", "revision nope"), ("acme/nope@main", "repository")):
        with pytest.raises(NotFoundError, match=words):
            fetch_repository(f"hf://{name}")


@pytest.mark.parametrize(
    ("there", "fetched"),
    [
        ("model.safetensors pytorch_model.bin", "model.safetensors"),
        ("model.safetensors.index.json model-1.safetensors pytorch_model.bin", "model-1.safetensors model.safetensors.index.json"),
        ("model.fp16.safetensors pytorch_model.bin", "pytorch_model.bin"),
    ],
)  # fmt: skip
def test_the_weights_that_will_be_read_are_fetched(hub, there, fetched):
    hub.files(NAME).update({name: file(b"{}") for name in there.split()})
    names = {path.name for path in locate(NAME).directory.iterdir()}
    assert names == {"config.json", *fetched.split()}


def test_links_out_of_a_directory_are_refused(tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    directory = tmp_path / "model"
    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "config.json").symlink_to("settings.json")
    (directory / "settings.json").write_text("{}")
    assert locate(str(directory)).directory == directory
    (directory / "1_Pooling" / "config.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(InputError, match="1_Pooling/config"):
        locate(str(directory), more=["*_Pooling/config.json"])
    (directory / "generation_config.json").symlink_to("../secret.json")
    with pytest.raises(InputError, match="generation_config"):
        locate(str(directory))


def test_links_to_blobs_of_the_same_cache_are_followed(tmp_path):
    digest = hashlib.sha256(b"{}").hexdigest()
    one, other = (tmp_path / name / "snapshots" / "0123abcd" for name in ("one", "other"))
    for snapshot in (one, other):
        snapshot.mkdir(parents=True)
        (snapshot.parents[1] / "blobs").mkdir()
        (snapshot.parents[1] / "blobs" / digest).write_text("{}")
    for folder in (one, one / "encoder", other):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").symlink_to(tmp_path / "one" / "blobs" / digest)
    for folder in (one, one / "encoder"):
        assert locate(str(folder)).directory == folder
    with pytest.raises(InputError):
        locate(str(other))
