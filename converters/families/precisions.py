"""One graph of a family in one precision: derived, compared with its parent, and written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.engine.describe import format_of, graph_fields
from onnxreg.converters.engine.measure import Outputs, agreement, make_check
from onnxreg.converters.families.head_graphs import OUTPUT
from onnxreg.converters.onnx.facts import inspect_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import GraphPass
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.tools import graph, model_file, samples
from onnxreg.converters.passes.tools.samples import Feed, digest
from onnxreg.schema.core.errors import ConversionError, RegError
from onnxreg.schema.inputs.family_file import FamilyLimits
from onnxreg.schema.manifest.draft import DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import Role
from onnxreg.schema.manifest.parts import Step

Precision = Literal["float32", "float16", "int8"]
PLAIN: Literal["float32"] = "float32"
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


@dataclass(frozen=True)
class MemberGraph:
    """The float32 graph of a member (`onnx.ModelProto`), and the outputs of its origin for `feeds`.

    `feeds` also show which values float16 cannot hold. `step` is the record of the pass that made the graph.
    """

    name: str
    role: Role
    graph: Any
    feeds: Sequence[Feed]
    expected: Outputs
    step: Step | None = None


def write_precisions(
    member: MemberGraph, paths: Sequence[tuple[Precision, str]], limits: FamilyLimits, workspace: Path
) -> list[MemberFile]:
    """Write a member in float32, compared with its origin, then in its other precisions, compared with float32.

    Raises ConversionError, naming the member, if a pass fails, or a graph does not load, gives NaN or differs.

    Args:
        paths: the path of each precision in the workspace, that of float32 first.
    """
    files: list[MemberFile] = []
    for precision, path in paths:
        with _prefix_member(member.name):
            if not files:
                label, model, step, expected = member.name, member.graph, member.step, member.expected
            else:
                label, expected = f"{member.name} in {precision}", files[0].outputs
                model, step = base.run(
                    precision, _pass(precision, member.feeds), graph.copy(member.graph), PLAIN
                )
            outputs = samples.all_outputs(model, member.feeds, label)
            limit = getattr(limits.parity, precision)
            checks = compare(expected, outputs, member.feeds, label, limit, relative=bool(files))
            checks += write(model, workspace / path, limits, member.role, precision)
        parent = files[0].path if files else None
        files.append(
            MemberFile(member.name, member.role, precision, path, outputs, tuple(checks), parent, step)
        )
    return files


def _pass(precision: Precision, feeds: Sequence[Feed]) -> GraphPass:
    return OnnxFloatToFloat16(feeds) if precision == "float16" else OnnxDynamicQuantization()


@contextmanager
def _prefix_member(member: str) -> Iterator[None]:
    """Name the member in errors that do not begin with its name."""
    try:
        yield
    except RegError as error:
        if error.message.startswith(member):
            raise
        raise type(error)(f"{member}: {error.message}", error.hint) from error


def compare(
    expected: Outputs,
    outputs: Outputs,
    feeds: Sequence[Feed],
    label: str,
    limit: float | None,
    relative: bool = False,
) -> list[Check]:
    """Make the checks `parity of <output>`: `max_abs_diff` with its limit, `argmax_agreement` of logits.

    An output of booleans has the check `agreement` alone.

    Raises ConversionError as `samples.compare` does.

    Args:
        relative: the limit is in parts of the output's largest value (at least 1).
    """
    samples.compare(expected, outputs, label)
    checks = []
    for name, array in expected[0].items():
        parity = agreement(expected, outputs, name)
        about = {"name": f"parity of {name}", "samples": parity.positions, "dataset": str(digest(feeds))}
        if array.dtype.kind == "b":
            checks.append(make_check(about, "agreement", float((outputs[0][name] == array).mean())))
            continue
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
    samples.compare(expected, outputs, "fused")
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
