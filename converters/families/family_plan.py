"""The plan of a family: everything that its document names is located and hashed; nothing is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.read_recipe import RecipeDocument
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan, plan_evaluation
from onnxreg.converters.families.backbone import code_digests, find_factory
from onnxreg.converters.families.head_checkpoints import checkpoint_of, head_files
from onnxreg.converters.families.rows import read_rows
from onnxreg.converters.passes.tools.samples import digest
from onnxreg.converters.source.source_files import CONFIG, digest_file, weight_files
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.code.consent import NO_CONSENT, Consent
from onnxreg.converters.tasks.code.factory import Factory
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.family_file import FACTORY_KEYS, BackboneSpec, FamilyFile

DOCUMENT = "family"
"""The key of a recipe's parameters under which the document is recorded."""


TASK = "image-classification"
"""The task of the backbone and its heads."""
MemberPlans = Mapping[str, EvaluationPlan]
"""The plan of the evaluation of each member that is judged, by its name."""


@dataclass(frozen=True)
class FamilyPlan:
    """A checked family. `recorded` is its document with all defaults, and digests in place of paths.

    `source` is the digest of all checkpoints, `directory` the base of the document's paths, `factory` makes
    the backbone if transformers does not, and `consent` names the code that may run. `certificates` are the
    plans of members that are judged on suites of their own.
    """

    document: FamilyFile
    directory: Path
    consent: Consent
    factory: Factory | None
    recorded: Mapping[str, Any]
    source: Digest
    certificates: MemberPlans = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.document.name

    def warnings(self) -> Sequence[str]:
        return [
            f"{member}: {warning}"
            for member, plan in self.certificates.items()
            for warning in plan.warnings()
        ]

    def check_unchanged(self) -> None:
        """Raise InputError if a checkpoint or a file of rows has changed."""
        now = plan_family(self.document, self.directory, self.consent)
        if (now.recorded, now.source) != (self.recorded, self.source):
            raise InputError(
                "a checkpoint or a file of rows was changed while it was read",
                "export again once nothing writes to them",
            )


def plan_family(document: FamilyFile, directory: Path, consent: Consent = NO_CONSENT) -> FamilyPlan:
    """Hash the checkpoints and rows of a family.

    Raises NotFoundError or InputError for those that cannot be read.
    """
    require("torch", "transformers", "safetensors", "onnxruntime")
    factory = find_factory(document.backbone, directory)
    certificates = {
        member: plan_evaluation(request, TASK, directory, ())
        for member, request in sorted(document.certify.items())
    }
    recorded = _recorded(document, directory, factory, certificates)
    source = _source_digest(document, directory, factory)
    return FamilyPlan(document, directory, consent, factory, recorded, source, certificates)


def read_family(document: RecipeDocument, name: str | None = None) -> FamilyFile:
    """Read the family in a document, under another name if one is given. InputError if it is not valid."""
    value = document.value if name is None else {**document.value, "name": name}
    with document.prefix_line():
        return FamilyFile.from_json(value, document.path.name)


def _source_digest(document: FamilyFile, directory: Path, factory: Factory | None) -> Digest:
    """Hash every file of the backbone's checkpoint and code, and of the folder of heads."""
    backbone = _backbone_digests(document.backbone, directory, factory)
    heads = (path for path in head_files(document.heads, directory) if path.is_file())
    return directory_digest(
        {f"backbone/{name}": file_digest for name, file_digest in backbone.items()}
        | {f"heads/{path.stem}": digest_file(path) for path in heads}
    )


def _backbone_digests(spec: BackboneSpec, directory: Path, factory: Factory | None) -> dict[str, Digest]:
    checkpoint = checkpoint_of(spec, directory)
    if factory is not None:
        return {"checkpoint": digest_file(checkpoint), **code_digests(factory)}
    names = (CONFIG, *weight_files(checkpoint))
    return {name: digest_file(checkpoint / name) for name in names if (checkpoint / name).is_file()}


def _recorded(
    document: FamilyFile, directory: Path, factory: Factory | None, certificates: MemberPlans
) -> dict[str, Any]:
    """Return everything that shapes the family but source and name; rows and suites by their digests."""
    value = document.model_dump(mode="json", exclude={"name", "certify"})
    if certificates:
        value["certify"] = {member: plan.recorded() for member, plan in certificates.items()}
    if value["preprocessing"] is None:
        del value["preprocessing"]
    del value["backbone"]["checkpoint"], value["heads"]["folder"]
    if factory is not None:
        value["backbone"]["factory"] = factory.name
    else:
        for key in FACTORY_KEYS:
            del value["backbone"][key]
    rows = [(value, "evaluation")]
    rows += [(value["ood"], key) for key in ("fit", "calibrate", "outliers") if value["ood"]]
    for section, key in rows:
        if section[key] is not None:
            section[key] = str(digest([read_rows(directory / section[key])]))
    recorded: dict[str, Any] = canonical.decode(canonical.encode(value))
    return recorded
