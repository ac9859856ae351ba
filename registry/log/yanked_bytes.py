"""Yanked bytes: the yank that holds for a version, and artifacts that only yanked versions have."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from onnxreg.registry.log.log import Log
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Yank

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest


def yanks_of(log: Log, versions: Iterable[Version]) -> dict[Version, Yank]:
    """The first yank of each of these versions that was not taken back; the log is read once."""
    yanked = {version: yanks for version in versions if (yanks := log.versions[version].yanks)}
    first: dict[Version, Yank] = {}
    for _, event in log.events(Yank) if yanked else ():
        for version, yanks in yanked.items():
            if event.id in yanks:
                first.setdefault(version, event)
    return first


def words_of(yank: Yank) -> str:
    """The bytes and why they are yanked: `these are the bytes of acme/ner:0.2.1, yanked: leaks names`."""
    reason = f": {yank.reason}" if yank.reason else ""
    return f"these are the bytes of {yank.name}:{yank.version}, yanked{reason}"


def check_not_yanked(
    log: Log, manifest: "Manifest", digest: Digest, ignored: Collection[Digest] = (), suffix: str = ""
) -> None:
    """ConflictError if a manifest has an artifact of yanked versions that no other version has.

    A manifest that is yanked itself passes: all its versions stay yanked. `ignored` are yanks that do not count;
    `suffix` completes the command that takes a yank back.
    """
    entries = sorted(log.versions.items(), key=lambda item: item[0].precedence, reverse=True)
    if any(entry.yanked for _, entry in entries if entry.manifest == digest):
        return
    weights = {weight: path for path, weight in _weights(manifest)}
    withdrawn = {
        weight: version
        for version, entry in entries
        if not {*entry.yanks} <= {*ignored}
        for weight in _published(log, entry.manifest) & weights.keys()
    }
    for other in dict.fromkeys(entry.manifest for _, entry in entries if not entry.yanked):
        if not withdrawn:
            return
        for weight in _published(log, other) & withdrawn.keys():
            del withdrawn[weight]
    for weight, version in withdrawn.items():
        yank = yanks_of(log, [version]).get(version)
        reason = f": {yank.reason}" if yank is not None and yank.reason else ""
        raise ConflictError(
            f"{weights[weight]} has the bytes of {log.name}:{version}, which is yanked{reason}",
            f"to publish them all the same: --yanked-bytes; to take the yank back: reg yank {log.name}:{version} --undo{suffix}",
        )


def _published(log: Log, digest: Digest) -> set[Digest]:
    """The weights of a manifest of the log; none if it was taken down."""
    with suppress(NotFoundError):
        return {weight for _, weight in _weights(log.read_manifest(digest))}
    return set()


def _weights(manifest: "Manifest") -> Iterator[tuple[str, Digest]]:
    """The path of each artifact with the file that has its weights: its external data, or else the model file."""
    for artifact in manifest.artifacts:
        data = [file.digest for file in artifact.files if file.role == "external-data"]
        yield from ((artifact.path, digest) for digest in data or [artifact.digest])
