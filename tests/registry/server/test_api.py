"""The questions: the answers of the command line, kept while they are true, and a reason for whatever is wrong."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import LAX, NAME
from support.servers.regserve import running
from support.trust.attack_operations import attack

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.server import api
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import blob_path
from onnxreg.schema.core import files
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, IntegrityError
from onnxreg.schema.gates.policy import Policy, read_policy


def printed(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> Any:
    """What the command line says with --json."""
    capsys.readouterr()
    assert main(["--registry", str(root), *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_models_are_those_of_ls(site, capsys):
    assert site.get("/v1/models").json == printed(capsys, site.root, "ls")
    for name in ("acme/pii", "tiny"):
        assert site.get(f"/v1/models/{name}").json == printed(capsys, site.root, "ls", name)
    assert site.get("/v1/models/acme%2fpii").json["name"] == "acme/pii"


def test_models_come_in_pages(site):
    first = site.get("/v1/models?limit=1").json
    assert [model["name"] for model in first["models"]] == ["acme/pii"]
    second = site.get(f"/v1/models?limit=1&after={first['next']}").json
    assert [model["name"] for model in second["models"]] == ["tiny"]
    assert "next" not in second
    assert site.get("/v1/models?after=zzz").json == {"models": []}
    for limit in ("0", "1001", "-1", "x", "", "9" * 5000):
        assert site.get(f"/v1/models?limit={limit}").error["family"] == "input"


QUESTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"ref": "acme/pii"}, ["acme/pii"]),
    ({"ref": "acme/pii:stable"}, ["acme/pii:stable"]),
    ({"ref": "acme/pii:0.1.0", "formats": ["onnx-android"]}, ["acme/pii:0.1.0", "--format", "onnx-android"]),
    ({"ref": "acme/pii", "precision": "float32", "formats": None}, ["acme/pii", "--precision", "float32"]),
]


@pytest.mark.parametrize(("question", "words"), QUESTIONS)
def test_resolve_is_that_of_the_command_line(site, capsys, question, words):
    expected = printed(capsys, site.root, "resolve", *words)
    found = site.resolve(question).json
    for here, there in zip(found["files"], expected["files"], strict=True):
        url = here.pop("url")
        assert url.startswith(f"{site.url}/blobs/")
        assert there.pop("url").endswith(url.removeprefix(site.url))
        data = site.get(url.removeprefix(site.url)).body
        assert (str(Digest.of(data)), len(data)) == (here["digest"], here["size"])
    assert found == expected


def test_the_first_rejections_are_listed_and_the_others_counted(site, monkeypatch):
    question = {"ref": "acme/pii", "precision": "float32"}
    whole = site.resolve(question).json
    assert len(whole["rejected"]) == 1 and "rejected_omitted" not in whole
    monkeypatch.setattr(api, "MAX_REJECTIONS", 0)
    cut = site.resolve({**question, "formats": None}).json
    assert (cut["rejected"], cut["rejected_omitted"]) == ([], 1)


def refuse(*arguments: Any, **options: Any) -> Any:
    raise AssertionError("made again")


def test_a_warm_question_is_not_resolved_again(site, monkeypatch):
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", 0)
    questions = [question for question, _ in QUESTIONS]
    first = [site.resolve(question).body for question in questions]
    monkeypatch.setattr(ServedRegistry, "resolve", refuse)
    assert [site.resolve(question).body for question in questions] == first
    assert site.resolve({"ref": "tiny"}).status == 500


LISTS = ("/v1/models", "/v1/models/tiny", "/", "/models/tiny", "/v1/models?limit=1", "/models/tiny:1.0.0")


@pytest.mark.parametrize("first", ["the server", "another process"])
def test_a_list_changes_with_the_registry(site, filled, monkeypatch, first):
    """Whoever brings the catalog up to date."""
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", 0)
    for number in range(1, 4):
        for path in LISTS:
            site.get(path)
        filled.tag("tiny:1.0.0", f"channel-{number}")
        if first == "another process":
            LocalCatalog(DirectoryRegistry.open(site.root)).refresh()
        for path in LISTS[:4]:
            assert f"channel-{number}" in site.get(path).body.decode()


def test_urls_are_those_of_the_operator(filled):
    with running(filled.store.root, Settings(url="https://models.example/x")) as site:
        url = site.resolve({"ref": "tiny"}, Host="evil host").json["files"][0]["url"]
        assert url.startswith("https://models.example/x/blobs/sha256/")


HOSTS = ["models.example", "models.example:8443", "my_registry:8000", "[::1]:80", "127.0.0.1"]
NO_HOSTS = ["", "a b", "a/b", "a@b", "<script>", "a:b", "a" * 300, "[::1"]


def test_urls_are_those_that_the_client_used(site):
    assert site.resolve({"ref": "tiny"}).json["files"][0]["url"].startswith(f"{site.url}/")
    for host in HOSTS + NO_HOSTS:
        answer = site.raw("POST", "/v1/resolve", b'{"ref":"tiny"}', host)
        assert answer.status == (200 if host in HOSTS else 400), host
        if host in HOSTS:
            assert answer.json["files"][0]["url"].startswith(f"http://{host}/blobs/")


ZEROS = "0" * 64
BAD: dict[tuple[int, str], list[bytes]] = {
    (400, "input"): [
        *(b"", b"{", b"[]", b"null", b'"tiny"', b"{}", b"[" * 10_000, b"\xff"),
        *(b'{"ref": %s}' % ref for ref in (b"1", b"null", b'""', b'"TINY"', b'"../tiny"', b'"tiny:"')),
        *(b'{"ref": "tiny@sha256:00"}', b'{"ref": "tiny", "ref": "tiny"}'),
        *(b'{"ref": "tiny", "formats": %s}' % formats for formats in (b'"onnx"', b"[1]")),
        *(b'{"ref": "tiny", "precision": %s}' % word for word in (b'["int8"]', b"NaN", b'"\\ud800"')),
        b'{"ref": "tiny", "format": ["onnx"]}',
    ],
    (404, "not-found"): [
        *(b'{"ref": "unknown"}', b'{"ref": "tiny:9.9.9"}', b'{"ref": "tiny:stable"}'),
        *(b'{"ref": "tiny", "formats": ["tflite"]}', f'{{"ref": "tiny@sha256:{ZEROS}"}}'.encode()),
    ],
    (409, "conflict"): [f'{{"ref": "tiny:1.0.0@sha256:{ZEROS}"}}'.encode()],
}


def test_bad_questions(site):
    for expected, bodies in BAD.items():
        for body in [*bodies, *bodies]:
            answer = site.resolve(body)
            assert (answer.status, answer.error["family"]) == expected, body
            assert answer.error["message"]
            assert str(site.root) not in answer.body.decode()
            assert answer.headers["cache-control"] == "no-store"


def test_names_that_are_none(site):
    for name in ("TINY", "a/b/c", "con", "..", "a..b", "x" * 300, "%ff", "a%20b"):
        assert site.get(f"/v1/models/{name}").status == (404 if name == "a/b/c" else 400), name
    assert site.get("/v1/models/unknown").error["family"] == "not-found"


def test_a_damaged_index_is_the_servers_fault(site):
    path = site.root / "index/tiny.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes().partition(b"\n")[2])
    for answer in (site.get("/v1/models/tiny"), site.resolve({"ref": "tiny"})):
        assert (answer.status, answer.error["family"]) == (500, "integrity")
        assert str(site.root) not in answer.body.decode()
    assert site.get("/index/tiny.jsonl").body == path.read_bytes()
    listed = site.get("/v1/models").json
    assert listed["damaged"] == 1
    assert [model["name"] for model in listed["models"]] == ["acme/pii"]


@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_a_damaged_or_lost_manifest_is_the_servers_fault(site, filled, damage):
    digest = filled.get("tiny").digest
    path = site.root / blob_path(digest)
    path.chmod(0o600)
    path.write_bytes(b"{}") if damage == "changed" else path.unlink()
    refs = ("tiny", "tiny:1.0.0", f"tiny:1.0.0@{digest}", f"tiny@{digest}")
    for answer in (*(site.resolve({"ref": ref}) for ref in refs), site.get("/api/models/tiny")):
        assert (answer.status, answer.error["family"]) == (500, "integrity")
    assert site.get("/models/tiny:1.0.0", Accept="text/html").status == 500
    assert site.get(f"/{blob_path(digest)}").status == (200 if damage == "changed" else 404)


def test_an_index_that_lies_is_no_answer(site):
    """The state line fits its history, and says other things of a version than the version's manifest.

    Nothing was seen of it before: else the known head says so first.
    """
    path = site.root / "index/acme/pii.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"state":"unknown"', b'"state":"certified"'))
    for _ in range(2):
        answer = site.resolve({"ref": "acme/pii"})
        assert (answer.status, answer.error["family"]) == (500, "integrity")
        assert "says other things of manifest" in answer.error["message"]


def test_an_error_names_no_path_and_no_command(site, monkeypatch):
    def denied(folder: object = ".", *args: Any, **options: Any) -> int:
        raise PermissionError(errno.EACCES, "denied", str(folder))

    for path in site.root.glob("blobs/sha256/*/*"):
        path.unlink()
    errors = [site.resolve({"ref": "tiny"})]
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", denied)
        errors += [site.get("/v1/models"), site.get("/", Accept="text/html")]
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        errors += [site.get("/registry.json"), site.resolve({"ref": "acme/pii"})]
    assert [error.status for error in errors] == [500, 503, 503, 503, 503]
    for text in (error.body.decode() for error in errors):
        assert "those who run this server" in text
        assert str(site.root) not in text and "reg verify" not in text


def test_a_registry_that_is_gone(site):
    """Warm or not: nothing is merely missing where everything is."""
    assert site.get("/healthz").json == {"status": "ok"}
    resolved = site.resolve({"ref": "tiny"}).json
    blob = resolved["files"][0]["url"].removeprefix(site.url)
    paths = ["/healthz", "/registry.json", "/index/tiny.jsonl", blob, "/v1/models", "/v1/models/tiny"]
    assert [site.get(path).status for path in paths] == [200] * len(paths)
    site.root.rename(site.root.with_name("away"))
    for path in (*paths, *paths):
        answer = site.get(path)
        assert (path, answer.status, answer.error["family"]) == (path, 503, "environment")
        assert str(site.root) not in answer.body.decode()
    assert site.resolve({"ref": "tiny"}).status == 503
    assert site.get("/", Accept="text/html").status == 503
    site.root.with_name("away").rename(site.root)
    assert [site.get(path).status for path in paths] == [200] * len(paths)
    assert site.get("/healthz").status == 200


STABLE = f"{NAME}:stable"


def test_an_answer_follows_from_the_policy_too(site, filled):
    asked = {"ref": "acme/pii:stable"}
    assert site.get("/policy.jsonl").status == 404
    assert site.resolve(asked).json["version"] == "0.1.0"
    owner.set_policy(filled, read_policy(LAX, "policy"))
    refused = site.resolve(asked)
    assert (refused.status, refused.error["family"]) == (409, "gate")
    assert site.get("/policy.jsonl").status == 200
    assert site.resolve({"ref": "acme/pii:0.1.0"}).json["version"] == "0.1.0"
    owner.set_policy(filled, Policy())
    assert site.resolve(asked).json["version"] == "0.1.0"


def test_an_answer_follows_from_the_trust_file_too(site, filled, own_user):
    asked = {"ref": "acme/pii"}
    assert site.resolve(asked).json["version"] == "0.2.0"
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text('[[require]]\nmodels = ["acme/*"]\nversions = true\n')
    refused = site.resolve(asked)
    assert (refused.status, refused.error["family"]) == (500, "integrity")
    assert site.resolve({"ref": "tiny"}).json["version"] == "1.0.0"
    (own_user / "trust").write_text('[[require]]\nmodels = ["acme/*"]\nlines = true\n')
    assert site.resolve(asked).error["family"] == "integrity"
    (own_user / "trust").write_text("garbage = [")
    for refused in (site.resolve(asked), site.get("/acme/pii/resolve/main/x"), site.get("/models/acme/pii")):
        assert refused.status == 503 and str(own_user) not in refused.body.decode()
    (own_user / "trust").unlink()
    assert site.resolve(asked).json["version"] == "0.2.0"


def test_a_server_whose_registry_went_back_says_so(site, filled):
    index = filled.store.root / "index" / "acme" / "pii.jsonl"
    before = index.read_bytes()
    filled.tag("acme/pii:0.2.0", "stable")
    assert site.resolve({"ref": "acme/pii:stable"}).json["version"] == "0.2.0"
    index.write_bytes(before)
    refused = site.resolve({"ref": "acme/pii:stable"})
    assert refused.error["family"] == "integrity"
    assert str(filled.store.root) not in str(refused.error)


@pytest.fixture
def pulled(gated, tmp_path) -> Iterator[tuple[Registry, str]]:
    """A reader who pulled a governed channel, and the URL of the server."""
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    reader = Registry(tmp_path / "reader")
    with running(gated.store.root) as site:
        assert reader.pull(STABLE, site.url).versions
        yield reader, site.url


def test_a_client_finds_the_evidence_anew(pulled, gated):
    reader, url = pulled
    attack(gated, "forge 1.2.0")
    for read in (
        lambda: reader.pull(STABLE, url),
        lambda: reader.resolve(STABLE, remote=reader.remotes.read(url)),
    ):
        with pytest.raises(GateError, match="refused"):
            read()


def test_a_policy_that_disappears_is_damage(pulled, gated):
    reader, url = pulled
    (gated.store.root / "policy.jsonl").unlink()
    with pytest.raises(IntegrityError, match="is gone"):
        reader.resolve(STABLE, remote=reader.remotes.read(url))


def test_offline_the_gate_is_what_it_was(gated, tmp_path):
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    reader = Registry(tmp_path / "reader")
    with running(gated.store.root) as site:
        reader.pull(STABLE, site.url)
    found = reader.resolve(STABLE, remote=reader.remotes.read(site.url, offline=lambda name, age: None))
    assert str(found.located.version) == "1.0.0"
