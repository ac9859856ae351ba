"""Marker in `local/` of a directory mirror that is not complete: from before the first model until after the
last.
"""

from onnxreg.registry.store.abilities import LocalStore
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.store.wrapper import innermost
from onnxreg.schema.core.errors import Advice

MARKER_FILE = "unfinished"


def begin(destination: RegistryStore, source: str) -> None:
    """Mark a mirror as not complete."""
    if isinstance(destination, LocalStore):
        destination.write_local(MARKER_FILE, source.encode())


def end(destination: RegistryStore) -> None:
    """Remove the mark."""
    if isinstance(destination, LocalStore) and destination.read_local(MARKER_FILE) is not None:
        destination.remove_local(MARKER_FILE)


def warning(reader: RegistryReader) -> Advice | None:
    """The warning for readers of a mirror that may lack models, or None."""
    directory = innermost(reader)
    if not isinstance(directory, LocalStore) or not directory.is_mirror:
        return None
    source = directory.read_local(MARKER_FILE)
    if source is None:
        return None
    return Advice("mirror-lacks-models", source=source.decode(errors="replace"), mirror=directory.url)
