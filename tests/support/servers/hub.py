"""An emulator of the Hugging Face Hub for the real `huggingface_hub` client: the part of its HTTP API that `hf` uses.

Two servers on loopback: the API, and on another port (another origin, as the Hub's storage is) the bytes of LFS. The
shapes come from the client's source and traffic; nothing was compared with the live Hub. Clients that upload through
Xet are pointed at a directory, which hf_xet fills; nothing can be downloaded from there. All others must set
`HF_HUB_DISABLE_XET=1`.

Faults are told to it beforehand: `hub.fail(...)` answers requests with an error, before or after they took effect,
or breaks the connection; `hub.before(...)` runs something when a request comes in, such as somebody else's commit.
"""

import base64
import hashlib
import json
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import httpcore2
import pytest

from support.servers import http

TOKEN = "hf_the_token_of_these_tests"
READER = "hf_a_token_that_may_only_read"
PAGE = 1000
"""Entries of a tree in one answer, and paths that one request may ask for."""
LFS_FROM = 10 * 2**20
"""Bytes from which the Hub puts a file into LFS whatever .gitattributes says."""
LFS_RULE = "filter=lfs diff=lfs merge=lfs -text"
INITIAL_ATTRIBUTES = f"*.onnx {LFS_RULE}\n*.bin {LFS_RULE}\n".encode()


READ_CERTIFICATES = httpcore2.default_ssl_context


@cache
def certificates(file: str | None) -> ssl.SSLContext:
    """The authorities that a client trusts. To read them takes a fortieth of a second, which this process takes once."""
    return READ_CERTIFICATES()


class Refused(Exception):  # noqa: N818
    """An answer that is an error, with the headers that make the client raise the right exception."""

    def __init__(self, status: int, code: str = "", message: str = "", **more: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Code": code, "X-Error-Message": message, **more}


@dataclass(frozen=True)
class File:
    """A file of a commit: its bytes, or where they are in LFS its SHA-256 there."""

    data: bytes
    size: int
    sha256: str | None = None

    @property
    def oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    def describe(self, path: str) -> dict[str, Any]:
        value: dict[str, Any] = {"type": "file", "path": path, "oid": self.oid, "size": self.size}
        if self.sha256:
            value["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": len(self.data)}
        return value


def in_lfs(sha256: str, size: int) -> File:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
    return File(pointer.encode(), size, sha256)


@dataclass
class Commit:
    id: str
    title: str
    files: dict[str, File]


@dataclass
class Repository:
    """Branches of commits. `gated` ones are read by nobody."""

    private: bool = False
    gated: bool = False
    branches: dict[str, list[Commit]] = field(default_factory=dict)

    def add(self, branch: str, title: str, files: dict[str, File]) -> Commit:
        history = self.branches.setdefault(branch, [])
        content = repr((branch, len(history), title, sorted((p, f.oid) for p, f in files.items())))
        parent = history[-1].id if history else ""
        commit = Commit(hashlib.sha1((parent + content).encode()).hexdigest(), title, files)
        history.append(commit)
        return commit

    def find(self, revision: str) -> Commit:
        if revision in self.branches:
            return self.branches[revision][-1]
        commits = (commit for history in self.branches.values() for commit in history)
        found = next((commit for commit in commits if commit.id == revision), None)
        if found is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found


@dataclass
class Fault:
    """What happens to requests that match: `status` (0: the connection breaks), `after` they took effect or instead."""

    pattern: re.Pattern[str]
    times: int
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: bool = False
    cut: int | None = None
    """So many bytes of the body are sent before the connection breaks."""
    action: Callable[[], object] | None = None


class Hub:
    """The state of the emulator. Use `running`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.endpoint = self.store = ""
        """The addresses of the API, and of the bytes of LFS."""
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.faults: list[Fault] = []
        self.says_sizes = True
        """Whether an answer to a Range says how many bytes the whole file has."""
        self.xet: Path | None = None
        """Where uploads through Xet go."""
        self.lock = threading.RLock()

    def enter(self, patch: pytest.MonkeyPatch, home: Path) -> None:
        """From now on this process, and those that it starts, are logged in here; their cache is in `home`."""
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        environment = {"HF_ENDPOINT": self.endpoint, "HF_TOKEN": TOKEN, "HF_HOME": str(home)}
        for name, text in {**environment, "HF_HUB_DISABLE_XET": "1"}.items():
            patch.setenv(name, text)
        constants = {
            "ENDPOINT": self.endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": f"{self.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
        }
        for name, value in constants.items():
            patch.setattr(f"huggingface_hub.constants.{name}", value)
        patch.setattr(
            httpcore2, "default_ssl_context", lambda **_: certificates(os.environ.get("SSL_CERT_FILE"))
        )

    def fail(self, pattern: str, status: int = 503, times: int = 1, **more: Any) -> None:
        """Let the next requests whose `METHOD /path` matches fail."""
        self.faults.append(Fault(re.compile(pattern), times, status, **more))

    def before(self, pattern: str, action: Callable[[], object], times: int = 1) -> None:
        """Run something before the next request that matches is looked at."""
        self.faults.append(Fault(re.compile(pattern), times, 200, action=action))

    def take_fault(self, line: str) -> Fault | None:
        with self.lock:
            due = (fault for fault in self.faults if fault.times and fault.pattern.search(line))
            if fault := next(due, None):
                fault.times -= 1
            return fault

    def history(self, name: str, branch: str = "main") -> list[Commit]:
        return self.repositories[f"models/{name}"].branches[branch]

    def files(self, name: str) -> dict[str, File]:
        return self.history(name)[-1].files

    def read(self, name: str, path: str) -> bytes:
        """A file as it is at the head."""
        file = self.files(name)[path]
        return (self.root / file.sha256).read_bytes() if file.sha256 else file.data

    def commit(self, name: str, changes: dict[str, bytes | None], title: str = "somebody") -> None:
        """Somebody else's commit of regular files; None deletes one."""
        with self.lock:
            files = {path: file for path, file in self.files(name).items() if path not in changes}
            files |= {path: File(data, len(data)) for path, data in changes.items() if data is not None}
            self.repositories[f"models/{name}"].add("main", title, files)


class Handler(http.Handler):
    hub: Hub

    def answer(self) -> None:
        split = urlsplit(self.path)
        self.parts = [unquote(part) for part in split.path.strip("/").split("/")]
        line = f"{self.command} {unquote(split.path)}"
        with self.hub.lock:
            self.hub.requests.append(line)
        fault = self.hub.take_fault(line)
        if fault is not None and fault.action is not None:
            fault.action()
            fault = None
        self.fault = fault
        if fault is not None and not fault.after and fault.cut is None:
            return self.reply(200)
        try:
            self.result()
        except Refused as refused:
            text = json.dumps({"error": str(refused)}).encode()
            self.reply(refused.status, text, {key: value for key, value in refused.headers.items() if value})

    def result(self) -> None:
        """Reply, or raise `Refused`."""
        raise NotImplementedError

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.reply(status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})

    def reply(
        self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None, cut: int | None = None
    ) -> None:
        """What was to be said, or what the fault says in its place."""
        fault = self.fault
        if fault is None or (fault.cut is not None and self.command == "HEAD"):
            super().reply(status, data, headers)
        elif fault.cut is not None:
            super().reply(status, data, headers, fault.cut)
        elif fault.status:
            super().reply(fault.status, fault.body, fault.headers)
        else:
            self.break_off()

    def ranged(self, data: bytes, headers: Mapping[str, str]) -> None:
        """The bytes, or the rest of them that a Range asks for."""
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            return self.reply(200, data, headers)
        start, stop = int(wanted[1]), int(wanted[2] or len(data) - 1) + 1
        if start >= len(data):
            raise Refused(416, message="no such range")
        size = len(data) if self.hub.says_sizes else "*"
        content = f"bytes {start}-{min(stop, len(data)) - 1}/{size}"
        self.reply(206, data[start:stop], {**headers, "Content-Range": content})


class Storage(Handler):
    """The bytes of LFS by digest. Takes no token: addresses are signed (here: the digest is the secret)."""

    def result(self) -> None:
        if "Authorization" in self.headers:
            raise Refused(400, message="a token came to the storage")
        path = self.hub.root / self.parts[0]
        if self.command == "PUT":
            temporary = path.with_name(f"{path.name}.{threading.get_ident()}")
            temporary.write_bytes(self.body)
            temporary.replace(path)
            return self.reply(200, b"", {"ETag": f'"{self.parts[0]}"'})
        if not path.exists():
            raise Refused(403, message="no such object")
        self.ranged(path.read_bytes(), {"ETag": f'"{self.parts[0]}"'})


class Api(Handler):
    def result(self) -> None:
        match self.parts:
            case ["api", "repos", "create"]:
                self._create(json.loads(self.body))
            case ["api", "validate-yaml"]:
                self._validate(json.loads(self.body))
            case ["api", "models" | "datasets" as kind, org, name, *rest]:
                self._repository_call(f"{kind}/{org}/{name}", rest)
            case [*kind, org, name, "info", "lfs", "objects", "batch"] if name.endswith(".git"):
                self._repository(f"{'/'.join(kind) or 'models'}/{org}/{name[:-4]}", write=True)
                self._batch(json.loads(self.body))
            case ["verify", sha256]:
                self._verify(sha256, json.loads(self.body))
            case [org, name, "resolve", revision, *path]:
                self._resolve(f"models/{org}/{name}", revision, "/".join(path))
            case ["datasets", org, name, "resolve", revision, *path]:
                self._resolve(f"datasets/{org}/{name}", revision, "/".join(path))
            case _:
                raise Refused(404, message="no such page")

    def _token(self, write: bool) -> str:
        """The token of a request, "" for nobody's; refused if it may not do this."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in (TOKEN, READER, "") or (write and not token):
            raise Refused(401, message="Invalid credentials in Authorization header")
        if write and token == READER:
            raise Refused(403, message="you have read access only")
        return token

    def _repository(self, name: str, write: bool = False) -> Repository:
        token = self._token(write)
        found = self.hub.repositories.get(name)
        if found is None or (found.private and not token):
            raise Refused(404 if token else 401, "RepoNotFound", "Repository not found")
        if found.gated:
            raise Refused(403, "GatedRepo", "Access to this repository is restricted")
        return found

    def _create(self, asked: dict[str, Any]) -> None:
        self._token(write=True)
        kind = f"{asked.get('type') or 'model'}s"
        name = f"{asked['organization']}/{asked['name']}"
        url = f"{self.hub.endpoint}/{'' if kind == 'models' else kind + '/'}{name}"
        with self.hub.lock:
            if f"{kind}/{name}" in self.hub.repositories:
                return self.json({"error": "You already created this repo", "url": url}, 409)
            made = Repository(private=asked.get("visibility") == "private")
            attributes = File(INITIAL_ATTRIBUTES, len(INITIAL_ATTRIBUTES))
            made.add("main", "initial commit", {".gitattributes": attributes})
            self.hub.repositories[f"{kind}/{name}"] = made
        self.json({"url": url, "name": name, "id": "1"})

    def _validate(self, asked: dict[str, Any]) -> None:
        import yaml

        matter = re.match(r"---\n(.*?)\n---\n", asked["content"], re.DOTALL)
        try:
            valid = matter is None or isinstance(yaml.safe_load(matter[1]), dict)
        except yaml.YAMLError:
            valid = False
        errors = [] if valid else [{"message": "the metadata is no YAML mapping"}]
        self.json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def _repository_call(self, name: str, rest: list[str]) -> None:
        write = rest[:1] in (["commit"], ["preupload"])
        repository = self._repository(name, write)
        match rest:
            case [] | ["revision", _]:
                commit = repository.find(rest[1] if rest else "main")
                siblings = [{"rfilename": path} for path in sorted(commit.files)]
                about = {"id": name.partition("/")[2], "sha": commit.id, "private": repository.private}
                self.json({**about, "siblings": siblings})
            case ["preupload", revision]:
                self._preupload(repository.find(revision), json.loads(self.body))
            case ["commit", revision]:
                self._commit(name, repository, revision)
            case ["xet-write-token", _] if self.hub.xet is not None:
                self._token(write=True)
                self.json({"casUrl": f"local://{self.hub.xet}", "accessToken": "of-xet", "exp": 2**33})
            case ["tree", revision, *path]:
                self._tree(repository.find(revision), "/".join(path))
            case ["paths-info", revision]:
                paths = parse_qs(self.body.decode())["paths"]
                if len(paths) > PAGE:
                    raise Refused(413, message="too many parameters")
                found = describe(repository.find(revision).files)
                self.json([found[path] for path in paths if path in found])
            case _:
                raise Refused(404, message="no such page")

    def _tree(self, commit: Commit, folder: str) -> None:
        found = describe(commit.files)
        prefix = f"{folder}/" if folder else ""
        if folder and found.get(folder, {}).get("type") != "directory":
            raise Refused(404, "EntryNotFound", f"{folder} does not exist", **{"X-Repo-Commit": commit.id})
        deep = self.query.get("recursive", ["false"])[0].lower() == "true"
        paths = [path for path in sorted(found) if path.startswith(prefix)]
        paths = [path for path in paths if deep or "/" not in path.removeprefix(prefix)]
        start = int(self.query.get("cursor", ["0"])[0])
        more = {}
        if start + PAGE < len(paths):
            query = f"recursive={deep}&cursor={start + PAGE}"
            more["Link"] = f'<{self.hub.endpoint}{quote(urlsplit(self.path).path, "/%")}?{query}>; rel="next"'
        self.json([found[path] for path in paths[start : start + PAGE]], **more)

    def _preupload(self, commit: Commit, asked: dict[str, Any]) -> None:
        if len(asked["files"]) > 256:
            raise Refused(413, message="too many files")
        ignore = asked.get("gitIgnore", commit.files.get(".gitignore", File(b"", 0)).data.decode())
        attributes = commit.files[".gitattributes"].data.decode()

        def answer(path: str, size: int) -> dict[str, Any]:
            mode = "lfs" if size >= LFS_FROM or tracked(attributes, path) else "regular"
            is_ignored = any(line and path.startswith(line) for line in ignore.splitlines())
            found = {"path": path, "uploadMode": mode, "shouldIgnore": is_ignored}
            present = commit.files.get(path)
            return found if present is None else {**found, "oid": present.sha256 or present.oid}

        self.json({"files": [answer(file["path"], file["size"]) for file in asked["files"]]})

    def _batch(self, asked: dict[str, Any]) -> None:
        addresses = {"upload": self.hub.store, "verify": f"{self.hub.endpoint}/verify"}
        objects = [{"oid": wanted["oid"], "size": wanted["size"]} for wanted in asked["objects"]]
        for each in objects:
            if not (self.hub.root / each["oid"]).exists():
                each["actions"] = {name: {"href": f"{url}/{each['oid']}"} for name, url in addresses.items()}
        self.json({"transfer": "basic", "objects": objects})

    def _verify(self, sha256: str, asked: dict[str, Any]) -> None:
        """The Hub looks at the size; the digest it finds out too."""
        self._token(write=True)
        data = (self.hub.root / sha256).read_bytes()
        if len(data) != asked["size"] or hashlib.sha256(data).hexdigest() != sha256:
            (self.hub.root / sha256).unlink()
            raise Refused(400, message="the object is not what its name says")
        self.json({})

    def _commit(self, name: str, repository: Repository, branch: str) -> None:
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = lines[0]["value"]
        with self.hub.lock:
            head = repository.find(branch)
            if branch not in repository.branches:
                raise Refused(404, "RevisionNotFound", f"Invalid rev id: {branch}")
            if header.get("parentCommit", head.id) != head.id:
                raise Refused(412, message="A commit has happened since. Please refresh and try again.")
            files = dict(head.files)
            for line in lines[1:]:
                self._apply(files, line["key"], line["value"])
            made = repository.add(branch, header["summary"], files)
        url = f"{self.hub.endpoint}/{name.removeprefix('models/')}/commit/{made.id}"
        self.json({"commitUrl": url, "commitOid": made.id})

    def _apply(self, files: dict[str, File], key: str, value: dict[str, Any]) -> None:
        path = value["path"]
        if key == "file":
            data = base64.b64decode(value["content"])
            files[path] = File(data, len(data))
        elif key == "lfsFile":
            stored = self.hub.root / value["oid"]
            if self.hub.xet is None and not stored.exists():
                raise Refused(400, message=f"the LFS object of {path} was not uploaded")
            files[path] = in_lfs(value["oid"], value["size"] if self.hub.xet else stored.stat().st_size)
        elif key == "deletedFile":
            if path not in files:
                raise Refused(404, "EntryNotFound", "A file with this name doesn't exist")
            del files[path]
        else:
            raise Refused(400, message=f"{key} is not emulated")

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name)
        commit = repository.find(revision)
        headers = {"X-Repo-Commit": commit.id}
        file = commit.files.get(path)
        if file is None:
            raise Refused(404, "EntryNotFound", "Entry not found", **headers)
        if file.sha256 is None:
            headers["ETag"] = f'"{file.oid}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                return self.reply(304, b"", headers)
            return self.ranged(file.data, headers)
        linked = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        self.reply(302, b"", {**headers, **linked, "Location": f"{self.hub.store}/{file.sha256}"})


def describe(files: dict[str, File]) -> dict[str, dict[str, Any]]:
    """Every file and folder as the tree API tells of them; a folder's object id depends on what is in it."""
    found = {path: file.describe(path) for path, file in files.items()}
    for path in sorted(files):
        for index, character in enumerate(path):
            if character == "/" and path[:index] not in found:
                inside = [(p, files[p].oid) for p in sorted(files) if p.startswith(path[: index + 1])]
                oid = hashlib.sha1(repr(inside).encode()).hexdigest()
                found[path[:index]] = {"type": "directory", "path": path[:index], "oid": oid}
    return found


def tracked(attributes: str, path: str) -> bool:
    """Whether .gitattributes puts a path into LFS."""
    for line in attributes.splitlines():
        pattern, *rest = line.split() or [""]
        if "filter=lfs" in rest and (
            path.startswith(pattern[:-2]) if pattern.endswith("/**") else path.endswith(pattern.lstrip("*"))
        ):
            return True
    return False


@contextmanager
def running(root: Path) -> Iterator[Hub]:
    """The emulator, its LFS objects in a directory, until the end of the block."""
    root.mkdir(parents=True, exist_ok=True)
    hub = Hub(root)
    with http.serving(Api, hub=hub) as hub.endpoint, http.serving(Storage, hub=hub) as hub.store:
        yield hub
