"""The paths of a family's files, and a check that no two are the same."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from onnxreg.converters.families.find_checkpoints import member_of, plain
from onnxreg.converters.families.precisions import PLAIN, Precision
from onnxreg.converters.families.server_files import LIST, METADATA
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_distinct
from onnxreg.schema.inputs.family_file import FamilyFile

SUFFIXES = {PLAIN: "-fp32", "float16": "-fp16", "int8": "-int8"}
OOD, TENSORS = "ood.onnx", "ood.safetensors"
Paths = Sequence[tuple[Precision, str]]
"""The path of each precision of a member, that of float32 first."""


def backbone_paths(document: FamilyFile) -> Paths:
    """float16 has the plain name, as servers expect it."""
    suffixes = {**SUFFIXES, "float16": ""}
    precisions: Sequence[Precision] = (PLAIN, *document.variants.backbone)
    return [(item, f"{document.backbone.file}{suffixes[item]}.onnx") for item in precisions]


def head_paths(document: FamilyFile, class_id: str) -> Paths:
    precisions: Sequence[Precision] = (PLAIN, *document.variants.head)
    stem = f"{document.heads.file}/{plain(class_id)}"
    return [(item, f"{stem}{SUFFIXES[item]}.onnx") for item in precisions]


def fused_paths(document: FamilyFile) -> Paths:
    return [(item, f"{document.heads.file}{SUFFIXES[item]}.onnx") for item in document.variants.fused]


def check_paths(document: FamilyFile, class_ids: Iterable[str]) -> None:
    """Raise InputError, naming the members, if two files would have one path, or that of a folder.

    Args:
        class_ids: the classes with a head.
    """
    planned = [*_planned(document, class_ids)]
    try:
        check_distinct(path for _, path in planned)
    except ValueError as error:
        raise InputError(
            f"{_colliding(planned)}: {error}",
            "let backbone.file and heads.file differ, list each precision once, "
            "and let class ids differ in more than case",
        ) from error


def _planned(document: FamilyFile, class_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the member and the path of each file."""
    yield from (("layout", path) for path in (LIST, METADATA))
    yield from (("backbone", path) for _, path in backbone_paths(document))
    for class_id in class_ids:
        yield from ((member_of(class_id), path) for _, path in head_paths(document, class_id))
    yield from (("fused", path) for _, path in fused_paths(document))
    if document.ood is not None:
        yield from (("ood", path) for path in (OOD, TENSORS))


def _colliding(planned: Sequence[tuple[str, str]]) -> str:
    """Name the members of the first two paths that collide."""
    for one, other in combinations(planned, 2):
        try:
            check_distinct((one[1], other[1]))
        except ValueError:
            return " and ".join(dict.fromkeys((one[0], other[0])))
    raise AssertionError("all paths are distinct")
