"""A manifest as plain objects, for verbs that print it: the rules of the document, without the cost of pydantic."""

from functools import cache
from typing import TYPE_CHECKING, cast

from onnxreg.schema.core import canonical
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.core.schema_reader import SchemaReader
from onnxreg.schema.manifest import family_rules, rules

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest

SUFFIX = "Rules"


def plain_manifest(data: bytes) -> "Manifest":
    """The fields and the derived properties of a manifest; it cannot be written, and has no `all_files`.

    Raise InputError or ValueError if it is malformed; `Manifest.decode` says at which path.
    """
    manifest = _reader().read(canonical.decode(data))
    check_name(manifest.name)
    return cast("Manifest", manifest)


@cache
def _reader() -> SchemaReader:
    classes = vars(family_rules) | vars(rules)
    return SchemaReader(
        "manifest-v2",
        {name.removesuffix(SUFFIX): item for name, item in classes.items() if name.endswith(SUFFIX)},
    )
