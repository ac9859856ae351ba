"""Files that go up to the Hub, which tell how many of their bytes are sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from huggingface_hub import CommitOperationAdd

from onnxreg.registry.store.streams import Borrowed
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.progress import Advance


class UploadMeter:
    """Counts the bytes of a blob that were sent and reports them; going back subtracts them."""

    def __init__(self, size: int, advance: Advance) -> None:
        self._size = size
        self._advance = advance
        self._reached = 0

    def reach(self, position: int) -> None:
        """So many of its bytes are sent."""
        self._advance(position - self._reached)
        self._reached = position

    def end(self) -> None:
        """Count the blob as sent in full: the client reports no more within a commit, or through Xet."""
        self.reach(self._size)


class MeteredAddition(CommitOperationAdd):
    """A blob to be added from a file of this machine, whose digest is known."""

    def __init__(self, path: str, file: str, digest: Digest, meter: UploadMeter | None) -> None:
        super().__init__(path, file)
        self.upload_info.sha256 = bytes.fromhex(digest.hex)
        self._meter = meter

    @contextmanager
    def as_file(self, with_tqdm: bool = False) -> Iterator[BinaryIO]:
        """The file object that the client reads. If the client asks for its own progress bar, it is sending."""
        with super().as_file() as file:
            metered = with_tqdm and self._meter is not None
            yield cast(BinaryIO, _Sending(file, cast(UploadMeter, self._meter))) if metered else file


class _Sending(Borrowed):
    """A file that reports how far it was read. Closing it leaves the file open."""

    def __init__(self, file: BinaryIO, meter: UploadMeter) -> None:
        super().__init__(file)
        self._meter = meter

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._meter.reach(self._file.tell())
        return data
