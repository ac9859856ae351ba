"""Pairs the tensors of two files, and cuts the new file into sections, each with the old bytes it resembles."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from onnxreg.converters.delta.extents import TensorExtent
from onnxreg.schema.delta.delta_format import FLOAT, SPARSE
from onnxreg.schema.delta.difference import encode, planes

SAMPLES = 4
SAMPLE_BYTES = 32 * 1024
"""A tensor's mode is chosen on so many slices of so many bytes."""
MAX_CANDIDATES = 32
"""Old tensors of one type and shape that a tensor without a namesake is compared with."""
MIN_COPY_BYTES = 48
"""Shorter runs of equal bytes are not worth a span."""


class Section(NamedTuple):
    """Bytes `start` to `start + length` of the new file.

    `old` is the offset of the old bytes that they resemble, None: literal bytes. `width` is 0 if they are equal.
    """

    start: int
    length: int
    old: int | None = None
    width: int = 0
    mode: int = 0


@dataclass(frozen=True)
class FileView:
    """A file's bytes (a mapping) and its tensors, in the order of their bytes."""

    data: Any
    tensors: Sequence[TensorExtent]

    def array(self, start: int, length: int, width: int = 1) -> Any:
        """Unsigned little-endian integers over a part of the file."""
        return np.frombuffer(self.data, f"<u{width}", length // width, start)

    def bytes(self, tensor: TensorExtent) -> Any:
        return self.array(tensor.start, tensor.length)

    def gaps(self) -> list[tuple[int, int]]:
        """Start and end of the bytes before, between and after the tensors: one more than there are tensors."""
        starts = [0, *(tensor.start + tensor.length for tensor in self.tensors)]
        ends = [*(tensor.start for tensor in self.tensors), len(self.data)]
        return list(zip(starts, ends, strict=True))


def sections(old: FileView, new: FileView) -> Iterator[Section]:
    """Cut the new file into sections, in order."""
    partners = match_tensors(old, new)
    old_gaps = dict(zip(["", *(tensor.name for tensor in old.tensors)], old.gaps(), strict=True))
    last = ""
    for tensor, (start, end) in zip([*new.tensors, None], new.gaps(), strict=True):
        yield from _gap(old, new, start, end, old_gaps.get(last))
        if tensor is not None:
            partner = partners.get(tensor.start)
            last = tensor.name if partner is None else partner.name
            yield _tensor(old, new, tensor, partner)


def match_tensors(old: FileView, new: FileView) -> dict[int, TensorExtent]:
    """The old tensor for each new one (by its offset) that has one: by name, then by bytes, then by likeness."""
    by_name = {(tensor.name, tensor.kind): tensor for tensor in old.tensors}
    partners = {
        tensor.start: by_name[tensor.name, tensor.kind]
        for tensor in new.tensors
        if (tensor.name, tensor.kind) in by_name
    }
    used = {partner.start for partner in partners.values()}
    unpaired = [tensor for tensor in new.tensors if tensor.start not in partners]
    same_bytes = {_content(old, tensor): tensor for tensor in old.tensors} if unpaired else {}
    for tensor in unpaired:
        if (equal := same_bytes.get(_content(new, tensor))) is not None:
            partners[tensor.start] = equal
            used.add(equal.start)
    spare: dict[Any, list[TensorExtent]] = defaultdict(list)
    for tensor in old.tensors:
        if tensor.start not in used:
            spare[tensor.kind].append(tensor)
    for tensor in unpaired:
        candidates = spare[tensor.kind][:MAX_CANDIDATES]
        if tensor.start not in partners and candidates:
            nearest = min(candidates, key=lambda item: _choose_mode(old, new, tensor, item)[0])
            partners[tensor.start] = nearest
            spare[tensor.kind].remove(nearest)
    return partners


def _content(view: FileView, tensor: TensorExtent) -> tuple[int, bytes]:
    import hashlib

    return tensor.length, hashlib.sha256(view.bytes(tensor)).digest()


def _tensor(old: FileView, new: FileView, tensor: TensorExtent, partner: TensorExtent | None) -> Section:
    """The section of a tensor: the difference to its partner, unless its bytes alone are smaller."""
    if partner is None:
        return Section(tensor.start, tensor.length)
    bits, mode = _choose_mode(old, new, tensor, partner)
    if bits >= _literal_bits(new, tensor):
        return Section(tensor.start, tensor.length)
    return Section(tensor.start, tensor.length, partner.start, tensor.width, mode)


def _choose_mode(
    old: FileView, new: FileView, tensor: TensorExtent, partner: TensorExtent
) -> tuple[int, int]:
    """The bits that a sample of the difference takes in its best mode, and that mode."""
    modes = (0, SPARSE, FLOAT, FLOAT | SPARSE) if tensor.is_float and tensor.width > 1 else (0, SPARSE)
    pairs = [
        (
            new.array(tensor.start + at, size, tensor.width),
            old.array(partner.start + at, size, tensor.width),
        )
        for at, size in _slices(tensor)
    ]
    costs = [(sum(_bits(*pair, mode) for pair in pairs), mode) for mode in modes]
    return min(costs)


def _bits(new: Any, old: Any, mode: int) -> int:
    """An estimate of the bits of a deflated difference; it follows from the bytes alone, not from a zlib build."""
    return sum(_entropy(plane) for plane in planes(encode(new, old, mode), new.nbytes, new.itemsize, mode))


def _literal_bits(new: FileView, tensor: TensorExtent) -> int:
    """The bits that the same sample takes by itself."""
    return sum(_entropy(new.array(tensor.start + at, size)) for at, size in _slices(tensor))


def _slices(tensor: TensorExtent) -> list[tuple[int, int]]:
    """Offset and size of the parts of a tensor that are its sample, evenly spread."""
    if tensor.length <= SAMPLES * SAMPLE_BYTES:
        return [(0, tensor.length)]
    step = (tensor.length - SAMPLE_BYTES) // (SAMPLES - 1) // 8 * 8
    return [(index * step, SAMPLE_BYTES) for index in range(SAMPLES)]


def _entropy(data: Any) -> int:
    """The bits of some bytes at their entropy (of order 0); a prefix code spends a bit on the commonest one."""
    if not data.size:
        return 0
    counts = np.bincount(data, minlength=256)
    shares = counts[counts > 0] / data.size
    bits = float(-(shares * np.log2(shares)).sum())
    return int(data.size * (bits * 1.25 if shares.max() > 0.5 else bits))


def _gap(
    old: FileView, new: FileView, start: int, end: int, old_gap: tuple[int, int] | None
) -> Iterator[Section]:
    """The bytes between tensors. What the same place of the old file has too is copied."""
    if start == end:
        return
    first, stop = old_gap or (0, 0)
    before, after = old.array(first, stop - first), new.array(start, end - start)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    head, tail = (count if count >= MIN_COPY_BYTES else 0 for count in (head, tail))
    if head:
        yield Section(start, head, first)
    if start + head < end - tail:
        yield Section(start + head, end - tail - start - head)
    if tail:
        yield Section(end - tail, tail, stop - tail)


def _common(left: Any, right: Any) -> int:
    """The number of equal bytes at the beginning of two arrays."""
    size = min(left.size, right.size)
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size
