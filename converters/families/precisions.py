"""One graph of a family in one precision: derived, held against what it was derived from, and written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.describe import format_of, graph_fields
from onnxreg.converters.engine.measure import agreement
from onnxreg.converters.engine.output_checks import make_check
from onnxreg.converters.families.head_graph import OUTPUT
from onnxreg.converters.onnx.facts import inspect_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.graph_pass import GraphPass
from onnxreg.converters.passes.tools import graph, model_file, proof
from onnxreg.converters.passes.tools.samples import Feed, digest
from onnxreg.schema.core.errors import ConversionError, RegError
from onnxreg.schema.inputs.family_file import FamilyLimits
from onnxreg.schema.manifest.draft import DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import Role
from onnxreg.schema.manifest.recorded_recipe import Step

PLAIN = "float32"
Outputs = Sequence[Mapping[str, Any]]
Check = dict[str, Any]
"""A `manifest.Check` in its JSON form."""


@dataclass(frozen=True)
class MemberFile:
    """A graph of a member in one precision, at `path` in the workspace. `parent` is the path of what it was derived from.

    `outputs` are what it gives for the feeds that it was measured on.
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


def work_of(precision: str, feeds: Sequence[Feed] | None = None) -> GraphPass:
    """The pass that makes a precision out of float32; `feeds` show which values float16 cannot hold."""
    return OnnxFloatToFloat16(feeds) if precision == "float16" else OnnxDynamicQuantization()


def derive(
    parent: MemberFile,
    source: Any,
    precision: str,
    path: str,
    feeds: Sequence[Feed],
    limits: FamilyLimits,
    workspace: Path,
) -> MemberFile:
    """Derive a precision of a member from its float32 graph `source` (`onnx.ModelProto`), which is left as it is.

    ConversionError, naming the member, where the pass fails, or what it made does not load, gives NaN or is not its parent's.
    """
    what = f"{parent.member} in {precision}"
    try:
        after, step = base.run(precision, work_of(precision, feeds), graph.copy(source), PLAIN)
        got = proof.all_outputs(after, feeds, what)
        checks = compare(parent.outputs, got, feeds, what, getattr(limits.parity, precision), relative=True)
    except RegError as error:
        raise type(error)(_named(error.message, parent.member), error.advice) from error
    checks += write(after, workspace / path, limits, parent.role, precision)
    return MemberFile(parent.member, parent.role, precision, path, got, tuple(checks), parent.path, step)


def _named(message: str, member: str) -> str:
    return message if message.startswith(member) else f"{member}: {message}"


def compare(
    expected: Outputs, got: Outputs, feeds: Sequence[Feed], what: str, limit: float | None, *, relative: bool
) -> list[Check]:
    """The checks `parity of <output>`: `max_abs_diff` with its limit, and `argmax_agreement` of those with columns.

    Args:
        relative: the limit is in parts of the output's largest value, at least 1.

    Raises ConversionError as `proof.compare`.
    """
    proof.compare(expected, got, what)
    checks = []
    for name, array in expected[0].items():
        if array.dtype.kind != "f":
            continue
        found = agreement(expected, got, name)
        about = {"name": f"parity of {name}", "samples": found.positions, "dataset": str(digest(feeds))}
        most = None if limit is None else limit * (found.scale if relative else 1.0)
        checks.append(make_check(about, "max_abs_diff", found.max_abs_diff, most))
        if name.endswith("logits"):
            checks.append(make_check(about, "argmax_agreement", found.argmax_agreement))
    return checks


def compare_fused(expected: Outputs, got: Outputs, feed: Feed, limit: float | None) -> list[Check]:
    """As `compare`, of logits that stand by head: `max_relative_diff` is that of the worst head, in parts of its own largest
    logit (at least 1), so that a head of large logits hides nothing of the others."""
    proof.compare(expected, got, "fused")
    found = agreement(expected, got, OUTPUT)
    each = [agreement([one], [other], OUTPUT) for one, other in zip(expected, got, strict=True)]
    worst = max(head.max_abs_diff / head.scale for head in each)
    about = {"name": f"parity of {OUTPUT}", "samples": found.positions, "dataset": str(digest([feed]))}
    return [
        make_check(about, "max_relative_diff", worst, limit),
        make_check(about, "argmax_agreement", found.argmax_agreement),
    ]


def write(made: Any, path: Path, limits: FamilyLimits, role: str, precision: str) -> list[Check]:
    """Write a graph that ran, as one file; the checks `load` and `size`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(model_file.save(made, path)) != 1:
        raise ConversionError(f"{path.name} does not fit into one file: a family holds graphs below 2 GB")
    most = getattr(getattr(limits.size, role), precision, None)
    loads = {"name": "load", "metric": "loads", "value": 1.0, "verdict": "pass"}
    return [loads, make_check({"name": "size"}, "bytes", path.stat().st_size, most)]


def artifact(made: MemberFile, workspace: Path) -> DraftArtifact:
    """What a written graph is, its facts read back from the file."""
    facts = inspect_onnx(workspace / made.path)
    fields = {**graph_fields(facts, made.step), "checks": list(made.checks)}
    return DraftArtifact(
        format_of(made.path, made.precision),
        made.precision,
        made.path,
        made.sidecars,
        made.parent,
        fields=fields,
    )
