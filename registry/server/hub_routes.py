"""The Hugging Face Hub's protocol for reading: `hf`, transformers, Optimum and transformers.js take this server for the Hub.

A model is a repository, and a revision is a version, a channel or a manifest's digest. `X-Repo-Commit` is the start of
the digest of the version's manifest. The paths are those of `hub_layout`; which file has a second name may change with
the verdicts, so only a version's own paths never change. Source of the protocol: the requests of huggingface_hub 2.4 and transformers.js 3 and 4.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha1
from posixpath import basename, dirname
from typing import Any
from urllib.parse import parse_qs, quote

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.log.lookup import LocatedVersion, all_versions, read_blob, read_manifest, read_summary
from onnxreg.registry.server.http.messages import HttpError, of_file, of_json, read_body
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits
from onnxreg.registry.server.workers import WorkerPool
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.registry.trust.checked_reader import trust_digest
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError
from onnxreg.schema.core.ref import Ref, is_name
from onnxreg.schema.formats.hub_layout import LayoutFile, layout, pipeline_tag
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.license import hub_license
from onnxreg.schema.manifest.manifest import Manifest

COMMIT = "X-Repo-Commit"
HUB_HEADERS = (COMMIT, "X-Error-Code", "X-Error-Message", "X-Linked-ETag", "X-Linked-Size")
"""Headers of the Hub that scripts of other web sites may read."""
COMMIT_DIGITS = 40
MAIN = "main"
"""The revision that clients ask for by default: the newest release, unless a channel has this name."""
MAX_CACHED_FILES = 20_000
"""Files of the repositories in the cache."""
HUB_THREADS = 2
"""Threads that read manifests, so that no other kind of question waits for them."""
IMMUTABLE, REVALIDATE = "max-age=31536000, immutable", "no-cache"


@dataclass(frozen=True)
class Repository:
    """One version of a model as a repository; `commit` names it for ever."""

    name: str
    commit: str
    manifest: Manifest
    files: dict[str, LayoutFile]
    tags: tuple[str, ...]

    def info(self, with_sizes: bool) -> dict[str, Any]:
        """The document of `GET /api/models/NAME`."""
        manifest = self.manifest
        tag = pipeline_tag(manifest)
        base = manifest.source and manifest.source.public_id(manifest.name)
        card = {
            **(hub_license(manifest.license) if manifest.license else {}),
            **({"pipeline_tag": tag} if tag else {}),
            **({"base_model": base} if base else {}),
        }
        return {
            "_id": self.commit[:24],
            "id": self.name,
            "modelId": self.name,
            **({"author": self.name.partition("/")[0]} if "/" in self.name else {}),
            "sha": self.commit,
            "private": False,
            "gated": False,
            "disabled": False,
            "library_name": "onnx",
            **({"pipeline_tag": tag} if tag else {}),
            "tags": ["onnx", *([tag] if tag else []), *self.tags],
            "cardData": card,
            "siblings": [
                {"rfilename": file.path, **(_sizes(file) if with_sizes else {})}
                for file in self.files.values()
            ],
        }

    @cached_property
    def entries(self) -> dict[str, dict[str, Any]]:
        """Every file and folder by its path, as the Hub lists them."""
        entries = {path: _entry(file) for path, file in sorted(self.files.items())}
        listings: dict[str, list[str]] = {}
        for path in sorted(entries, key=lambda path: (-path.count("/"), path)):
            listings.setdefault(dirname(path), []).append(f"{path} {entries[path]['oid']}")
        for folder in sorted(_folders(self.files), key=lambda folder: (-folder.count("/"), folder)):
            oid = sha1("\n".join(listings[folder]).encode()).hexdigest()
            entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
            listings.setdefault(dirname(folder), []).append(f"{folder} {oid}")
        return entries

    def tree(self, folder: str, recursive: bool) -> list[dict[str, Any]]:
        """The entries below a folder, "" for the root."""
        start = f"{folder}/" if folder else ""
        return [
            entry
            for path, entry in sorted(self.entries.items())
            if path.startswith(start) and (recursive or "/" not in path[len(start) :])
        ]


def _folders(paths: Iterable[str]) -> set[str]:
    """Every folder that holds one of these files, directly or not."""
    return {path[: slash.start()] for path in paths for slash in re.finditer("/", path)}


class HubRoutes:
    """The Hub's routes over one registry.

    `shared`: allow caches between the server and its clients to keep files: not if a token guards them.
    """

    def __init__(self, registry: ServedRegistry, limits: Limits, shared: bool) -> None:
        self._registry = registry
        self._limits = limits
        self._pool = WorkerPool("hub", HUB_THREADS, limits.waiting, limits.steps)
        self._scope = "public" if shared else "private"
        self._repositories: LruCache[tuple[str, ...], Repository] = LruCache(MAX_CACHED_FILES)

    def routes(self) -> list[Route]:
        """Every route, for names of two parts and of one."""
        routes = [route for name in ("{org}/{name}", "{name}") for route in self._routes(name)]
        return sorted(routes, key=lambda route: route.path != "/api/models/{name}/refs")

    def _routes(self, name: str) -> list[Route]:
        api = f"/api/models/{name}"
        return [
            Route(f"{api}/revision/{{revision}}", self.info),
            Route(f"{api}/tree/{{revision}}", self.tree),
            Route(f"{api}/tree/{{revision}}/{{path:path}}", self.tree),
            Route(f"{api}/paths-info/{{revision}}", self.paths_info, methods=["POST"]),
            Route(f"{api}/refs", self.references),
            Route(api, self.info),
            Route(f"/{name}/resolve/{{revision}}/{{path:path}}", self.file),
            Route(f"/{name}/raw/{{revision}}/{{path:path}}", self.file),
        ]

    async def info(self, request: Request) -> Response:
        repository = await self._repository(request)
        with_sizes = request.query_params.get("blobs") in ("true", "True", "1")
        return _named(of_json(request, repository.info(with_sizes)), repository)

    async def tree(self, request: Request) -> Response:
        repository = await self._repository(request)
        folder = request.path_params.get("path", "").strip("/")
        recursive = request.query_params.get("recursive") in ("true", "True", "1")
        entries = repository.tree(folder, recursive)
        if folder and not entries:
            raise _no_file(repository, folder)
        return _named(of_json(request, entries), repository)

    async def paths_info(self, request: Request) -> Response:
        repository = await self._repository(request)
        form = parse_qs((await read_body(request, self._limits)).decode("utf-8", "replace"))
        requested = dict.fromkeys(path.strip("/") for path in form.get("paths", []))
        entries = [repository.entries[path] for path in requested if path in repository.entries]
        return _named(of_json(request, entries), repository)

    async def references(self, request: Request) -> Response:
        """Channels are branches, versions are tags."""
        name = _name(request)
        index = await run_sync(self._registry.read_index, name)
        if index is None:
            raise _no_repository(name)
        state = await run_sync(self._registry.state_of, name, index)
        entries = await run_sync(all_versions, self._registry, state)
        tags = {str(version): entry.manifest for version, entry in entries.items() if entry.usable}
        branches = {tag: channel.manifest for tag, channel in state.channels.items()}
        newest = state.newest_release()
        if newest is not None:
            branches.setdefault(MAIN, entries[newest].manifest)
        document = {
            "branches": [_reference("heads", tag, digest) for tag, digest in sorted(branches.items())],
            "tags": [_reference("tags", tag, digest) for tag, digest in sorted(tags.items())],
            "converts": [],
        }
        return of_json(request, document)

    async def file(self, request: Request) -> Response:
        repository = await self._repository(request)
        file = repository.files.get(request.path_params["path"])
        if file is None:
            raise _no_file(repository, request.path_params["path"])
        source = self._registry.open_blob(file.digest)
        digits = request.path_params["revision"].removeprefix("sha256:")
        immutable = digits.startswith(repository.commit) and file.alias_of is None
        caching = f"{self._scope}, {IMMUTABLE}" if immutable else REVALIDATE
        answer = of_file(request, source, os.fstat(source.fileno()).st_size, file.digest.hex, caching)
        answer.headers["X-Linked-ETag"] = f'"{file.digest.hex}"'
        answer.headers["X-Linked-Size"] = str(file.size)
        answer.headers["Content-Disposition"] = (
            f"inline; filename*=UTF-8''{quote(basename(file.path), safe='')}"
        )
        return _named(answer, repository)

    async def _repository(self, request: Request) -> Repository:
        name, revision = _name(request), request.path_params.get("revision", MAIN)
        index = self._registry.cached_index(name)
        key = self._key(name, revision, index)
        if key is not None and (cached := self._repositories.get(key)) is not None:
            return cached
        return await self._pool.run(partial(self._read, name, revision))

    def _key(self, name: str, revision: str, index: IndexFile | None) -> tuple[str, ...] | None:
        """All that an answer follows from; None if the index file is not cached."""
        if index is None:
            return None
        return name, revision, index.token, self._registry.policy_token(), str(trust_digest())

    def _read(self, name: str, revision: str) -> Repository:
        """A version as a repository. HttpError with the Hub's code if it does not exist, or a policy bars it."""
        index = self._registry.read_index(name)
        if index is None:
            raise _no_repository(name)
        key = self._key(name, revision, index)
        try:
            state, located = self._registry.locate(name, lambda state: self._ref(state, revision))
        except MissingBlobError:
            raise
        except (InputError, NotFoundError) as error:
            raise _refused(404, "RevisionNotFound", error.message) from error
        except GateError as error:
            raise _refused(409, "GatedRepo", error.message) from error
        repository = self._repository_of(state, located, pinned=_is_pinned(located, revision))
        assert repository.entries, "made here, in a thread"
        if key is not None:
            self._repositories.put(key, repository, len(repository.files))
        return repository

    def _ref(self, state: State, revision: str) -> Ref:
        if revision == MAIN and MAIN not in state.channels:
            return Ref(state.name)
        digits = revision.removeprefix("sha256:")
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digits):
            manifests = {entry.manifest for entry in all_versions(self._registry, state).values()}
            match = next((digest for digest in manifests if digest.hex.startswith(digits)), None)
            if match is not None:
                return Ref(state.name, digest=match)
        return Ref(state.name, revision)

    def _repository_of(self, state: State, located: LocatedVersion, pinned: bool) -> Repository:
        digest = located.entry.manifest
        data = read_blob(self._registry, digest)
        manifest = read_manifest(data, digest, located.name)
        summary = read_summary(self._registry, state, located)
        states = {artifact.path: artifact.state for artifact in summary.artifacts}
        files = layout(manifest, digest, len(data), states, located.entry.held, refused=pinned)
        tags = tuple(sorted(tag for tag, item in state.channels.items() if item.version == located.version))
        return Repository(located.name, digest.hex[:COMMIT_DIGITS], manifest, files, tags)


def _is_pinned(located: LocatedVersion, revision: str) -> bool:
    """Return True for a version or a whole digest, which list refused files.

    A commit does not: clients ask for the files of a channel by its commit.
    """
    is_commit = re.fullmatch(f"[0-9a-f]{{{COMMIT_DIGITS}}}", revision) is not None
    return located.channel is None and revision != MAIN and not is_commit


def _name(request: Request) -> str:
    path = request.path_params
    name = f"{path['org']}/{path['name']}" if "org" in path else str(path["name"])
    if not is_name(name):
        raise _no_repository(name)
    return name


def _named(response: Response, repository: Repository) -> Response:
    response.headers[COMMIT] = repository.commit
    return response


def _reference(kind: str, tag: str, digest: Digest) -> dict[str, str]:
    return {"name": tag, "ref": f"refs/{kind}/{tag}", "targetCommit": digest.hex[:COMMIT_DIGITS]}


def _sizes(file: LayoutFile) -> dict[str, Any]:
    pointer = _pointer(file)
    lfs = {"sha256": file.digest.hex, "size": file.size, "pointerSize": len(pointer)}
    return {"size": file.size, "blobId": _git_id(pointer), "lfs": lfs}


def _entry(file: LayoutFile) -> dict[str, Any]:
    pointer = _pointer(file)
    lfs = {"oid": file.digest.hex, "size": file.size, "pointerSize": len(pointer)}
    return {"type": "file", "oid": _git_id(pointer), "size": file.size, "path": file.path, "lfs": lfs}


def _pointer(file: LayoutFile) -> bytes:
    """The file that git keeps in place of one in LFS."""
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{file.digest.hex}\nsize {file.size}\n"
    return text.encode()


def _git_id(data: bytes) -> str:
    return sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _refused(status: int, code: str, message: str, **headers: str) -> HttpError:
    """An error as clients of the Hub read it: a code, and a message in one line of ASCII."""
    line = re.sub(r"[^\x20-\x7e]+", " ", message)[:500]
    return HttpError(status, message, headers={"X-Error-Code": code, "X-Error-Message": line, **headers})


def _no_repository(name: str) -> HttpError:
    return _refused(404, "RepoNotFound", f"this registry has no model {name[:200]}")


def _no_file(repository: Repository, path: str) -> HttpError:
    message = f"{repository.name} at {repository.commit[:12]} has no file {path[:200]}"
    return _refused(404, "EntryNotFound", message, **{COMMIT: repository.commit})
