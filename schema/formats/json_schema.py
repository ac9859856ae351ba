"""JSON Schemas (draft 2020-12) of the documents of onnxreg, generated from the classes.

A rule about several fields is not in the schemas. Only the classes check, for example, that paths do not collide.
"""

import json

import msgspec

from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview
from onnxreg.schema.core.canonical import Record
from onnxreg.schema.core.document import Document
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.gates.statements import BenchmarkDocument, EvaluationDocument, FaithfulnessReport
from onnxreg.schema.inputs.dossier_profile import DossierProfile, OwnerFacts
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.inputs.recipe_file import JobRow, RecipeFile
from onnxreg.schema.manifest.manifest import Manifest, Recipe
from onnxreg.schema.manifest.manifest_v1 import ManifestV1

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# name, as in `reg builtin schemas NAME` -> class
MODELS: dict[str, type[Document] | type[Record]] = {
    "manifest-v1": ManifestV1,
    "manifest-v2": Manifest,
    "recipe": Recipe,
    "recipe-file": RecipeFile,
    "family-file": FamilyFile,
    "job": JobRow,
    "diff": ManifestDiff,
    "diff-overview": DiffOverview,
    "evaluation": EvaluationDocument,
    "benchmark": BenchmarkDocument,
    "faithfulness": FaithfulnessReport,
    "dossier-profile": DossierProfile,
    "owner-facts": OwnerFacts,
}


def text(name: str) -> str:
    """Return the JSON Schema of a document. Raise InputError for an unknown name."""
    if name not in MODELS:
        raise InputError(f"no document is called {name[:80]!r}", suggest(name, MODELS))
    kind = MODELS[name]
    body = msgspec.json.schema(kind) if issubclass(kind, Record) else kind.model_json_schema()
    value = {"$schema": DIALECT, "$id": f"urn:onnxreg:{name}", **body}
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
