"""The checkpoints of a family and its held-out rows, loaded and checked against each other."""

from collections.abc import Mapping
from dataclasses import dataclass

from onnxreg.converters.families import factory_backbone
from onnxreg.converters.families.backbone import LoadedBackbone, load_backbone
from onnxreg.converters.families.family_plan import FamilyPlan
from onnxreg.converters.families.find_checkpoints import checkpoint_of, read_heads
from onnxreg.converters.families.fitting_evidence import HeldOut
from onnxreg.converters.families.head_checkpoints import HeadCheckpoint
from onnxreg.converters.families.member_paths import check_paths
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.preprocessing import Preprocessing


@dataclass(frozen=True)
class LoadedFamily:
    """The backbone, the heads by class id in its order, and the held-out rows, if the document names some."""

    document: FamilyFile
    backbone: LoadedBackbone
    heads: Mapping[str, HeadCheckpoint]
    held_out: HeldOut | None
    preprocessing: Preprocessing | None


def load_family(plan: FamilyPlan) -> LoadedFamily:
    """Load everything, before any graph is made.

    Raises InputError or NotFoundError, naming the member, for a checkpoint or rows that cannot be used.
    """
    document, directory = plan.document, plan.directory
    held_out = None if document.evaluation is None else HeldOut.read(directory / document.evaluation)
    backbone = _load_backbone(plan)
    heads = read_heads(document.heads, directory, backbone.classes, backbone.width)
    check_paths(document, heads)
    if held_out is not None:
        held_out.check_heads([head.name for head in heads.values()])
    values = document.preprocessing
    preprocessing = None if values is None else Preprocessing.of_input(values, backbone.shape)
    return LoadedFamily(document, backbone, heads, held_out, preprocessing)


def _load_backbone(plan: FamilyPlan) -> LoadedBackbone:
    spec = plan.document.backbone
    if plan.factory is not None:
        return factory_backbone.load(spec, plan.directory, plan.factory, plan.consent)
    return load_backbone(checkpoint_of(spec, plan.directory), spec.classes)
