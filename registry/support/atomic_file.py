"""Output files that a user names: checked before the work, and visible only when they are complete."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.schema.core.errors import InputError


def check_outfile(target: Path) -> None:
    """Check that a file may be written there, new or over an old one. InputError if not."""
    path = target.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{target} is not a file", "name a file, new or old")
    if not path.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}", "make it first, or name another")
    if any((above / "registry.json").exists() for above in path.parents):
        raise InputError(f"{target} is inside a registry", "name a file outside of it")


@contextmanager
def outfile(target: Path) -> Iterator[BinaryIO]:
    """Open a file to write; at the end it replaces an earlier one atomically, after an error nothing changes."""
    path, disk = target.resolve(), Disk()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with host_errors(f"writing {target}"):
        try:
            with disk.create(temporary) as file:
                yield file
            disk.write_all([(temporary, path)], path.parent)
        finally:
            disk.unlink(temporary)
