"""The usual layout of a model beside the registry in a Hub repository: `config.json`, the tokenizer, `onnx/...`, a card.

`reg push --layout hub` writes it for one model, from its newest release or from a channel. `layout.json` remembers the
choice and each file that was written, so every later commit to that model's log moves the files with it. A file that was
not written here is never replaced.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from onnxreg.registry.store.hub.commits import LAYOUT, CommitSnapshot
from onnxreg.registry.store.hub.hub_client import HubFile, Operation
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.core.ref import POLICY_LOG, Version, check_name, check_tag
from onnxreg.schema.formats.hub_layout import LayoutFile, layout
from onnxreg.schema.gates.policy import policy_of
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.manifest import Manifest

ATTRIBUTES = ".gitattributes"
LFS = "filter=lfs diff=lfs merge=lfs -text"
LFS_PATTERNS = ("*.onnx", "*.ort", "*.onnx_data", "*.onnx.data", "tokenizer.json")
"""Files of a layout that may be large: in LFS they are the object of their blob."""
MAX_LISTED_PATHS = 5
"""Paths that an error names."""
HUB = "hub"
POLICIES = index_path(POLICY_LOG)
RESERVED_FOLDERS = frozenset({"blobs", "index", "gc", "local"})
RESERVED_FILES = frozenset(
    {LAYOUT, "registry.json", POLICIES, "README.md", "LICENSE", "LICENSE.md", "LICENSE.txt"}
)


@dataclass(frozen=True)
class RepositoryLayout:
    """The content of `layout.json`: whose layout it is, and the files and keys of the card that were written."""

    name: str
    channel: str | None = None
    files: Mapping[str, Digest] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

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
            raise IntegrityError(
                f"{LAYOUT} is damaged", "delete it there, then push again with --layout hub"
            ) from error

    def encode(self) -> bytes:
        value: dict[str, Any] = {"layout": HUB, "name": self.name}
        value |= {} if self.channel is None else {"channel": self.channel}
        value["files"] = {path: str(digest) for path, digest in sorted(self.files.items())}
        value |= {"card": dict(self.card)} if self.card else {}
        return json.dumps(value, indent=1).encode() + b"\n"

    def shown(self, state: State) -> tuple[Version, Digest] | None:
        """The version whose files are shown, with its manifest; None without such a version."""
        if self.channel is None:
            version = state.newest_release()
            return None if version is None else (version, state.versions[version].manifest)
        channel = state.channels.get(self.channel)
        entry = None if channel is None else state.versions.get(channel.version)
        if channel is None or (entry is not None and not entry.usable):
            return None
        return channel.version, channel.manifest

    def is_governed(self, at: CommitSnapshot) -> bool:
        """True if a policy covers the channel that is shown, or may cover it."""
        policies = None if self.channel is None else at.read(POLICIES)
        if policies is None or self.channel is None:
            return False
        try:
            newest = LogLine.decode(policies.removesuffix(b"\n").rpartition(b"\n")[2])
            return bool(policy_of(newest).covering(self.name, self.channel))
        except (InputError, IntegrityError):
            return True


def files_of(state: State, version: Version, data: bytes, manifest: Manifest) -> dict[str, LayoutFile]:
    """The files of a version, by path; `data` are the bytes of its manifest."""
    entry = state.versions.get(version)
    verdicts = state.verdicts(entry)
    states = {item.path: verdicts.get(item.digest, item.certification.state) for item in manifest.artifacts}
    files = layout(manifest, Digest.of(data), len(data), states, None if entry is None else entry.held)
    return {path: file for path, file in files.items() if not is_reserved(path)}


def is_reserved(path: str) -> bool:
    """True for a path that is part of the registry or of the repository itself."""
    top = path.partition("/")[0]
    return top.startswith(".") or top in RESERVED_FOLDERS or path in RESERVED_FILES


def attributes(at: CommitSnapshot) -> list[Operation]:
    """The change to `.gitattributes` that puts the large files of a layout into LFS; empty if it has the rules."""
    lines = (at.read(ATTRIBUTES) or b"").decode(errors="replace").splitlines()
    missing = [rule for pattern in LFS_PATTERNS if (rule := f"{pattern} {LFS}") not in lines]
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
    if request.is_governed(at):
        raise InputError(
            f"the channel {request.channel} has a policy, and clients of the Hub cannot check that it is met",
            "show the newest release instead",
        )
    return request if current is None else replace(request, files=current.files, card=current.card)


def update(
    at: CommitSnapshot,
    current: RepositoryLayout,
    files: Mapping[str, LayoutFile],
    card: Mapping[str, Any],
    add: Callable[[LayoutFile], Operation],
) -> list[Operation]:
    """The changes after which the repository has these files; what it has is not sent again.

    InputError, listing them, if files would be replaced or deleted that were not written here, or that somebody changed.
    """
    present = at.entries([*current.files, *files])
    intact = {
        path for path in current.files if path in present and _has(at, present[path], current.files[path])
    }
    if foreign_paths := sorted(present.keys() - intact):
        count = len(foreign_paths) - MAX_LISTED_PATHS
        listed = f"{', '.join(foreign_paths[:MAX_LISTED_PATHS])}{f' and {count} more' if count > 0 else ''}"
        raise InputError(
            f"the repository has files that the layout would replace: {listed}",
            "move them away there, or push to another repository",
        )
    operations: list[Operation] = [
        add(file) for path, file in files.items() if path not in intact or current.files[path] != file.digest
    ]
    outdated = [path for path in current.files if path not in files and path in present]
    operations += [CommitOperationDelete(path, is_folder=False) for path in outdated]
    content = replace(current, files={path: file.digest for path, file in files.items()}, card=card).encode()
    return operations if at.read(LAYOUT) == content else [*operations, CommitOperationAdd(LAYOUT, content)]


def _has(at: CommitSnapshot, entry: HubFile, digest: Digest) -> bool:
    """True if a file of a commit still has the bytes that were written."""
    if entry.oid == digest.hex or len(entry.oid) == len(digest.hex) or entry.size is None:
        return entry.oid == digest.hex
    data = at.read(entry.path)
    return data is not None and Digest.of(data) == digest
