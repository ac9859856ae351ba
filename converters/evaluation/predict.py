"""Run a model over the items of a suite, on all cores.

Each run uses a single thread, so sums are added in the same order on any machine. An ONNX file gets one item at a time,
as on a device; a PyTorch module gets several texts of equal shape.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxreg.converters.passes import conversion, model_builder, samples
from onnxreg.converters.passes.merge_decoders import PAST
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import CONFIG, GENERATION_CONFIG, read_json
from onnxreg.converters.tasks.generation import EMBED, ENCODER, TOKENS, Generator, Rules, generate
from onnxreg.schema.core.errors import ConversionError, RegError, why
from onnxreg.schema.core.units import count_cores

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.evaluator import Reading

Run = Callable[[Feed], Mapping[str, Any]]
"""A function that runs a model on arrays by name. Several threads may call it at once."""
MASK = "attention_mask"
MAX_ROWS, MAX_VALUES = 16, 200_000
"""The maximum number of rows of a run, and the maximum number of values of its largest input."""


def predict(run: Run, readings: "Sequence[Reading]", shares_runs: bool) -> list[Any]:
    """Return the prediction for each reading. With `shares_runs`, readings of equal shapes share runs.

    Raises ConversionError if the model fails, or has other outputs than the task needs.
    """

    def together(numbers: Sequence[int]) -> list[Any]:
        feeds, predicted = readings[numbers[0]]
        if len(numbers) == 1:
            return [predicted(*map(run, feeds))]
        results = []
        for at, names in enumerate(feeds):
            rows = [readings[number].feeds[at] for number in numbers]
            outputs = run({name: np.concatenate([row[name] for row in rows]) for name in names})
            size = (len(numbers),)
            results.append({name: array for name, array in outputs.items() if array.shape[:1] == size})
        return [
            readings[number].predict(*({name: one[name][row : row + 1] for name in one} for one in results))
            for row, number in enumerate(numbers)
        ]

    batches = list(_batches(readings, getattr(run, "rows", 1) if shares_runs else 1))
    predictions: dict[int, Any] = {}
    with ThreadPoolExecutor(count_cores()) as pool:
        for numbers, own in zip(batches, pool.map(together, batches), strict=True):
            predictions.update(zip(numbers, own, strict=True))
    return [predictions[number] for number in range(len(readings))]


def _batches(readings: "Sequence[Reading]", rows: int) -> Iterator[list[int]]:
    if rows == 1:
        yield from ([number] for number in range(len(readings)))
        return
    numbers_by_shape: dict[tuple[Any, ...], list[int]] = {}
    for number, (feeds, _) in enumerate(readings):
        shape = tuple((name, array.shape) for feed in feeds for name, array in feed.items())
        numbers_by_shape.setdefault(shape, []).append(number)
    for shape, numbers in sorted(numbers_by_shape.items()):
        numbers.sort(
            key=lambda number: [a.tobytes() for feed in readings[number].feeds for a in feed.values()]
        )
        values = max((prod(sizes) for _, sizes in shape), default=1)
        size = max(1, min(rows, MAX_VALUES // max(1, values)))
        yield from (numbers[start : start + size] for start in range(0, len(numbers), size))


@dataclass(frozen=True)
class Runner:
    """A loaded model that accepts up to `rows` rows at once.

    `output_ranks` has the number of axes of each output (0: unknown). `has_past` is True if the graph takes a KV cache.
    `length` is the fixed number of tokens in a row, or None.
    """

    run: Run
    rows: int = 1
    output_ranks: Mapping[str, int] = field(default_factory=dict)
    has_past: bool = False
    length: int | None = None

    def __call__(self, feed: Feed) -> Mapping[str, Any]:
        try:
            return self.run(feed)
        except RegError:
            raise
        except Exception as error:  # PyTorch may raise anything
            raise ConversionError(f"it does not run on an item of the suite: {why(error)}") from error


@contextmanager
def parent_runner(
    start: Any, trust_remote_code: bool = False, per_token: Collection[str] = ()
) -> Iterator["Runner"]:
    """A context with a runner of the source: a `conversion.TorchModel`, a graph, or a decoder's directory."""
    if isinstance(start, Path) and start.is_dir():
        start = model_builder.torch_model(start, trust_remote_code)
    if isinstance(start, conversion.TorchModel):
        axes = {start.axes_of(name).get(0) for name in start.inputs}
        is_dynamic = len(axes) == 1 and all(isinstance(axis, str) for axis in axes)
        with conversion.runner(start) as run:
            yield Runner(run, MAX_ROWS if is_dynamic else 1)
    else:
        yield artifact_runner(start, per_token)


def pad(feed: Feed, length: int, token: int) -> dict[str, Any]:
    """Pad rows to `length`: `input_ids` with `token`, other inputs with 0. Longer rows stay."""
    padded = {}
    for name, array in feed.items():
        width = ((0, 0), (0, max(0, length - array.shape[1])))
        padded[name] = np.pad(array, width, constant_values=token * (name == "input_ids"))
    return padded


def artifact_runner(path: Path, per_token: Collection[str] = (), padding: int = 0) -> "Runner":
    """Return the runner of a model file on the CPU. Raise ConversionError if ONNX Runtime cannot load it.

    A graph of fixed shapes gets padded inputs (tokens: `padding`). Its outputs in `per_token`, and those with more than
    two axes, lose the padding.
    """
    session = load_session(path, prepacking=True)
    takes = {item.name: item for item in session.get_inputs()}
    past = [item.shape[-1] for name, item in takes.items() if name.startswith(PAST)]
    head_size = model_builder.settings_of(path)[1] if any(isinstance(size, str) for size in past) else 0
    length = takes[MASK].shape[1] if MASK in takes and len(takes[MASK].shape) == 2 else None
    fixed = length if isinstance(length, int) else None

    def run(feed: Feed) -> Mapping[str, Any]:
        if past:
            feed = model_builder.step_inputs(feed["input_ids"], takes.values(), head_size)
        if unknown := sorted(takes.keys() - feed.keys()):
            message = f"{path.name} takes inputs that the task does not give: {', '.join(unknown)}"
            raise ConversionError(message)
        if fixed is None:
            return samples.outputs(session, feed, path.name)
        own = feed[MASK].shape[1]
        if own > fixed:
            message = f"{path.name} takes {fixed} tokens, an item of the evaluation suite has {own}"
            hint = "evaluate the other artifacts: evaluation: {artifacts: [...]}, or state max_seq_length"
            raise ConversionError(message, hint)
        outputs = samples.outputs(session, pad(feed, fixed, padding), path.name)
        for name, array in outputs.items():
            if name in per_token or (array.ndim > 2 and array.shape[1] == fixed):
                outputs[name] = array[:, :own]
        return outputs

    ranks = {item.name: len(item.shape) for item in session.get_outputs()}
    return Runner(run, 1, ranks, bool(past), fixed)


def runner_of(graphs: Mapping[str, Path], directory: Path) -> "Runner":
    """Return a runner of a pipeline. `graphs` has its graphs by member; `directory` has the checkpoint's config.

    It returns the tokens that an encoder-decoder generates, without the prompt, or the vectors of other pipelines.
    """
    if EMBED in graphs:
        chat = Generator(graphs, read_json(directory / CONFIG)["image_token_id"])
        return Runner(lambda feed: {"logits": chat.decoding(chat.encode(feed))(feed[TOKENS])})
    if ENCODER not in graphs:
        runners = [artifact_runner(file) for file in graphs.values()]

        def vectors(feed: Feed) -> Mapping[str, Any]:
            outputs: list[tuple[str, Any]] = []
            for one in runners:  # a graph may read what an earlier one gives
                outputs += one({**feed, **dict(outputs)}).items()
            outputs = [item for item in outputs if "logits" not in item[0]]
            return {f"{name} {number}": array for number, (name, array) in enumerate(outputs)}

        return Runner(vectors)
    model = Generator(graphs)
    rules = Rules.read(read_json(directory / CONFIG), directory / GENERATION_CONFIG)

    def run(feed: Feed) -> Mapping[str, Any]:
        return {TOKENS: np.array([generate(model, feed, rules)[0]], dtype=np.int64)}

    return Runner(run)
