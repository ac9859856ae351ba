"""The android profile: a trained token classifier to the files that OpenMed's mobile kits load."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from onnxreg.converters.android import graphs
from onnxreg.converters.android.artifacts import Measured, describe
from onnxreg.converters.android.draft import assemble
from onnxreg.converters.android.options import AndroidOptions, check_options
from onnxreg.converters.android.sample import Sample, draw_sample
from onnxreg.converters.evaluation.certify import Evaluation, certify_int8
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.evaluation.suite import load as load_suite
from onnxreg.converters.source import LoadedCheckpoint, load_checkpoint
from onnxreg.converters.sourcefiles import hub_id
from onnxreg.converters.toolchain import require
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import InputError
from onnxreg.schema.manifest import Source
from onnxreg.schema.ref import check_name

__all__ = ["AndroidOptions", "export_android"]


def export_android(
    source: str,
    workspace: Path,
    *,
    name: str | None = None,
    options: AndroidOptions | None = None,
    origin: Source | None = None,
    report: Callable[[str], None] = lambda step: None,
) -> Draft:
    """Export a checkpoint into `workspace` and return the draft of a version.

    Args:
        source: a checkpoint directory, or a hub id with an optional `@revision`.
        workspace: a fresh directory; whatever is written lies in it.
        name: the model's name; the lower-cased hub id where absent.
        origin: where the checkpoint comes from, where it was recorded before: its id and revision.
        report: is told each step as it begins, in a few words.

    Raises InputError, NotFoundError or RemoteError for a source or option that cannot be used, ConversionError
    where a graph breaks the profile's contract or is not what was asked for, HostError for a missing extra.
    """
    options = options or AndroidOptions()
    check_options(options)
    name = _name(source, name)
    require("torch", "transformers", "onnx", "onnxruntime")
    suite = None if options.eval_suite is None else load_suite(options.eval_suite)
    report("loading the checkpoint")
    checkpoint = load_checkpoint(source, name, options.trust_remote_code)
    if origin is not None:
        checkpoint = checkpoint.recorded_as(origin)
    report("converting to ONNX")
    sample = draw_sample(checkpoint, options.max_seq_length)
    fp32, *model = graphs.write_float32(
        checkpoint.model, sample.tensors(), workspace, options.opset, options.rewrite
    )
    if suite is None:
        checkpoint = checkpoint.without_model()
    report("deriving and measuring fp16, INT8 and ORT format")
    measured = _derive(fp32, model, workspace, options, sample)
    evaluation = None
    if suite is not None:
        report("evaluating recall")
        evaluation = _certify(suite, checkpoint, workspace, options, sample.max_length)
    return assemble(name, workspace, checkpoint, options, measured, sample.max_length, evaluation)


def _name(source: str, name: str | None) -> str:
    if name is not None:
        return check_name(name)
    found = hub_id(source)
    if found is None:
        raise InputError("a checkpoint directory has no model name of its own", "pass --name NAME")
    return check_name(found.lower())


def _derive(
    fp32: graphs.Graph, model: list[Any], workspace: Path, options: AndroidOptions, sample: Sample
) -> list[Measured]:
    """Derive every artifact from fp32; each is checked and measured beside the making of the next.

    Args:
        model: the fp32 graph alone in a list, which is emptied so that nothing else keeps it in memory.
    """
    parent = fp32.steps[-1].name
    with ThreadPoolExecutor(max_workers=1) as beside:

        def measure(graph: graphs.Graph) -> Future[Measured]:
            return beside.submit(describe, graph, workspace, sample)

        measured = [measure(fp32)]
        if options.int8:
            measured.append(measure(graphs.write_int8(model[0], parent, workspace, options.int8_embeddings)))
        measured.insert(1, measure(graphs.write_float16(model.pop(), parent, workspace)))
        measured.append(measure(graphs.write_ort(parent, workspace, sample.feeds[0])))
        return [found.result() for found in measured]


def _certify(
    suite: Suite, checkpoint: LoadedCheckpoint, workspace: Path, options: AndroidOptions, max_length: int
) -> Evaluation:
    return certify_int8(
        suite,
        checkpoint,
        workspace / graphs.INT8,
        workspace,
        quantization=graphs.quantization(options.int8_embeddings),
        max_length=max_length,
        floors=options.floors(),
    )
