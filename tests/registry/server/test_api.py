"""The questions: answers of the command line, kept while they are true, as the description says; a reason for whatever is wrong."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs
from starlette.routing import Route
from support.registries import owner
from support.registries.gated import LAX, NAME
from support.sampling import sampled
from support.servers.regserve import Answer, running

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.server import api
from onnxreg.registry.server.pages.pages import Pages
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.server import DESCRIPTION, Metrics, routes
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import CATALOG, blob_path
from onnxreg.schema.core import files
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import GateError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.query.resolve import Query


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
    for method in ("resolve", "answer"):  # without `answer` no thread is needed
        monkeypatch.setattr(ServedRegistry, method, refuse)
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


HOSTS = ["models.example", "models.example:8443", "my_registry:8000", "[::1]:80", "127.0.0.1"]
NO_HOSTS = ["", "a b", "a/b", "a@b", "<script>", "a:b", "a" * 300, "[::1"]


def test_urls_are_those_of_the_operator_or_those_that_the_client_used(site):
    with running(site.root, Settings(url="https://models.example/x")) as named:
        url = named.resolve({"ref": "tiny"}, Host="evil host").json["files"][0]["url"]
        assert url.startswith("https://models.example/x/blobs/sha256/")
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
    """The state line fits its history, contradicts a manifest, and nothing was seen of it before."""
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
    for path in (*paths, *paths, f"/{CATALOG}"):
        answer = site.get(path)
        assert (path, answer.status, answer.error["family"]) == (path, 503, "environment")
        assert str(site.root) not in answer.body.decode()
    assert site.resolve({"ref": "tiny"}).status == 503
    assert site.get("/", Accept="text/html").status == 503
    site.root.with_name("away").rename(site.root)
    assert [site.get(path).status for path in paths] == [200] * len(paths)
    assert site.get("/healthz").status == 200


STABLE = f"{NAME}:stable"


@pytest.fixture(params=[0, files.SETTLED_NANOSECONDS], ids=["cached", "read"])
def age(request, monkeypatch) -> None:
    """Index files are kept from the first moment, or only once they are old."""
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", request.param)


@pytest.mark.usefixtures("age")
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


@pytest.mark.usefixtures("age")
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
    (own_user / "trust").write_text("")
    assert site.resolve(asked).json["version"] == "0.2.0"


@pytest.mark.usefixtures("age")
def test_a_server_whose_registry_went_back_says_so(site, filled):
    index = filled.store.root / "index" / "acme" / "pii.jsonl"
    before = index.read_bytes()
    filled.tag("acme/pii:0.2.0", "stable")
    assert site.resolve({"ref": "acme/pii:stable"}).json["version"] == "0.2.0"
    index.write_bytes(before)
    refused = site.resolve({"ref": "acme/pii:stable"})
    assert refused.error["family"] == "integrity"
    assert filled.place not in str(refused.error)


@pytest.mark.parametrize("pulled", [STABLE, f"{NAME}:1.0.0", None])
def test_offline_the_gate_is_what_it_was(gated, tmp_path, pulled):
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    reader = Registry(tmp_path / "reader")
    with running(gated.store.root) as site:
        reader.pull(pulled, site.url) if pulled else reader.fetch_index([NAME], site.url)
    found = reader.resolve(STABLE, remote=reader.remotes.read(site.url, offline=lambda name, age: None))
    assert str(found.located.version) == "1.0.0"


def test_offline_a_version_that_was_not_promoted_is_refused(gated, tmp_path):
    Decisions(gated.store).tag(Ref.parse(f"{NAME}:1.2.0"), "stable")
    reader = Registry(tmp_path / "reader")
    reader.fetch_index([], gated.place)
    with pytest.raises(GateError):
        reader.resolve(STABLE, remote=reader.remotes.read(gated.place, offline=lambda name, age: None))


DOCUMENT = json.loads(DESCRIPTION.read_bytes())


def test_every_route_is_described_and_each_is_there(filled):
    registry, settings = ServedRegistry.open(filled.store.root), Settings()
    found = routes(registry, settings, Metrics(), Pages(registry, settings))
    routed = [(route.path.replace(":path", ""), route.methods) for route in found if isinstance(route, Route)]
    there = {(path, method) for path, methods in routed for method in methods - {"HEAD"}}
    described = {(path, method.upper()) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == there


def test_a_question_has_the_keys_of_a_query():
    properties = DOCUMENT["components"]["schemas"]["Request"]["properties"]
    assert properties.keys() - {"ref", "device"} == {field.encode_name for field in structs.fields(Query)}


def check(path: str, method: str, answer: Answer) -> None:
    """Whether an answer is as the document says."""
    responses = DOCUMENT["paths"][path]["get" if method == "HEAD" else method.lower()]["responses"]
    described = responses.get(str(answer.status)) or responses["default"]
    if "$ref" in described:
        described = DOCUMENT["components"]["responses"][described["$ref"].rpartition("/")[2]]
    content = described.get("content", {})
    if not content or method == "HEAD":
        assert answer.body == b""
        return
    media_type = answer.headers["content-type"].partition(";")[0]
    if media_type == "application/json" and answer.status != 206:
        from jsonschema import Draft202012Validator

        schema = {**content[media_type]["schema"], "components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(answer.json)
    else:
        assert media_type in content


def cases(registry: Registry) -> Iterator[tuple[str, str]]:
    """Paths of requests, each with the described path that it belongs to."""
    plain = {
        "/index/{file}": ["/index/tiny.jsonl", "/index/nothing.jsonl"],
        "/index/{org}/{file}": ["/index/acme/pii.jsonl"],
        "/blobs/sha256/{shard}/{key}": [
            f"/{blob_path(registry.get('tiny').digest)}",
            f"/blobs/sha256/00/{'0' * 64}",
        ],
        "/v1/models": ["/v1/models", "/v1/models?limit=1", "/v1/models?limit=0"],
        "/v1/models/{name}": ["/v1/models/tiny", "/v1/models/TINY", "/v1/models/nothing"],
        "/v1/models/{org}/{name}": ["/v1/models/acme/pii"],
        "/": ["/", "/?q=certified", "/?q=certified+and"],
        "/models/{name}": ["/models/tiny", "/models/TINY"],
        "/models/{org}/{name}": ["/models/acme/pii"],
        "/models/{name}:{tag}": ["/models/tiny:1.0.0"],
        "/models/{org}/{name}:{tag}": ["/models/acme/pii:stable", "/models/acme/pii:9.9.9"],
        "/diff": ["/diff?old=acme/pii:0.1.0&new=acme/pii", "/diff?old=tiny"],
        **{path: [path] for path in ("/registry.json", "/healthz", "/metrics", "/openapi.json")},
    }
    yield from ((path, described) for described, paths in plain.items() for path in paths)
    for model, name in (("tiny", "{name}"), ("acme/pii", "{org}/{name}")):
        for end in ("", "?blobs=true", "/refs"):
            yield f"/api/models/{model}{end}", f"/api/models/{name}{end.partition('?')[0]}"
        for revision in ("main", "9.9.9"):
            yield f"/api/models/{model}/revision/{revision}", f"/api/models/{name}/revision/{{revision}}"
            tree = f"/api/models/{name}/tree/{{revision}}"
            yield f"/api/models/{model}/tree/{revision}?recursive=true", tree
            yield f"/api/models/{model}/tree/{revision}/onnx", f"{tree}/{{path}}"
            for path in ("config.json", "nothing.json"):
                for way in ("resolve", "raw"):
                    yield f"/{model}/{way}/{revision}/{path}", f"/{name}/{way}/{{revision}}/{{path}}"


CONDITIONAL = ({}, {"Range": "bytes=0-1"}, {"Range": "bytes=999999-"}, {"If_None_Match": "*"})


@pytest.mark.parametrize("damaged", sampled([False, True], 2))
def test_answers_are_as_described(site, filled, damaged):
    requests = list(cases(filled))
    filled.yank("acme/pii:0.1.0", "broken")
    owner.pin(filled, "acme/pii:0.2.0")
    if damaged:
        (site.root / "index/acme/pii.jsonl").write_bytes(b"{}\n")
    statuses = set()
    for path, described in requests:
        for headers in CONDITIONAL:
            for method in ("GET", "HEAD"):
                answer = site.ask(method, path, **headers)
                check(described, method, answer)
                statuses.add(answer.status)
    for question in ({"ref": "tiny"}, {"ref": "acme/pii"}, {"ref": "nothing"}, {}):
        check("/v1/resolve", "POST", site.resolve(question))
    assert statuses == {200, 206, 304, 400, 404, 416} | ({500} if damaged else set())


def test_a_guarded_server_answers_as_described(filled):
    with running(filled.store.root, Settings("t0ken")) as site:
        assert site.get("/openapi.json", Authorization="Bearer t0ken").json == DOCUMENT
        for path, described in cases(filled):
            check(described, "GET", site.get(path))
        check("/v1/resolve", "POST", site.resolve({"ref": "tiny"}))


def _speaks(case: Any) -> bool:
    """True if a request has what no schema can judge: an expression, a size, a device, or 1.0 for 1."""
    body = case.body if isinstance(case.body, dict) else {}
    if isinstance(body.get("context"), float):
        return True
    return case.path == "/" or any(body.get(key) is not None for key in ("where", "max_size", "device"))


@pytest.mark.parametrize(
    "examples", [pytest.param(10, marks=pytest.mark.more), pytest.param(100, marks=pytest.mark.large)]
)
def test_schemathesis_finds_nothing(site, examples):
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_url(f"{site.url}/openapi.json")
    asked = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        asked.add((operation.path, operation.method))

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            """A condition that does not hold is no refusal of the request."""
            answer = case.call()
            misread = answer.status_code == 400 and _speaks(case)
            excluded = [positive_data_acceptance] if misread or answer.status_code == 416 else []
            case.validate_response(answer, excluded_checks=excluded)

        ask()
    asked.add(("/openapi.json", "get"))  # left out, since the document was read from there
    assert asked == {(path, method) for path, item in DOCUMENT["paths"].items() for method in item}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["ref", "formats", "precision", "x"]), inner, max_size=4)
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_question_is_the_servers_fault(site, body):
    answer = site.resolve(body)
    assert answer.status in (200, 400, 404, 409)
    check("/v1/resolve", "POST", answer)
