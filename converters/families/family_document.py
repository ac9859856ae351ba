"""A family's document: as people write it, and as the manifest keeps it, with digests in place of paths."""

from pathlib import Path
from typing import Any

from onnxreg.converters.engine.read_recipe import RecipeDocument
from onnxreg.converters.families import factory_backbone
from onnxreg.converters.families.find_checkpoints import checkpoint_of, head_files
from onnxreg.converters.families.rows import read_rows
from onnxreg.converters.passes.tools.samples import digest
from onnxreg.converters.source.file_hash import digest_file
from onnxreg.converters.source.source_files import CONFIG, weight_files
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.inputs.family_file import FACTORY_KEYS, BackboneSpec, FamilyFile

DOCUMENT = "family"
"""The key of a recipe's parameters under which the document is recorded."""


def read(document: RecipeDocument, name: str | None = None) -> FamilyFile | None:
    """Read the family that a document describes, under another name if one is given; None for a recipe of passes.

    Raises InputError if it is not a valid family.
    """
    if not document.is_family:
        return None
    value = document.value if name is None else {**document.value, "name": name}
    with document.located():
        return FamilyFile.from_json(value, document.path.name)


def source_digest(asked: FamilyFile, directory: Path) -> Digest:
    """Over every file of the backbone's checkpoint and code, and of the folder of heads that takes part; NotFoundError without."""
    digests = {
        f"backbone/{name}": digest for name, digest in _backbone_digests(asked.backbone, directory).items()
    }
    digests |= {
        f"heads/{path.stem}": digest_file(path)
        for path in head_files(asked.heads, directory)
        if path.is_file()
    }
    return directory_digest(digests)


def _backbone_digests(asked: BackboneSpec, directory: Path) -> dict[str, Digest]:
    if asked.factory is not None:
        return factory_backbone.digests(asked, directory)
    checkpoint = checkpoint_of(asked, directory)
    names = (CONFIG, *weight_files(checkpoint))
    return {name: digest_file(checkpoint / name) for name in names if (checkpoint / name).is_file()}


def record(asked: FamilyFile, directory: Path) -> dict[str, Any]:
    """Everything that shapes the family but its source and name: every default filled in, rows by the digest of their arrays.

    Raises NotFoundError or InputError for rows that cannot be read.
    """
    value = asked.model_dump(mode="json", exclude={"name"})
    if value["preprocessing"] is None:
        del value["preprocessing"]
    del value["backbone"]["checkpoint"], value["heads"]["folder"]
    if (factory := factory_backbone.find(asked.backbone, directory)) is not None:
        value["backbone"]["factory"] = factory.name
    else:
        value["backbone"] = {key: each for key, each in value["backbone"].items() if key not in FACTORY_KEYS}
    places = [(value, "evaluation")]
    places += [(value["ood"], key) for key in ("fit", "calibrate", "outliers") if value["ood"]]
    for place, key in places:
        if place[key] is not None:
            place[key] = str(digest([read_rows(directory / place[key])]))
    recorded: dict[str, Any] = canonical.decode(canonical.encode(value))
    return recorded
