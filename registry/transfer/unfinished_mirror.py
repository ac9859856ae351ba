"""A mirror in a directory that is not filled yet: a mark in its `local/`, from before the first model until after the last."""

from contextlib import suppress

from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.store.wrapper import innermost
from onnxreg.registry.support.disk import host_errors

MARK = "unfinished"


def begin(destination: RegistryStore, source: str) -> None:
    """Note that models of a source are on their way."""
    if isinstance(destination, DirectoryRegistry):
        destination.write_file(f"local/{MARK}", source.encode())


def end(destination: RegistryStore) -> None:
    """Note that all of them are there."""
    if isinstance(destination, DirectoryRegistry) and destination.read_local(MARK) is not None:
        with host_errors(f"writing to {destination.url}"), suppress(FileNotFoundError):
            destination.disk.unlink(destination.root / "local" / MARK)


def warning(place: RegistryReader) -> str | None:
    """What a reader of a mirror is told where models may be missing in it."""
    found = innermost(place)
    if not isinstance(found, DirectoryRegistry) or not found.is_mirror:
        return None
    source = found.read_local(MARK)
    if source is None:
        return None
    told = source.decode(errors="replace")
    return f"{found.url} does not have all models of {told} yet: `reg mirror {told} {found.url}` goes on"
