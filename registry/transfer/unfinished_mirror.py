"""Marker in `local/` of a directory mirror that is not complete: from before the first model until after the
last.
"""

from contextlib import suppress

from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.store.wrapper import innermost
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core.errors import Advice

MARKER_FILE = "unfinished"


def begin(destination: RegistryStore, source: str) -> None:
    """Mark a mirror as not complete."""
    if isinstance(destination, DirectoryRegistry):
        destination.write_file(f"local/{MARKER_FILE}", source.encode())


def end(destination: RegistryStore) -> None:
    """Remove the mark."""
    if isinstance(destination, DirectoryRegistry) and destination.read_local(MARKER_FILE) is not None:
        with host_errors(f"writing to {destination.url}"), suppress(FileNotFoundError):
            destination.disk.unlink(destination.root / "local" / MARKER_FILE)


def warning(reader: RegistryReader) -> Advice | None:
    """The warning for readers of a mirror that may lack models, or None."""
    directory = innermost(reader)
    if not isinstance(directory, DirectoryRegistry) or not directory.is_mirror:
        return None
    source = directory.read_local(MARKER_FILE)
    if source is None:
        return None
    return Advice("mirror-lacks-models", source=source.decode(errors="replace"), mirror=directory.url)
