"""The paths of a family's files, and a check that no two are the same."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from onnxreg.converters.families.find_checkpoints import member_of, plain
from onnxreg.converters.families.precisions import PLAIN
from onnxreg.converters.families.server_files import LIST, METADATA
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_distinct
from onnxreg.schema.inputs.family_file import FamilyFile

SUFFIXES = {PLAIN: "-fp32", "float16": "-fp16", "int8": "-int8"}
OOD, TENSORS = "ood.onnx", "ood.safetensors"


def backbone_path(document: FamilyFile, precision: str) -> str:
    """Name a backbone's file; float16 has the plain name, as servers expect it."""
    return f"{document.backbone.file}{'' if precision == 'float16' else SUFFIXES[precision]}.onnx"


def head_path(document: FamilyFile, class_id: str, precision: str) -> str:
    return f"{document.heads.file}/{plain(class_id)}{SUFFIXES[precision]}.onnx"


def fused_path(document: FamilyFile, precision: str) -> str:
    return f"{document.heads.file}{SUFFIXES[precision]}.onnx"


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
    yield from (
        ("backbone", backbone_path(document, precision)) for precision in (PLAIN, *document.variants.backbone)
    )
    for class_id in class_ids:
        for precision in (PLAIN, *document.variants.head):
            yield member_of(class_id), head_path(document, class_id, precision)
    yield from (("fused", fused_path(document, precision)) for precision in document.variants.fused)
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
