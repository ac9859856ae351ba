"""A family's document: as people write it, and as the manifest keeps it, with digests in place of paths."""

from pathlib import Path
from typing import Any

from onnxreg.converters.families.rows import read_rows
from onnxreg.converters.passes.samples import digest
from onnxreg.converters.recipes.cache import digest_of
from onnxreg.converters.recipes.reading import read_document
from onnxreg.converters.sourcefiles import CONFIG, weight_files
from onnxreg.schema.digest import Digest, directory_digest
from onnxreg.schema.family_file import FamilyFile

DOCUMENT = "family"
"""The key of a recipe's parameters under which the document is recorded."""


def read(path: Path, name: str | None = None) -> FamilyFile | None:
    """The family that a file describes, under another name where one is given; None where it is a recipe of passes.

    Raises NotFoundError where there is no such file, InputError where it is no such document.
    """
    value = read_document(path)
    if not isinstance(value, dict) or "family" not in value:
        return None
    return FamilyFile.from_json(value if name is None else {**value, "name": name}, path.name)


def source_digest(asked: FamilyFile, directory: Path) -> Digest:
    """Over every file of the backbone's checkpoint and of the folder of heads that takes part."""
    checkpoint, folder = directory / asked.backbone.checkpoint, directory / asked.heads.folder
    files = {f"backbone/{name}": checkpoint / name for name in (CONFIG, *weight_files(checkpoint))}
    heads = (path for path in folder.iterdir() if not path.name.startswith("."))
    files |= {f"heads/{path.stem}": path for path in heads}
    return directory_digest({path: digest_of(file) for path, file in files.items()})


def record(asked: FamilyFile, directory: Path) -> dict[str, Any]:
    """Everything that shapes the family but its source and name: every default filled in, rows by the digest of their arrays.

    Raises NotFoundError or InputError for rows that cannot be read.
    """
    value = asked.model_dump(mode="json", exclude={"name"})
    del value["backbone"]["checkpoint"], value["heads"]["folder"]
    places = [(value, "evaluation")]
    places += [(value["ood"], key) for key in ("fit", "calibrate", "outliers") if value["ood"]]
    for place, key in places:
        if place[key] is not None:
            place[key] = str(digest([read_rows(directory / place[key])]))
    return value
