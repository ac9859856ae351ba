"""Measure a step's result: compare its outputs, without padding, with the parent's and the source's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import StepNode
from onnxreg.converters.onnx.facts import GraphFacts, inspect_file
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.passes import conversion, models, samples
from onnxreg.converters.passes.merge_decoders import PRESENT
from onnxreg.converters.passes.model_builder import sample_steps
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import GENAI_CONFIG, digest_file
from onnxreg.converters.tasks.task import Part
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import LEAST, RecipeCheck
from onnxreg.schema.manifest.manifest import Step

Outputs = Sequence[Mapping[str, Any]]  # the outputs of several runs: the arrays of each run, by name
MEASURED = ("max_abs_diff", "min_cosine", "argmax_agreement")


@dataclass(frozen=True)
class Runs:
    """The inputs of a graph's runs (`feeds`), and its outputs without the values for padding tokens.

    `takes_sample` is True if the inputs are the source's sample. `golden` has the outputs for golden inputs, by case.
    """

    feeds: Sequence[Feed]
    takes_sample: bool
    outputs: Outputs
    golden: Mapping[str, Mapping[str, Any]]


@dataclass
class StepResult:
    """The record of a step, and its files in `directory`, the main graph first. A skipped step has no files.

    `ancestors` are the results of earlier steps, the parent first. `second` is the second input of a pass that takes
    two graphs. `distances` compare the outputs with the source's.
    """

    node: StepNode
    directory: Path
    step: Step
    files: tuple[str, ...]
    ancestors: "tuple[StepResult, ...]"
    source: Part
    second: "StepResult | None" = None
    distances: Mapping[str, samples.Distance] | None = None

    @property
    def main(self) -> Path:
        return self.directory / self.files[0]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        return {name: str(digest_file(self.directory / name)) for name in self.files}

    @cached_property
    def facts(self) -> GraphFacts:
        """The facts of the graph. Raises ConversionError if ONNX's checker refuses the file."""
        if self.main.suffix == ".ort" or self.node.kind.takes == "checkpoint":
            return inspect_file(self.main)  # only ONNX Runtime has the operators of a checkpoint's graph
        model = load_onnx(self.main)
        try:
            check_model(model, self.main)
        except InputError as error:
            raise ConversionError(error.message) from error
        return inspect_file(self.main, model)

    @cached_property
    def runs(self) -> Runs:
        """The graph's inputs and outputs. The inputs are random if the graph does not accept the source's sample."""
        part, session = self.source, load_session(self.main)
        takes_sample = bool(part.feeds) and _can_run(session, part.feeds)
        feeds: Sequence[Feed] = part.feeds
        if not part.feeds:
            origin = self.ancestors[-1] if self.ancestors else self
            is_decoder = origin is not self and GENAI_CONFIG in origin.files
            feeds = sample_steps(origin.main, session.get_inputs()) if is_decoder else ()
        elif not takes_sample:  # inputs that also fit the first graph, from which it was made
            graphs = [item.main for item in (self, *self.ancestors) if item.main.suffix == ".onnx"]
            feeds = samples.draw(models.load(graphs[0]), samples.index_bounds(models.load(graphs[-1])))
        golden = part.golden if takes_sample else {}
        arrays = samples.all_outputs(session, [*feeds, *golden.values()], self.main.name)
        outputs, others = arrays[: len(feeds)], arrays[len(feeds) :]
        counted = drop_padding(outputs, part) if takes_sample else outputs
        return Runs(feeds, takes_sample, counted, dict(zip(golden, others, strict=True)))

    @cached_property
    def dataset(self) -> str:
        return self.source.dataset if self.runs.takes_sample else str(samples.digest(self.runs.feeds))

    @property
    def _parent_runs(self) -> Runs:
        """The parent's `runs`. The last two parents' runs are kept for other steps with the same parent."""
        shared, line = self.source.shared, str([dict(item.digests) for item in self.ancestors])
        runs: Runs = shared.pop(line, None) or self.ancestors[0].runs
        shared[line] = runs
        if len(shared) > 2:  # a search's first graph, and the result of a candidate's first pass
            del shared[next(iter(shared))]
        return runs

    @cached_property
    def expected(self) -> Outputs:
        """The outputs with which `runs` are compared: the source's or, for random inputs, the oldest ancestor's."""
        if self.runs.takes_sample:
            return drop_padding(self.source.expected, self.source)
        if not self.runs.feeds:  # a decoder: its pass has compared it
            return ()
        start = self.ancestors[-1].main if self.ancestors else self.source.start
        if isinstance(start, conversion.TorchModel):
            return conversion.run(start, self.runs.feeds)
        return samples.all_outputs(start, self.runs.feeds, start.name)

    def compare(self, is_bounded: bool) -> None:
        """Compare the outputs with the parent's, and record the distance in the step (`parity`).

        Raises ConversionError if the graph does not run, gives NaN, or differs too much from its parent.
        """
        recorded = self.step.to_json()
        if not self.files or "parity" in recorded.get("result", {}) or not self.runs.feeds:
            return
        parent, feeds = self.ancestors[0] if self.ancestors else None, self.runs.feeds
        if parent is None:
            parents = self.expected
        elif self.second is not None and self.runs.takes_sample:  # runs of parent, then of `second`
            both = [*parent.runs.outputs, *self.second.runs.outputs]
            parents = [{**own, **graph} for own, graph in zip(self.expected, both, strict=True)]
        elif self.runs.takes_sample and self._parent_runs.takes_sample:
            parents = self._parent_runs.outputs
        else:
            parents = samples.all_outputs(parent.main, feeds, parent.main.name)
        kind = self.node.kind
        tolerance = kind.tolerance and samples.tolerance_of(kind, models.load(self.main))
        outputs = samples.compare(parents, self.runs.outputs, kind.id, tolerance, is_bounded)
        self.distances = outputs if parent is None and is_bounded else None
        parity = samples.parity(feeds, outputs, self.dataset)
        self.step = Step.from_json({**recorded, "result": {**recorded.get("result", {}), "parity": parity}})


def _can_run(session: Any, feeds: Sequence[Feed]) -> bool:
    axes = {item.name: item.shape for item in session.get_inputs()}
    if any(feed.keys() != axes.keys() for feed in feeds):
        return False
    pairs = [(array.shape, axes[name]) for feed in feeds for name, array in feed.items()]
    return all(
        len(shape) == len(taken)
        and all(size == axis or not isinstance(axis, int) for size, axis in zip(shape, taken, strict=True))
        for shape, taken in pairs
    )


def drop_padding(outputs: Outputs, part: Part) -> Outputs:
    """Remove the values for padding tokens from outputs that have a value for each token."""
    counted = []
    for arrays, feed in zip(outputs, part.feeds, strict=True):
        mask: Any = feed.get("attention_mask")
        names = part.per_token if mask is not None else ()
        masked = [name for name in names if name in arrays and arrays[name].shape[:2] == mask.shape]
        counted.append({**arrays, **{name: arrays[name][mask.astype(bool)] for name in masked}})
    return counted


def limits_of(checks: Sequence[RecipeCheck], path: str) -> dict[str, RecipeCheck]:
    """Return the check of each metric for the output at `path`. A check for `path` replaces a check for `*`."""
    defaults: dict[str, RecipeCheck] = {check.metric: check for check in checks if check.output == "*"}
    return defaults | {check.metric: check for check in checks if check.output == path}


def is_bounded(limits: Mapping[str, RecipeCheck]) -> bool:
    """Return True if outputs must resemble the parent's. A recipe can switch this off by a low `min_cosine`."""
    limit = limits.get("min_cosine")
    return limit is None or limit.min is None or limit.min >= samples.MIN_COSINE


def checks(
    result: StepResult, limits: Mapping[str, RecipeCheck], path: str, size: int
) -> list[dict[str, Any]]:
    """Make `manifest.Check` entries (in JSON form) for each float output, and for the size if it has a limit.

    A limit on `max_abs_diff` also holds for outputs of integers and truth values, but makes no entries for them.

    Raises ConversionError about the file `path` if a limit is not met, InputError for a limit on an unmeasured metric.
    """
    feeds, expected, outputs = result.runs.feeds, result.expected, result.runs.outputs
    first = expected[0] if feeds else {}
    numeric = [name for name in first if first[name].dtype.kind in "fbiu" and not name.startswith(PRESENT)]
    names = [name for name in numeric if first[name].dtype.kind == "f"]
    measured = {"bytes", *(MEASURED if names else MEASURED[:1] if numeric else ())}
    if unmeasured := sorted(limits.keys() - measured):
        message = f"{path}: {unmeasured[0]} is not measured here, so no limit on it can be checked"
        raise InputError(message, f"limits may be on {', '.join(sorted(measured))}")
    distances, compared = result.distances or {}, numeric if "max_abs_diff" in limits else names
    if compared and result.distances is None:
        expected, outputs = (
            [{name: one[name] for name in compared} for one in runs] for runs in (expected, outputs)
        )
        distances = samples.compare(expected, outputs, path, is_bounded=is_bounded(limits))
    entries, dataset = [], result.dataset
    for name in compared:
        distance, scale = distances[name], max(1.0, distances[name].largest)
        label = "parity" if len(names) == 1 else f"parity of {name}"
        subject = {"name": label, "samples": distance.positions, "dataset": dataset}
        for metric in MEASURED if name in names else MEASURED[:1]:
            entry = judge(subject, metric, getattr(distance, metric), limits.get(metric), path, scale)
            entries += [entry] if name in names else []
    if "bytes" in limits:
        entries.append(judge({"name": "size"}, "bytes", size, limits["bytes"], path))
    return entries


def judge(
    subject: Mapping[str, Any],
    metric: str,
    value: float,
    bound: RecipeCheck | None,
    path: str,
    scale: float = 1.0,
) -> dict[str, Any]:
    limit = None
    if bound is not None:
        limit = bound.max if bound.min is None else bound.min
        limit = bound.share * scale if limit is None and bound.share is not None else limit or 0.0
    check = make_check(subject, metric, value, limit, is_least=metric in LEAST)
    if check["verdict"] == "fail":
        least = "the least is" if metric in LEAST else "the limit is"
        raise ConversionError(
            f"{path} does not meet its recipe: {metric} is {check['value']:.12g}, {least} {check['limit']:.12g}",
            "nothing was published; look at the steps that made it, or state another limit",
        )
    return check


def make_check(
    subject: Mapping[str, Any], metric: str, value: float, limit: float | None = None, is_least: bool = False
) -> dict[str, Any]:
    """Make a `manifest.Check` in JSON form. Without a limit, its verdict is `info`.

    With `is_least`, the limit is the lowest allowed value. Figures other than bytes get six significant digits.
    """

    def rounded(figure: float) -> float:
        return float(figure if metric == "bytes" else f"{figure:.6g}")

    check = {**subject, "metric": metric, "value": rounded(value)}
    if limit is None:
        return {**check, "verdict": "info"}
    holds = value >= limit if is_least else value <= limit
    return {**check, "limit": rounded(limit), "verdict": "pass" if holds else "fail"}
