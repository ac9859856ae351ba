"""`openmed-onnx.json`, format version 1: what OpenMed's converter writes.

Read leniently: only what makes the document recognisable is required, every claim may be absent or null, a format may
mean several artifacts, an artifact's path may be a directory, and unknown keys are kept. Nothing in it is bound
to bytes: no digest, no size. `converters.importers.openmed` turns it into version 2 by reading the files again.
"""

from typing import Annotated, Literal

from pydantic import Field

from onnxreg.schema.core.document import Document, Items, JsonObject, Text

Number = int | float


class TensorSpecV1(Document):
    """One claimed input or output."""

    name: Text
    dtype: Text | None = None
    axes: Items[Text | None] | None = None
    shape: Items[JsonObject] | None = None


class ArtifactMetadataV1(Document):
    """Claims about one artifact; which of them are there depends on its format and on whether it was evaluated."""

    profile: Text | None = None
    opset: int | None = None
    execution_providers: Items[Text] | None = None
    inputs: Items[TensorSpecV1] | None = None
    outputs: Items[TensorSpecV1] | None = None
    operators: Items[Text] | None = None
    unsupported_ops: Items[Text] | None = None
    warnings: Items[Text] | None = None
    quantization: JsonObject | None = None
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
    files: Items[Text] | None = None


class SegmenterFileV1(Document):
    path: Text
    size_bytes: int | None = None
    sha256: Text | None = None


class SegmenterV1(Document):
    """A sentence segmenter shipped beside the model; its files are the only ones that version 1 gives a digest."""

    resource_files: Items[SegmenterFileV1] = ()


class ManifestV1(Document):
    """One exported directory, as its writer described it. Paths are relative to the directory and not yet checked."""

    format: Literal["openmed-onnx"]
    format_version: Literal[1]
    artifacts: Annotated[Items[ArtifactV1], Field(max_length=10_000)]
    formats: Items[Text] | None = None
    task: Text | None = None
    family: Text | None = None
    source_model_id: Text | None = None
    config_path: Text | None = None
    label_map_path: Text | None = None
    minimum_opset: int | None = None
    max_sequence_length: int | None = None
    dynamic_shapes: JsonObject | None = None
    optimization: JsonObject | None = None
    validation: JsonObject | None = None
    operator_fallbacks: Items[JsonObject] | None = None
    tokenizer: TokenizerV1 | None = None
    segmenter: SegmenterV1 | None = None
    quantization: JsonObject | None = None
    quant_recall_delta: Number | None = None
    certified: bool | None = None
    recall_delta_path: Text | None = None
    certification: JsonObject | None = None
