"""One graph of a family in one precision: derived, compared with its parent, and written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.engine.describe import format_of, graph_fields
from onnxreg.converters.engine.measure import Outputs, agreement
from onnxreg.converters.engine.output_checks import make_check
from onnxreg.converters.families.head_graph import OUTPUT
from onnxreg.converters.onnx.facts import inspect_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.tools import graph, model_file, proof
from onnxreg.converters.passes.tools.samples import Feed, digest
from onnxreg.schema.core.errors import ConversionError, RegError
from onnxreg.schema.inputs.family_file import FamilyLimits
from onnxreg.schema.manifest.draft import DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import Role
from onnxreg.schema.manifest.recorded_recipe import Step

PLAIN = "float32"
Reduced = Literal["float16", "int8"]
Check = dict[str, Any]
"""A `manifest.Check` in its JSON form."""


@dataclass(frozen=True)
class MemberFile:
    """A graph of a member in one precision, at `path` in the workspace, derived from the one at `parent`.

    `outputs` are those for the feeds that it was compared on; `step` is the record of the pass that made it.
    """

    member: str
    role: Role
    precision: str
    path: str
    outputs: Outputs
    checks: tuple[Check, ...]
    parent: str | None = None
    step: Step | None = None
    sidecars: tuple[DraftFile, ...] = ()

    def with_checks(self, checks: Sequence[Check]) -> "MemberFile":
        """Return the same file with more checks."""
        return replace(self, checks=(*self.checks, *checks))


def derive(
    parent: MemberFile,
    source: Any,
    paths: Mapping[Reduced, str],
    feeds: Sequence[Feed],
    limits: FamilyLimits,
    workspace: Path,
) -> Iterator[MemberFile]:
    """Derive the precisions of a member from its float32 graph `source` (`onnx.ModelProto`), left as it is.

    Raises ConversionError, naming the member, if the pass fails, or its graph does not load, gives NaN or
    differs from its parent.

    Args:
        paths: the path in the workspace of each precision.
        feeds: inputs to compare on; they show which values float16 cannot hold.
    """
    for precision, path in paths.items():
        label = f"{parent.member} in {precision}"
        work = OnnxFloatToFloat16(feeds) if precision == "float16" else OnnxDynamicQuantization()
        limit = getattr(limits.parity, precision)
        try:
            derived, step = base.run(precision, work, graph.copy(source), PLAIN)
            outputs = proof.all_outputs(derived, feeds, label)
            checks = compare(parent.outputs, outputs, feeds, label, limit, relative=True)
        except RegError as error:
            is_named = error.message.startswith(parent.member)
            message = error.message if is_named else f"{parent.member}: {error.message}"
            raise type(error)(message, error.advice) from error
        checks += write(derived, workspace / path, limits, parent.role, precision)
        yield replace(
            parent,
            precision=precision,
            path=path,
            outputs=outputs,
            checks=tuple(checks),
            parent=parent.path,
            step=step,
        )


def compare(
    expected: Outputs,
    outputs: Outputs,
    feeds: Sequence[Feed],
    label: str,
    limit: float | None,
    relative: bool = False,
) -> list[Check]:
    """Make the checks `parity of <output>`: `max_abs_diff` with its limit, and `argmax_agreement` of logits.

    Raises ConversionError as `proof.compare` does.

    Args:
        relative: the limit is in parts of the output's largest value (at least 1).
    """
    proof.compare(expected, outputs, label)
    checks = []
    for name, array in expected[0].items():
        if array.dtype.kind != "f":
            continue
        parity = agreement(expected, outputs, name)
        about = {"name": f"parity of {name}", "samples": parity.positions, "dataset": str(digest(feeds))}
        most = None if limit is None else limit * (parity.scale if relative else 1.0)
        checks.append(make_check(about, "max_abs_diff", parity.max_abs_diff, most))
        if name.endswith("logits"):
            checks.append(make_check(about, "argmax_agreement", parity.argmax_agreement))
    return checks


def compare_fused(expected: Outputs, outputs: Outputs, feed: Feed, limit: float | None) -> list[Check]:
    """Make the checks of logits by head.

    `max_relative_diff` is that of the worst head, in parts of its own largest logit (at least 1): a head of
    large logits hides nothing of the others.
    """
    proof.compare(expected, outputs, "fused")
    parity = agreement(expected, outputs, OUTPUT)
    heads = (agreement([one], [other], OUTPUT) for one, other in zip(expected, outputs, strict=True))
    worst = max(head.max_abs_diff / head.scale for head in heads)
    about = {"name": f"parity of {OUTPUT}", "samples": parity.positions, "dataset": str(digest([feed]))}
    return [
        make_check(about, "max_relative_diff", worst, limit),
        make_check(about, "argmax_agreement", parity.argmax_agreement),
    ]


def write(model: Any, path: Path, limits: FamilyLimits, role: str, precision: str) -> list[Check]:
    """Write a graph that ran, as one file; return the checks `load` and `size`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(model_file.save(model, path)) != 1:
        raise ConversionError(f"{path.name} does not fit into one file: a family holds graphs below 2 GB")
    most = getattr(getattr(limits.size, role), precision, None)
    loads = {"name": "load", "metric": "loads", "value": 1.0, "verdict": "pass"}
    return [loads, make_check({"name": "size"}, "bytes", path.stat().st_size, most)]


def artifact(file: MemberFile, workspace: Path) -> DraftArtifact:
    """Describe a written graph by the facts that are read back from it."""
    fields = {**graph_fields(inspect_onnx(workspace / file.path), file.step), "checks": list(file.checks)}
    format_name = format_of(file.path, file.precision)
    return DraftArtifact(format_name, file.precision, file.path, file.sidecars, file.parent, fields=fields)
