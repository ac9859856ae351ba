"""The description is true: of every route, of answers that were made on purpose, and of those that a fuzzer finds."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs
from starlette.routing import Route
from support.registries import owner
from support.sampling import sampled
from support.servers.regserve import Answer, running

from onnxreg.registry import Registry
from onnxreg.registry.server.middleware import Metrics
from onnxreg.registry.server.pages.pages import Pages
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.server import DESCRIPTION, routes
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.store.layout import blob_path
from onnxreg.schema.query.requirements import Query

DOCUMENT = json.loads(DESCRIPTION.read_bytes())


def test_every_route_is_described_and_each_is_there(filled):
    registry, settings, limits = ServedRegistry.open(filled.store.root), Settings(), Limits()
    found = routes(registry, settings, limits, Metrics(), Pages(registry, settings, limits))
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
    """True if a request has a text in a language that no schema knows: an expression, a size, a device.

    The same holds of a whole number that is written as 1.0: it is an integer for a schema only.
    """
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
