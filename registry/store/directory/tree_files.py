"""Small files of a registry's tree by path, such as those of the witness log."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES
from onnxreg.registry.support.disk import Disk, host_errors, read_bounded
from onnxreg.schema.core.digest import Digest

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from onnxreg.registry.store.protocol import StoredObject


class TreeFiles:
    """The files of a registry in a directory; see `protocol.PathStore`."""

    root: Path
    disk: Disk

    if TYPE_CHECKING:

        def staging(self) -> "AbstractContextManager[Path]": ...

        def refuse_link(self, path: Path) -> None: ...

        def write_file(self, path: str, data: bytes) -> None: ...

    def read_file(self, path: str, cached: "StoredObject | None" = None) -> "StoredObject | None":
        with host_errors(f"reading {path}"):
            try:
                data = read_bounded(self.root / path, MAX_DOCUMENT_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return data, Digest.of(data).hex

    def write_files(self, files: Mapping[str, bytes]) -> None:
        with self.staging() as scratch, host_errors(f"writing to {self.root}"):
            pairs = []
            for number, (path, data) in enumerate(files.items()):
                if (self.read_file(path) or (None,))[0] != data:
                    self.refuse_link((self.root / path).parent)
                    with self.disk.create(scratch / str(number)) as file:
                        file.write(data)
                    pairs.append((scratch / str(number), self.root / path))
            relied = [self.root / path for path in files]
            self.disk.write_all(pairs, self.root, relied)

    def swap_file(self, path: str, data: bytes, expected: str | None) -> bool:
        from onnxreg.registry.store.directory.scratch import exclusive

        with self.staging(), exclusive(self.root / "local" / "locks" / f".{path.replace('/', '~')}.lock"):
            current = self.read_file(path)
            if (current[1] if current else None) != expected:
                return False
            self.write_file(path, data)
            return True
