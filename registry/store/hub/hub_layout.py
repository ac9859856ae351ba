"""The usual layout of a model beside the registry in a Hub repository: `config.json`, the tokenizer, `onnx/...`, a card.

`reg push --layout hub` writes it for one model, from its newest release or from a channel. `layout.json` remembers the
choice and each file that was written, so every later commit to that model's log moves the files with it. A file that was
not written here is never replaced.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from onnxreg.registry.store.hub.commits import LAYOUT, CommitSnapshot
from onnxreg.registry.store.hub.hub_client import HubFile, Operation
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.core.ref import Version, check_name, check_tag
from onnxreg.schema.formats.hub_layout import LayoutFile, layout
from onnxreg.schema.gates.policy import policy_in_force
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.manifest import Manifest, read_manifest

ATTRIBUTES = ".gitattributes"
LFS = "filter=lfs diff=lfs merge=lfs -text"
LFS_PATTERNS = ("*.onnx", "*.ort", "*.onnx_data", "*.onnx.data", "tokenizer.json")
"""Files of a layout that may be large: in LFS they are the object of their blob."""
MAX_LISTED_PATHS = 5
"""Paths that an error names."""

HUB = "hub"
RESERVED_FOLDERS = frozenset({"blobs", "index", "gc", "local"})
POLICIES = "policy.jsonl"
RESERVED_FILES = frozenset(
    {LAYOUT, "registry.json", POLICIES, "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt"}
)

ReadBlob = Callable[[Digest], bytes]


@dataclass(frozen=True)
class RepositoryLayout:
    """The content of `layout.json`: whose layout it is, and the files that were written, by path."""

    name: str
    channel: str | None = None
    files: Mapping[str, Digest] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)
    """The keys of the card's metadata that were written, with their values."""

    @classmethod
    def read(cls, at: CommitSnapshot) -> "RepositoryLayout | None":
        """The layout of a commit; None if it has none. IntegrityError if `layout.json` is malformed."""
        data = at.read(LAYOUT)
        if data is None:
            return None
        try:
            value = json.loads(data)
            files = {check_path(path): Digest.parse(digest) for path, digest in value["files"].items()}
            if value["layout"] != HUB or any(map(is_reserved, files)):
                raise ValueError
            channel = value.get("channel")
            name, tag = check_name(value["name"]), None if channel is None else check_tag(channel)
            return cls(name, tag, files, dict(value.get("card", {})))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
            raise IntegrityError(f"{LAYOUT} is damaged", Advice("write-layout-again")) from error

    def encode(self) -> bytes:
        value: dict[str, Any] = {"layout": HUB, "name": self.name}
        if self.channel is not None:
            value["channel"] = self.channel
        value["files"] = {path: str(digest) for path, digest in sorted(self.files.items())}
        if self.card:
            value["card"] = dict(self.card)
        return json.dumps(value, indent=1).encode() + b"\n"

    def version_in(self, state: State) -> tuple[Version, Digest] | None:
        """The version whose files are shown, with its manifest; None without such a version."""
        if self.channel is None:
            version = state.newest_release()
            return None if version is None else (version, state.versions[version].manifest)
        channel = state.channels.get(self.channel)
        entry = None if channel is None else state.versions.get(channel.version)
        if channel is None or (entry is not None and not entry.usable):
            return None
        return channel.version, channel.manifest

    def manifest_in(self, state: State, read_blob: ReadBlob) -> Manifest | None:
        """The manifest of the version whose files are shown."""
        target = self.version_in(state)
        if target is None:
            return None
        manifest = read_manifest(read_blob(target[1]))
        assert isinstance(manifest, Manifest), "a registry has manifests of version 2 alone"
        return manifest

    def files_in(self, state: State, manifest: Manifest | None, read_blob: ReadBlob) -> dict[str, LayoutFile]:
        """The files that the layout has for a state of the model, by path."""
        target = self.version_in(state)
        if target is None or manifest is None:
            return {}
        version, digest = target
        entry = state.versions.get(version)
        verdicts = state.verdicts(entry)
        states = {
            item.path: verdicts.get(item.digest, item.certification.state) for item in manifest.artifacts
        }
        held_paths = None if entry is None else entry.held
        files = layout(manifest, digest, len(read_blob(digest)), states, held_paths)
        return {path: file for path, file in files.items() if not is_reserved(path)}

    def after(self, files: Iterable[LayoutFile], card: Mapping[str, Any]) -> "RepositoryLayout":
        """The same layout with these files, and this metadata."""
        return replace(self, files={file.path: file.digest for file in files}, card=card)


def is_reserved(path: str) -> bool:
    """True for a path that is part of the registry or of the repository itself."""
    top = path.partition("/")[0]
    return top.startswith(".") or top in RESERVED_FOLDERS or path in RESERVED_FILES


def attributes(at: CommitSnapshot) -> list[Operation]:
    """The change to `.gitattributes` that puts the large files of a layout into LFS; empty if it has the rules."""
    lines = (at.read(ATTRIBUTES) or b"").decode(errors="replace").splitlines()
    rules = [f"{pattern} {LFS}" for pattern in LFS_PATTERNS]
    missing = [rule for rule in rules if rule not in lines]
    return [CommitOperationAdd(ATTRIBUTES, "\n".join([*lines, *missing, ""]).encode())] if missing else []


def chosen(at: CommitSnapshot, name: str, request: RepositoryLayout | None) -> RepositoryLayout | None:
    """The layout to bring up to date with a commit to a model's log; None if it has none.

    `request` is the choice of this push. Raise InputError if the repository has the layout of another model.
    """
    current = RepositoryLayout.read(at)
    if request is None or request.name != name:
        return current if current is not None and current.name == name else None
    if current is not None and current.name != name:
        raise InputError(
            f"the repository has the layout of {current.name} already",
            "push each model that other libraries load to a repository of its own",
        )
    if is_governed(at, request):
        raise InputError(
            f"the channel {request.channel} has a policy, and clients of the Hub cannot check that it is met",
            "show the newest release instead",
        )
    return request if current is None else replace(request, files=current.files, card=current.card)


def is_governed(at: CommitSnapshot, current: RepositoryLayout) -> bool:
    """True if a policy covers the channel that a layout shows, or may cover it."""
    policies = None if current.channel is None else at.read(POLICIES)
    if policies is None or current.channel is None:
        return False
    try:
        return bool(policy_in_force(policies).covering(current.name, current.channel))
    except InputError:
        return True


def update(
    at: CommitSnapshot,
    current: RepositoryLayout,
    files: Mapping[str, LayoutFile],
    card: Mapping[str, Any],
    add: Callable[[LayoutFile], Operation],
) -> list[Operation]:
    """The changes after which the repository has these files; what it has is not sent again."""
    present = at.entries([*current.files, *files])
    intact = {
        path for path in present if path in current.files and _has(at, present[path], current.files[path])
    }
    _check_foreign([path for path in present if path not in intact])
    unchanged = {path for path in intact if path in files and current.files[path] == files[path].digest}
    operations: list[Operation] = [add(file) for path, file in files.items() if path not in unchanged]
    outdated = [path for path in current.files if path not in files and path in present]
    operations += [CommitOperationDelete(path, is_folder=False) for path in outdated]
    content = current.after(files.values(), card).encode()
    return operations if at.read(LAYOUT) == content else [*operations, CommitOperationAdd(LAYOUT, content)]


def _has(at: CommitSnapshot, entry: HubFile, digest: Digest) -> bool:
    """True if a file of a commit still has the bytes that were written."""
    if entry.oid == digest.hex:
        return True
    in_lfs = len(entry.oid) == len(digest.hex)
    data = None if in_lfs or entry.size is None else at.read(entry.path)
    return data is not None and Digest.of(data) == digest


def _check_foreign(paths: Collection[str]) -> None:
    """InputError, listing them, if the layout would replace or delete files that it did not write."""
    if paths:
        more = f" and {len(paths) - MAX_LISTED_PATHS} more" if len(paths) > MAX_LISTED_PATHS else ""
        listed = ", ".join(sorted(paths)[:MAX_LISTED_PATHS])
        raise InputError(
            f"the repository has files that the layout would replace: {listed}{more}",
            "move them away there, or push to another repository",
        )
