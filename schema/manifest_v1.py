"""`openmed-onnx.json`, format version 1: what OpenMed's converter writes.

Read leniently: only what makes the document recognisable is required, every claim may be absent or null, a format may
stand for several artifacts, an artifact's path may be a directory, and unknown keys are kept. Nothing in it is bound
to bytes: no digest, no size. `converters.importer` turns it into version 2 by reading the files again.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from onnxreg.schema.manifest import Dim
from onnxreg.schema.model import Document, Text

Number = int | float


class TensorSpecV1(Document):
    """One claimed input or output."""

    name: Text
    dtype: Text | None = None
    axes: tuple[Text | None, ...] | None = None
    shape: tuple[Dim, ...] | None = None


class ArtifactMetadataV1(Document):
    """Claims about one artifact; which of them are there depends on its format and on whether it was evaluated."""

    profile: Text | None = None
    opset: int | None = None
    execution_providers: tuple[Text, ...] | None = None
    inputs: tuple[TensorSpecV1, ...] | None = None
    outputs: tuple[TensorSpecV1, ...] | None = None
    operators: tuple[Text, ...] | None = None
    unsupported_ops: tuple[Text, ...] | None = None
    warnings: tuple[Text, ...] | None = None
    quantization: dict[str, Any] | None = None
    certified: bool | None = None
    quant_recall_delta: Number | None = None
    recall_delta_path: Text | None = None
    op_config_path: Text | None = None


class ArtifactV1(Document):
    """One artifact: a file, or a directory (`transformersjs`)."""

    format: Text
    path: Text
    precision: Text | None = None
    metadata: ArtifactMetadataV1 | None = None


class TokenizerV1(Document):
    path: Text | None = None
    files: tuple[Text, ...] | None = None


class ManifestV1(Document):
    """One exported directory, as its writer described it. Paths are relative to the directory and not yet checked."""

    format: Literal["openmed-onnx"]
    format_version: Literal[1]
    artifacts: Annotated[tuple[ArtifactV1, ...], Field(max_length=10_000)]
    formats: tuple[Text, ...] | None = None
    task: Text | None = None
    family: Text | None = None
    source_model_id: Text | None = None
    config_path: Text | None = None
    label_map_path: Text | None = None
    minimum_opset: int | None = None
    max_sequence_length: int | None = None
    dynamic_shapes: dict[str, Any] | None = None
    optimization: dict[str, Any] | None = None
    validation: dict[str, Any] | None = None
    operator_fallbacks: tuple[dict[str, Any], ...] | None = None
    tokenizer: TokenizerV1 | None = None
    segmenter: dict[str, Any] | None = None
    quantization: dict[str, Any] | None = None
    quant_recall_delta: Number | None = None
    certified: bool | None = None
    recall_delta_path: Text | None = None
    certification: dict[str, Any] | None = None
