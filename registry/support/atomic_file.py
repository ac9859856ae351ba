"""Files that a user asks for: checked before the work, and there when they are whole."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.schema.core.errors import InputError


def check_outfile(target: Path) -> None:
    """InputError where no file may be written there; an earlier file is no hindrance."""
    place = target.resolve()
    if place.exists() and not place.is_file():
        raise InputError(f"{target} is not a file", "name a file, new or old")
    if not place.parent.is_dir():
        raise InputError(f"there is no directory {target.parent}", "make it first, or name another")
    if any((above / "registry.json").exists() for above in place.parents):
        raise InputError(f"{target} lies inside a registry", "name a file outside of it")


@contextmanager
def outfile(target: Path) -> Iterator[BinaryIO]:
    """A file to write; at the end it stands whole in the place of an earlier one, after an error nothing does."""
    place, disk = target.resolve(), Disk()
    aside = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    with host_errors(f"writing {target}"):
        try:
            with disk.create(aside) as file:
                yield file
            disk.write_all([(aside, place)], place.parent)
        finally:
            disk.unlink(aside)
