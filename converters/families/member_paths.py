"""What the files of a family are called, and that no two are called the same."""

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


def backbone_path(asked: FamilyFile, precision: str) -> str:
    """float16 has the plain name, as servers expect it."""
    return f"{asked.backbone.file}{'' if precision == 'float16' else SUFFIXES[precision]}.onnx"


def head_path(asked: FamilyFile, class_id: str, precision: str) -> str:
    return f"{asked.heads.file}/{plain(class_id)}{SUFFIXES[precision]}.onnx"


def fused_path(asked: FamilyFile, precision: str) -> str:
    return f"{asked.heads.file}{SUFFIXES[precision]}.onnx"


def check_paths(asked: FamilyFile, class_ids: Iterable[str]) -> None:
    """InputError, naming the members, where two files would have one path on some file system, or one that of a folder.

    Args:
        class_ids: those that have a head.
    """
    planned = [*_planned(asked, class_ids)]
    try:
        check_distinct(path for _, path in planned)
    except ValueError as error:
        raise InputError(
            f"{_colliding(planned)}: {error}",
            "let backbone.file and heads.file differ, each precision stand once, and class ids differ in more than case",
        ) from error


def _planned(asked: FamilyFile, class_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each file that will be made, after its member."""
    yield from (("layout", path) for path in (LIST, METADATA))
    yield from (("backbone", backbone_path(asked, each)) for each in (PLAIN, *asked.variants.backbone))
    for class_id in class_ids:
        for precision in (PLAIN, *asked.variants.head):
            yield member_of(class_id), head_path(asked, class_id, precision)
    yield from (("fused", fused_path(asked, each)) for each in asked.variants.fused)
    if asked.ood is not None:
        yield from (("ood", path) for path in (OOD, TENSORS))


def _colliding(planned: Sequence[tuple[str, str]]) -> str:
    """The members of the first two paths that are not distinct."""
    for one, other in combinations(planned, 2):
        try:
            check_distinct((one[1], other[1]))
        except ValueError:
            return " and ".join(dict.fromkeys((one[0], other[0])))
    raise AssertionError("all paths are distinct")
