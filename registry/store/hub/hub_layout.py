"""The usual layout of a model beside the registry in a Hub repository: `config.json`, the tokenizer, `onnx/...`, a card.

`reg push --layout hub` writes it for one model, from its newest release or from a channel. `layout.json` remembers the
choice and each file that was written, so every later commit to that model's log moves the files with it. A file that was
not written here is never replaced.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from onnxreg.registry.store.hub.commits import LAYOUT, CommitSnapshot
from onnxreg.registry.store.hub.hub_client import Operation
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.core.ref import check_name, check_tag
from onnxreg.schema.core.version import Version
from onnxreg.schema.formats.hub_layout import LayoutFile, layout
from onnxreg.schema.log.state import State
from onnxreg.schema.manifest.manifest import Manifest, read_manifest

ATTRIBUTES = ".gitattributes"
LFS = "filter=lfs diff=lfs merge=lfs -text"
LFS_PATTERNS = ("*.onnx", "*.ort", "*.onnx_data", "*.onnx.data", "tokenizer.json")
"""Files of a layout that may be large: in LFS they are the object of their blob."""
MAX_LISTED_PATHS = 5
"""Paths that an error names."""

ReadBlob = Callable[[Digest], bytes]


@dataclass(frozen=True)
class RepositoryLayout:
    """The content of `layout.json`: whose layout it is, and the files that were written, by path."""

    name: str
    channel: str | None = None
    files: Mapping[str, Digest] = field(default_factory=dict)

    @classmethod
    def read(cls, at: CommitSnapshot) -> "RepositoryLayout | None":
        """The layout of a commit; None if it has none. IntegrityError if `layout.json` is malformed."""
        data = at.read(LAYOUT)
        if data is None:
            return None
        try:
            value = json.loads(data)
            files = {str(path): Digest.parse(digest) for path, digest in value["files"].items()}
            channel = value.get("channel")
            return cls(check_name(value["name"]), None if channel is None else check_tag(channel), files)
        except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
            raise IntegrityError(f"{LAYOUT} is damaged", Advice("write-layout-again")) from error

    def encode(self) -> bytes:
        value: dict[str, Any] = {"layout": "hub", "name": self.name}
        if self.channel is not None:
            value["channel"] = self.channel
        value["files"] = {path: str(digest) for path, digest in sorted(self.files.items())}
        return json.dumps(value, indent=1).encode() + b"\n"

    def version_in(self, state: State) -> tuple[Version, Digest] | None:
        """The version whose files are shown, with its manifest; None without such a version."""
        if self.channel is None:
            version = state.newest_release()
            return None if version is None else (version, state.versions[version].manifest)
        channel = state.channels.get(self.channel)
        return None if channel is None else (channel.version, channel.manifest)

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
        return layout(manifest, digest, len(read_blob(digest)), states, held_paths)

    def after(self, files: Iterable[LayoutFile]) -> "RepositoryLayout":
        """The same layout with these files."""
        return replace(self, files={file.path: file.digest for file in files})


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
    return replace(request, files=current.files if current else {})


def update(
    at: CommitSnapshot,
    current: RepositoryLayout,
    files: Mapping[str, LayoutFile],
    add: Callable[[LayoutFile], Operation],
) -> list[Operation]:
    """The changes after which the repository has these files; what it has is not sent again."""
    _check_foreign(at, current, files.values())
    present = at.entries([*current.files, *files])
    unchanged = {
        path for path, file in files.items() if path in present and current.files.get(path) == file.digest
    }
    operations: list[Operation] = [add(file) for path, file in files.items() if path not in unchanged]
    outdated = [path for path in current.files if path not in files and path in present]
    operations += [CommitOperationDelete(path, is_folder=False) for path in outdated]
    content = current.after(files.values()).encode()
    return operations if at.read(LAYOUT) == content else [*operations, CommitOperationAdd(LAYOUT, content)]


def _check_foreign(at: CommitSnapshot, current: RepositoryLayout, files: Iterable[LayoutFile]) -> None:
    """InputError, listing them, if the layout would replace files that it did not write."""
    paths = [file.path for file in files if file.path not in current.files]
    foreign = sorted(at.entries(paths))
    if foreign:
        more = f" and {len(foreign) - MAX_LISTED_PATHS} more" if len(foreign) > MAX_LISTED_PATHS else ""
        listed = ", ".join(foreign[:MAX_LISTED_PATHS])
        raise InputError(
            f"the repository has files that the layout would replace: {listed}{more}",
            "move them away there, or push to another repository",
        )
