"""The plan of a family: locate and hash every file that the document names, without loading any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import RecipeDocument
from onnxreg.converters.evaluation.evaluate import EvaluationPlan, plan_evaluation
from onnxreg.converters.families.heads import head_files
from onnxreg.converters.passes.samples import digest
from onnxreg.converters.runtime.golden import read_rows
from onnxreg.converters.source.source_files import CONFIG, digest_file, scrub, weight_files
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks import code
from onnxreg.converters.tasks.code import NO_CONSENT, Consent, Factory
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.inputs.family_file import FACTORY_KEYS, FamilyFile

DOCUMENT = "family"
"""The key in a recipe's parameters that holds the family document."""
TASK = "image-classification"
"""The task of the backbone and its heads."""
ROWS = ("fit", "calibrate", "outliers")
"""The keys of the detector's settings that name files of rows."""


@dataclass(frozen=True)
class FamilyPlan:
    """A checked family. `recorded` is the document with all defaults, and with digests in place of paths.

    `checkpoint` is the backbone's. `source` is the digest of all checkpoints. The document's paths begin at `directory`.
    `factory` makes the backbone; it is None for a backbone of transformers. `consent` names the code that may run.
    `certificates` maps each member that is judged on a suite to its evaluation plan.
    """

    document: FamilyFile
    directory: Path
    consent: Consent
    factory: Factory | None
    checkpoint: Path
    recorded: Mapping[str, Any]
    source: Digest
    certificates: Mapping[str, EvaluationPlan] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.document.name

    def warnings(self) -> Sequence[str]:
        return [f"{member}: {text}" for member, plan in self.certificates.items() for text in plan.warnings()]

    def check_unchanged(self) -> None:
        """Raise InputError if a checkpoint or a file of rows has changed since planning."""
        now = plan_family(self.document, self.directory, self.consent)
        if (now.recorded, now.source) != (self.recorded, self.source):
            raise InputError(
                "a checkpoint or a file of rows was changed while it was read",
                "export again once nothing writes to them",
            )


def read_family(document: RecipeDocument, name: str | None = None) -> FamilyFile:
    """Read the family in a document; `name`, if given, replaces its name. Raise InputError for an invalid family."""
    value = document.value if name is None else {**document.value, "name": name}
    return FamilyFile.from_json(value, document.path.name)


def plan_family(document: FamilyFile, directory: Path, consent: Consent = NO_CONSENT) -> FamilyPlan:
    """Hash the checkpoints and rows of a family; no model runs.

    Raises NotFoundError or InputError for files that cannot be read. Raises InputError if a factory's arguments, which are
    published, contain a path of this machine.
    """
    require("torch", "transformers", "safetensors", "onnxruntime")
    spec, function = document.backbone, None
    if spec.factory is not None:
        if paths := scrub(spec.model_dump(mode="json", include={"arguments"}), "")[1]:
            raise InputError(f"backbone: {paths[0]} names a place on this machine, and would be published")
        function = code.find(spec.factory, directory)
    checkpoint = directory / spec.checkpoint
    if not (checkpoint.is_dir() if function is None else checkpoint.is_file()):
        kind = "directory" if function is None else "file"
        raise NotFoundError(f"backbone: there is no checkpoint {kind} {spec.checkpoint}")
    certificates = {
        member: plan_evaluation(request, TASK, directory, ())
        for member, request in sorted(document.certify.items())
    }

    left_out = {"checkpoint", *(FACTORY_KEYS if function is None else ())}
    excluded: Any = {"name": True, "certify": True, "heads": {"folder"}, "backbone": left_out}
    recorded = document.model_dump(mode="json", exclude=excluded)
    if certificates:
        recorded["certify"] = {member: plan.recorded() for member, plan in certificates.items()}
    if recorded["preprocessing"] is None:
        del recorded["preprocessing"]
    if function is not None:
        recorded["backbone"]["factory"] = function.name
    for section, key in [(recorded, "evaluation"), *((recorded["ood"], key) for key in ROWS)]:
        if section and section[key] is not None:
            section[key] = str(digest([read_rows(directory / section[key])]))

    if function is None:
        names = (CONFIG, *weight_files(checkpoint))
        files = {name: digest_file(checkpoint / name) for name in names if (checkpoint / name).is_file()}
    else:
        files = {"checkpoint": digest_file(checkpoint), **function.digests}
    heads = filter(Path.is_file, head_files(document.heads, directory))
    digests = {f"backbone/{name}": file_digest for name, file_digest in files.items()}
    source = directory_digest(digests | {f"heads/{path.name}": digest_file(path) for path in heads})
    plain: dict[str, Any] = canonical.decode(canonical.encode(recorded))
    return FamilyPlan(document, directory, consent, function, checkpoint, plain, source, certificates)
