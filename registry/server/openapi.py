"""OpenAPI 3.1 document of the server. Written by hand; tests compare it with the routes and answers."""

from collections.abc import Iterable
from typing import Any

from onnxreg.schema.core.canonical import MAX_INTEGER

Json = dict[str, Any]

DIGEST = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
PART = r"[a-z0-9]((\.?[a-z0-9_-])*\.?[a-z0-9])?"
NAME = f"{PART}(/{PART})?"
TAG = "[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}"
REF = rf"{NAME}(:{TAG})?(@sha256:[0-9a-f]{{64}})?"
NUMBER = "(0|[1-9][0-9]*)"
PRE = f"({NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
VERSION = rf"{NUMBER}\.{NUMBER}\.{NUMBER}(-{PRE}(\.{PRE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
REVISION = f"({TAG}|sha256:[0-9a-f]{{64}})"
PATH = "[A-Za-z0-9._-]+"
HUB_QUERIES = {"blobs": "`true`: with sizes and digests.", "recursive": "`true`: with folders in folders."}
TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
FLAG = {"type": "boolean"}
BYTES = "application/octet-stream"
SEARCHES = {
    "q": "An expression; see docs/query.md.",
    "words": "At most 20 words, each of them part of the texts of a model's newest release.",
    **{key: f"The {key} of the newest release." for key in ("task", "license", "format")},
}
"""The parameters of a search on the first page."""


def document(guarded: bool) -> Json:
    """The document of a server; `guarded`: it requires a token."""
    description: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "onnxreg",
            "version": "1",
            "summary": "A registry of ONNX models, for reading.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": "pages", "description": "For people, in a browser."},
            {"name": "hub", "description": "For clients of the Hugging Face Hub."},
        ],
        "paths": {path: _guarded(item, path) if guarded else item for path, item in _paths().items()},
        "components": {"schemas": _schemas()},
    }
    if guarded:
        description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        description["security"] = [{"token": []}]
    return description


def _guarded(item: Json, path: str) -> Json:
    """Add the answer to requests without a token to each operation of a path."""
    for operation in item.values():
        if path == "/healthz":
            operation["security"] = []
        else:
            operation["responses"] |= _errors("401")
    return item


def _paths() -> Json:
    name, org = _parameter("name", PART), _parameter("org", PART)
    file = _parameter("file", rf"{PART}\.jsonl")
    shard, key = _parameter("shard", "[0-9a-f]{2}"), _parameter("key", r"[0-9a-f]{64}(\.[1-7])?")
    index = "A model's index file: line 1 is its state, the others are the latest lines of its log."
    policies = "The registry's log of policies, if it has one."
    snapshot = "The snapshot of what can be searched, if it was published."
    snapshot_table = "The same as a table."
    versions = "The versions of a model, newest first."
    return {
        "/registry.json": _file("Which registry this is.", "application/json"),
        "/policy.jsonl": _readable(policies, "application/jsonl", TEXT, (), ("404",)),
        "/index/{file}": _file(index, "application/jsonl", file),
        "/index/{org}/{file}": _file(index, "application/jsonl", org, file),
        "/blobs/sha256/{shard}/{key}": _file("A blob, by the SHA-256 of its bytes.", BYTES, shard, key),
        "/search/snapshot.sqlite.gz": _readable(snapshot, BYTES, {}, (), ("404",)),
        "/search/snapshot.parquet": _readable(snapshot_table, BYTES, {}, (), ("404",)),
        "/v1/models": _document("The models, by name.", "Models", (), ("400", "5XX"), *_paging()),
        "/v1/models/{name}": _document(versions, "Versions", (name,), ("400", "404")),
        "/v1/models/{org}/{name}": _document(versions, "Versions", (org, name), ("400", "404")),
        "/v1/resolve": {"post": _resolve()},
        "/healthz": _plain("Whether the registry can be read.", "application/json", _object(status=TEXT)),
        "/metrics": _plain("Counters, as Prometheus reads them.", "text/plain", TEXT),
        "/openapi.json": _document("This document.", "Document", (), ()),
        **_hub((name,)),
        **_hub((org, name)),
        **_pages(name, org),
    }


def _hub(names: tuple[Json, ...]) -> Json:
    """The routes of the Hugging Face Hub, for clients of the Hub."""
    model = "/".join(f"{{{part['name']}}}" for part in names)
    revision, path = _parameter("revision", REVISION), _parameter("path", PATH)
    info = "A version as a repository of the Hub: its commit and its files."
    tree = "The files of a version, as the Hub lists them."
    file = "A file of a version, by its own path or by that of another library (docs/hub.md)."
    errors = ("404", "409")
    blobs, recursive = (_query(key, {"type": "string"}, text) for key, text in HUB_QUERIES.items())

    def read(summary: str, *parameters: Json) -> Json:
        return _readable(summary, "application/json", {}, (*names, *parameters), errors)

    def content() -> Json:
        return _readable(file, BYTES, {}, (*names, revision, path), errors)

    paths = {
        f"/api/models/{model}": read(info, blobs),
        f"/api/models/{model}/revision/{{revision}}": read(info, revision, blobs),
        f"/api/models/{model}/tree/{{revision}}": read(tree, revision, recursive),
        f"/api/models/{model}/tree/{{revision}}/{{path}}": read(tree, revision, path, recursive),
        f"/api/models/{model}/refs": read("Channels as branches, versions as tags."),
        f"/api/models/{model}/paths-info/{{revision}}": {"post": _paths_info((*names, revision))},
        f"/{model}/resolve/{{revision}}/{{path}}": content(),
        f"/{model}/raw/{{revision}}/{{path}}": content(),
    }
    for item in paths.values():
        for operation in item.values():
            operation["tags"] = ["hub"]
    return paths


def _paths_info(parameters: tuple[Json, ...]) -> Json:
    summary = "The entries of some paths of a version."
    form = _object([], paths=_array(TEXT), expand=TEXT)
    content = {"application/x-www-form-urlencoded": {"schema": form}}
    return {
        "summary": summary,
        "parameters": list(parameters),
        "requestBody": {"required": False, "content": content},
        "responses": {
            "200": _content(summary, "application/json", {}),
            "304": {"description": "What the client has is the present one."},
            **_errors("404", "408", "409", "412", "413", "5XX"),
        },
    }


def _history() -> list[Json]:
    model = _query("model", {**TEXT, "pattern": f"^{NAME}$"}, "The name of a model.", required=True)
    return [model, _query("metric", TEXT, "The name of a figure; by default the first one.")]


def _pages(name: Json, org: Json) -> Json:
    """Pages for a browser, not for programs."""
    tag = _parameter("tag", TAG)
    model = "A model: versions, channels, artifacts, its log."
    version = "A version, as its manifest tells it."
    after = _query("after", TEXT, "As /v1/models has it.")
    searches = [_query(key, TEXT, text) for key, text in SEARCHES.items()]
    older = _query(
        "older", {**TEXT, "pattern": f"^{VERSION}$", "maxLength": 128}, "Only versions below this one."
    )
    before = _query(
        "before",
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
        "Only lines of the log before this one.",
    )
    refs = [
        _query(side, {**TEXT, "pattern": f"^{REF}$"}, "NAME[:TAG][@sha256:...].", required=True)
        for side in ("old", "new")
    ]
    file = _parameter("file", "[a-z0-9.-]+")
    errors = ("400", "404")
    return {
        "/": _page(
            "The models that words find, or the artifacts that fit an expression.", ("400",), *searches, after
        ),
        "/models/{name}": _page(model, errors, name, older, before),
        "/models/{org}/{name}": _page(model, errors, org, name, older, before),
        "/models/{name}:{tag}": _page(version, errors, name, tag),
        "/models/{org}/{name}:{tag}": _page(version, errors, org, name, tag),
        "/diff": _page("Two versions side by side.", errors, *refs),
        "/history": _page("Size, a figure and the verdict of each version of a model.", errors, *_history()),
        "/static/{file}": _static(file),
    }


def _page(summary: str, errors: Iterable[str], *parameters: Json) -> Json:
    """GET and HEAD of a page; its errors are pages, but for a condition that does not hold."""
    described = _readable(summary, "text/html", TEXT, parameters, errors, parts=False)
    for operation in described.values():
        operation["tags"] = ["pages"]
        for status, response in operation["responses"].items():
            if status not in ("200", "412") and "content" in response:
                response["content"] |= {"text/html": {"schema": TEXT}}
    return described


def _static(file: Json) -> Json:
    """A static file of the pages. Its name has its digest."""
    described = _readable("A file that the pages need.", "text/css", TEXT, (file,), ("404",))
    for operation in described.values():
        operation["tags"] = ["pages"]
        for status in {"200", "206"} & operation["responses"].keys():
            response = operation["responses"][status]
            if "content" in response:
                response["content"]["image/svg+xml"] = {"schema": TEXT}
    return described


def _query(name: str, schema: Json, description: str, required: bool = False) -> Json:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def _resolve() -> Json:
    return {
        "operationId": "resolve",
        "summary": "One artifact of a version, with every file it needs, and why the others were not chosen.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": _ref("Request")}}},
        "responses": {
            "200": _content("The artifact.", "application/json", _ref("Resolution")),
            **_errors("400", "404", "408", "409", "413", "5XX"),
        },
    }


def _file(summary: str, media_type: str, *parameters: Json) -> Json:
    schema = {"application/json": _ref("Document"), BYTES: {}}.get(media_type, TEXT)
    return _readable(summary, media_type, schema, parameters, ("404",) if parameters else ())


def _document(summary: str, schema: str, names: Iterable[Json], errors: Iterable[str], *query: Json) -> Json:
    return _readable(summary, "application/json", _ref(schema), (*names, *query), errors)


def _plain(summary: str, media_type: str, schema: Json) -> Json:
    """GET and HEAD of a document that always changes, so without conditions."""
    content = _content(summary, media_type, schema)
    get = {"summary": summary, "responses": {"200": content, **_errors("5XX")}}
    head = {"summary": summary, "responses": {"200": {"description": summary}, **_errors("5XX", bare=True)}}
    return {"get": get, "head": head}


def _readable(
    summary: str,
    media_type: str,
    schema: Json,
    parameters: Iterable[Json],
    errors: Iterable[str],
    parts: bool = True,
) -> Json:
    """GET and HEAD of a resource with an entity tag; with ranges, if these are useful."""
    same = {"description": "What the client has is the present one."}
    get = {
        "200": _content(summary, media_type, schema),
        "304": same,
        **_errors("412", *errors, "5XX"),
    }
    head = {"200": {"description": summary}, "304": same, **_errors("412", *errors, "5XX", bare=True)}
    all_parameters = [*parameters, _header("If-Match"), _header("If-None-Match")]
    if parts and media_type != "application/json":
        get |= {"206": _content("The range that was asked for.", media_type, {}), **_errors("416")}
        all_parameters += [_header("Range"), _header("If-Range")]
    shared = {"summary": summary, "parameters": all_parameters}
    return {"get": {**shared, "responses": get}, "head": {**shared, "responses": head}}


ERRORS = {
    "400": "The request is malformed.",
    "401": "The token is missing or wrong.",
    "404": "There is no such thing, or nothing answers the query.",
    "408": "The body did not arrive in time.",
    "409": "The tag and the digest that were asked for name different manifests.",
    "412": "The condition does not hold.",
    "413": "The body is too large.",
    "416": "There is no such range.",
    "5XX": "The registry is damaged or cannot be read now, or there are too many connections.",
}


def _errors(*statuses: str, bare: bool = False) -> Json:
    if bare:
        return {status: {"description": ERRORS[status]} for status in statuses}
    return {status: _content(ERRORS[status], "application/json", _ref("Error")) for status in statuses}


def _content(description: str, media_type: str, schema: Json) -> Json:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _parameter(name: str, pattern: str) -> Json:
    schema = {"type": "string", "pattern": f"^{pattern}$", "maxLength": 90}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _header(name: str) -> Json:
    return {"name": name, "in": "header", "schema": TEXT}


def _paging() -> tuple[Json, Json]:
    limit = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1000}
    return (
        {
            "name": "after",
            "in": "query",
            "schema": TEXT,
            "description": "Only models behind this name: `next` of the answer before.",
        },
        {"name": "limit", "in": "query", "schema": limit},
    )


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Iterable[str] | None = None, **properties: Any) -> Json:
    required_names = sorted(properties if required is None else required)
    return {
        "type": "object",
        "properties": properties,
        "required": required_names,
        "additionalProperties": False,
    }


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _schemas() -> Json:
    channels = {"type": "object", "additionalProperties": TEXT}
    model = _object(name=TEXT, versions=COUNT, newest={"type": ["string", "null"]}, channels=channels)
    version = {"version": TEXT, "manifest": DIGEST, "size": COUNT, "channels": _array(TEXT), "yanked": FLAG}
    version |= {"held": {"type": ["array", "null"], "items": TEXT}}
    version |= {key: {"type": "object", "additionalProperties": TEXT} for key in ("states", "attested")}
    states = {"type": "string", "enum": ["", "yanked", "refused", "pinned", "partial", "expired", "purged"]}
    file = _object(role=TEXT, path=TEXT, digest=DIGEST, size=COUNT, url=TEXT)
    artifact = _object(
        ["format", "precision", "path", "digest", "size", "state"],
        format=TEXT,
        precision=TEXT,
        path=TEXT,
        digest=DIGEST,
        size=COUNT,
        state=TEXT,
        stated=TEXT,
        member=TEXT,
        contract=DIGEST,
        kv_cache=_object(bytes_per_token=COUNT, max_tokens=COUNT),
    )
    return {
        "Error": _object(error=_object(family=TEXT, message=TEXT, hint=TEXT)),
        "Models": _object(
            ["models"], models=_array(model), next=TEXT, damaged={"type": "integer", "minimum": 1}
        ),
        "Versions": _object(
            name=TEXT,
            registry={"type": "string", "pattern": "^[0-9a-f]{32}$"},
            versions=_array(
                _object(version.keys() - {"size", "states", "attested"} | {"state"}, **version, state=states)
            ),
        ),
        "Request": _object(
            ["ref"],
            ref={
                **TEXT,
                "pattern": f"^{REF}$",
                "description": "NAME[:TAG][@sha256:...].",
            },
            formats={"type": ["array", "null"], "items": TEXT},
            precision={"type": ["string", "null"]},
            certified={"type": ["boolean", "null"]},
            max_size={
                "type": ["integer", "string", "null"],
                "minimum": 0,
                "maximum": MAX_INTEGER,
                "description": "Bytes of the whole download; or a text such as 30MB (10^6) or 28MiB (2^20).",
            },
            min_recall={
                "type": ["object", "null"],
                "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1},
            },
            member={
                "type": ["string", "null"],
                "description": "The stage of a pipeline, or the member of a family.",
            },
            contract={
                "anyOf": [DIGEST, {**_array(DIGEST), "minItems": 1}, {"type": "null"}],
                "description": "The contracts that the app was written for; see docs/resolve.md.",
            },
            context={
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": MAX_INTEGER,
                "description": "The tokens that a decoder must keep; see docs/resolve.md.",
            },
            where={"type": ["string", "null"], "description": "An expression; see docs/query.md."},
            device={
                "type": ["string", "object", "null"],
                "description": "The name of a preset, or a device document; see docs/resolve.md.",
            },
        ),
        "Resolution": _object(
            ("name", "version", "manifest", "size", "artifact", "files", "rejected"),
            name=TEXT,
            version=TEXT,
            manifest=DIGEST,
            size=COUNT,
            artifact=artifact,
            files=_array(file),
            rejected=_array(_object(artifact=TEXT, version=TEXT, code=TEXT, detail=TEXT)),
            rollout={"type": "object", "description": "The rollout of the channel; see docs/rollouts.md."},
            rejected_omitted=COUNT
            | {"description": "How many rejections were left out: present after 1,000."},
        ),
        "Document": {"type": "object"},
    }
