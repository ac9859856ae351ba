"""The Hugging Face Hub's protocol for reading: `hf`, transformers and transformers.js can use this server as the Hub.

A model is a repository. A revision is a version, a channel or a manifest's digest. A commit is the start of such a
digest. A repository has the paths in the manifest, and aliases that clients expect, such as `onnx/model.onnx`. If an
artifact is refused later, its alias may name another file. This module answers the requests that huggingface_hub 2.4
and transformers.js 3 and 4 send.
"""

import re
from functools import partial
from hashlib import sha1
from posixpath import basename
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.log.log import Log, read_blob, read_manifest
from onnxreg.registry.server.answers import JSON, REVALIDATE, HttpError, encode, of_bytes, of_file, read_body
from onnxreg.registry.server.served_registry import Cache, Queue, ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError
from onnxreg.schema.core.ref import Ref, is_name
from onnxreg.schema.formats.hub_layout import LayoutFile, card_metadata, layout
from onnxreg.schema.manifest.manifest import Manifest

COMMIT = "X-Repo-Commit"
HUB_HEADERS = (COMMIT, "X-Error-Code", "X-Error-Message", "X-Linked-ETag", "X-Linked-Size")
"""The headers of the Hub that scripts of other web sites may read."""
COMMIT_DIGITS = 40
MAIN = "main"
"""The revision that clients request by default. It means the newest release if no channel has this name."""
MAX_CACHED_FILES = 20_000  # maximum number of files that all cached repositories have together
HUB_THREADS = 2


class Repository(NamedTuple):
    """One version of a model as a repository. `commit` is its permanent name. `entries` has every file and folder."""

    name: str
    commit: str
    info: dict[str, Any]
    files: dict[str, LayoutFile]
    entries: dict[str, dict[str, Any]]

    @classmethod
    def of(
        cls, name: str, digest: Digest, manifest: Manifest, files: dict[str, LayoutFile], channels: list[str]
    ) -> "Repository":
        commit, card = digest.hex[:COMMIT_DIGITS], card_metadata(manifest, ())
        pipeline = {key: tag for key, tag in card.items() if key == "pipeline_tag"}
        info = {
            "_id": commit[:24],
            "id": name,
            "modelId": name,
            **({"author": name.partition("/")[0]} if "/" in name else {}),
            "sha": commit,
            "private": False,
            "gated": False,
            "disabled": False,
            "library_name": "onnx",
            **pipeline,
            "tags": ["onnx", *pipeline.values(), *channels],
            "cardData": card,
        }
        folders = {path[: slash.start()] for path in files for slash in re.finditer("/", path)}
        entries = {path: _entry(file) for path, file in files.items()} | {
            path: {"type": "directory", "oid": _git_id(f"{commit}/{path}"), "size": 0, "path": path}
            for path in folders
        }
        return cls(name, commit, info, files, dict(sorted(entries.items())))


def _entry(file: LayoutFile) -> dict[str, Any]:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.digest.hex}\nsize {file.size}\n"
    lfs = {"oid": file.digest.hex, "size": file.size, "pointerSize": len(pointer)}
    return {"type": "file", "oid": _git_id(pointer), "size": file.size, "path": file.path, "lfs": lfs}


def _sibling(entry: dict[str, Any], with_sizes: bool) -> dict[str, Any]:
    if not with_sizes:
        return {"rfilename": entry["path"]}
    lfs = {**entry["lfs"], "sha256": entry["lfs"]["oid"]}
    return {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"], "lfs": lfs}


def _git_id(text: str) -> str:
    return sha1(b"blob %d\0" % len(text) + text.encode()).hexdigest()


class HubRoutes:
    def __init__(self, registry: ServedRegistry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings
        self._queue = Queue(HUB_THREADS, settings)
        self._repositories = Cache[Repository](lambda item: len(item.entries), MAX_CACHED_FILES)

    def routes(self) -> list[Route]:
        endpoints = {
            "/api/models/NAME/refs": self.references,  # first: later routes match it too
            "/api/models/NAME/revision/{revision}": self.info,
            "/api/models/NAME/tree/{revision}": self.tree,
            "/api/models/NAME/tree/{revision}/{path:path}": self.tree,
            "/api/models/NAME/paths-info/{revision}": self.paths_info,
            "/api/models/NAME": self.info,
            "/NAME/resolve/{revision}/{path:path}": self.file,
            "/NAME/raw/{revision}/{path:path}": self.file,
        }
        return [
            Route(
                path.replace("NAME", name),
                endpoint,
                methods=["POST" if endpoint == self.paths_info else "GET"],
            )
            for path, endpoint in endpoints.items()
            for name in ("{org}/{name}", "{name}")
        ]

    async def info(self, request: Request) -> Response:
        repository, with_sizes = await self._repository(request), _is_true(request, "blobs")
        siblings = [_sibling(repository.entries[path], with_sizes) for path in repository.files]
        return _document(request, repository.info | {"siblings": siblings}, repository)

    async def tree(self, request: Request) -> Response:
        repository = await self._repository(request)
        folder = request.path_params.get("path", "").strip("/")
        start, is_deep = f"{folder}/" if folder else "", _is_true(request, "recursive")
        below = {
            path[len(start) :]: entry for path, entry in repository.entries.items() if path.startswith(start)
        }
        entries = [entry for path, entry in below.items() if is_deep or "/" not in path]
        if folder and not entries:
            raise _no_file(repository, folder)
        return _document(request, entries, repository)

    async def paths_info(self, request: Request) -> Response:
        repository = await self._repository(request)
        form = parse_qs((await read_body(request, self._settings.body)).decode("utf-8", "replace"))
        requested = dict.fromkeys(path.strip("/") for path in form.get("paths", []))
        entries = [repository.entries[path] for path in requested if path in repository.entries]
        return _document(request, entries, repository)

    async def references(self, request: Request) -> Response:
        return _document(request, await self._queue.run(partial(self._references, _name(request))))

    def _references(self, name: str) -> dict[str, Any]:
        index = self._registry.read_index(name)
        if index is None:
            raise _no_repository(name)
        log = self._registry.log_of(name, index)
        branches = {tag: channel.manifest for tag, channel in log.channels.items()}
        if (newest := log.state.newest_release()) is not None:
            branches.setdefault(MAIN, log.versions[newest].manifest)
        tags = {str(version): entry.manifest for version, entry in log.versions.items() if entry.usable}

        def listed(kind: str, names: dict[str, Digest]) -> list[dict[str, str]]:
            return [
                {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": digest.hex[:COMMIT_DIGITS]}
                for name, digest in sorted(names.items())
            ]

        return {"branches": listed("heads", branches), "tags": listed("tags", tags), "converts": []}

    async def file(self, request: Request) -> Response:
        repository = await self._repository(request)
        file = repository.files.get(request.path_params["path"])
        if file is None:
            raise _no_file(repository, request.path_params["path"])
        digits = request.path_params["revision"].removeprefix("sha256:")
        is_immutable = digits.startswith(repository.commit) and file.alias_of is None
        caching = self._settings.immutable if is_immutable else REVALIDATE
        answer = of_file(request, self._registry.open_blob(file.digest), file.digest.hex, caching)
        disposition = f"inline; filename*=UTF-8''{quote(basename(file.path), safe='')}"
        linked = {"X-Linked-ETag": f'"{file.digest.hex}"', "X-Linked-Size": str(file.size)}
        answer.headers.update({COMMIT: repository.commit, "Content-Disposition": disposition, **linked})
        return answer

    async def _repository(self, request: Request) -> Repository:
        name, revision = _name(request), request.path_params.get("revision", MAIN)

        def read() -> Repository:
            if not (token := self._registry.token(name)):
                raise _no_repository(name)
            key = (name, revision, token, *self._registry.rule_keys())
            return self._repositories.get(key, partial(self._make, name, revision))

        return await self._queue.run(read)

    def _make(self, name: str, revision: str) -> Repository:
        registry = self._registry
        try:
            log, located = registry.locate(name, partial(_ref, revision))
        except MissingBlobError:
            raise
        except (InputError, NotFoundError) as error:
            raise _hub_error(404, "RevisionNotFound", error.message) from error
        except GateError as error:
            raise _hub_error(409, "GatedRepo", error.message) from error
        digest = located.entry.manifest
        data = read_blob(registry, digest)
        manifest = read_manifest(data, digest, name)
        states = {item.path: item.state for item in log.summary(located).artifacts}
        # refused artifacts are left out for a channel and for a commit (which clients get from a channel)
        is_commit = re.fullmatch(f"[0-9a-f]{{{COMMIT_DIGITS}}}", revision) is not None
        refused = located.channel is None and revision != MAIN and not is_commit
        files = layout(manifest, digest, len(data), states, located.entry.held, refused=refused)
        channels = sorted(tag for tag, item in log.channels.items() if item.version == located.version)
        return Repository.of(name, digest, manifest, files, channels)


def _ref(revision: str, log: Log) -> Ref:
    """Return the ref that a revision means. A commit is the start of a manifest's digest."""
    if revision == MAIN and MAIN not in log.channels:
        return Ref(log.name)
    digits = revision.removeprefix("sha256:")
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digits):
        manifests = (entry.manifest for entry in log.versions.values())
        match = next((digest for digest in manifests if digest.hex.startswith(digits)), None)
        if match is not None:
            return Ref(log.name, digest=match)
    return Ref(log.name, revision)


def _name(request: Request) -> str:
    name = "/".join(request.path_params[part] for part in ("org", "name") if part in request.path_params)
    if not is_name(name):
        raise _no_repository(name)
    return name


def _is_true(request: Request, key: str) -> bool:
    return request.query_params.get(key) in ("true", "True", "1")


def _document(request: Request, value: Any, repository: Repository | None = None) -> Response:
    answer = of_bytes(request, encode(value), JSON)
    if repository is not None:
        answer.headers[COMMIT] = repository.commit
    return answer


def _hub_error(status: int, code: str, message: str, **headers: str) -> HttpError:
    """Return an error as clients of the Hub expect: a code, and a message in one line of ASCII."""
    line = re.sub(r"[^\x20-\x7e]+", " ", message)[:500]
    return HttpError(status, message, headers={"X-Error-Code": code, "X-Error-Message": line, **headers})


def _no_repository(name: str) -> HttpError:
    return _hub_error(404, "RepoNotFound", f"this registry has no model {name[:200]}")


def _no_file(repository: Repository, path: str) -> HttpError:
    message = f"{repository.name} at {repository.commit[:12]} has no file {path[:200]}"
    return _hub_error(404, "EntryNotFound", message, **{COMMIT: repository.commit})
