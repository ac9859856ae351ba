"""Find and clear leftovers of interrupted work: only named files that do not belong to the registry."""

import re
from collections.abc import Collection, Iterable, Iterator

from onnxreg.registry.maintain.verification import is_registry_file
from onnxreg.registry.store.layout import NOTE
from onnxreg.registry.store.protocol import RegistryStore, TreeFile
from onnxreg.schema.core.errors import Advice, ConflictError, InputError, NotFoundError

PROBE = re.compile(r"gc/probe-[0-9a-f]{16}")
"""The object that one run of the probes works on."""
TRIAL = re.compile(r"(gc/live-[0-9a-f]{16}/).+")
"""A file in the scratch of one run of `reg doctor --live`; group 1 is the scratch."""
_CONDEMNED = re.compile(rf"gc/condemned/({NOTE.pattern})")


def probes(files: Iterable[TreeFile]) -> list[str]:
    """The scratch objects of probes, which run or were interrupted."""
    return [file.path for file in files if PROBE.fullmatch(file.path)]


def trials(files: Iterable[TreeFile]) -> list[str]:
    """The scratch of trials, which run or were interrupted: each a prefix that ends with a slash."""
    return sorted({match[1] for file in files if (match := TRIAL.fullmatch(file.path))})


def clear(remote: RegistryStore, paths: Collection[str]) -> list[str]:
    """Delete files that the doctor named; a path that ends with a slash means all below it. Returns what was
    deleted.

    The caller asserts that no collection of these files still runs. Nothing is deleted if one path is
    refused: NotFoundError if it does not exist, InputError if it belongs to the registry, ConflictError if
    its collection runs.
    """
    files = list(remote.files())
    chosen = [file for path in paths for file in _below(files, path)]
    for file in chosen:
        _check(remote, file)
    remote.discard([file.path for file in chosen])
    return [file.path for file in chosen]


def _below(files: Iterable[TreeFile], path: str) -> Iterator[TreeFile]:
    matches = [
        file for file in files if file.path == path or (path[-1:] == "/" and file.path.startswith(path))
    ]
    if not matches:
        raise NotFoundError(f"there is no {path}", Advice("list-leftovers"))
    yield from matches


def _check(remote: RegistryStore, file: TreeFile) -> None:
    note = _CONDEMNED.fullmatch(file.path)
    if note is not None and remote.is_alive(note[1]):
        raise ConflictError(f"the collection that left {file.path} runs", "wait for it, or stop it")
    if (
        note is None
        and is_registry_file(file)
        and not PROBE.fullmatch(file.path)
        and not TRIAL.fullmatch(file.path)
    ):
        raise InputError(f"{file.path} is a part of the registry", Advice("collect-garbage"))
