"""`openmed-onnx.json`, format version 1: the manifest that OpenMed's converter writes.

Every key may be absent or null. The classes declare only the keys that decide how a directory is read.
`converters.importers.openmed` converts such a manifest to format version 2.
"""

from typing import Annotated, Literal

from pydantic import Field

from onnxreg.schema.core.document import Document, Items, JsonObject, Text


class _Claims(Document):
    certified: bool | None = None
    quant_recall_delta: int | float | None = None
    quantization: JsonObject | None = None
    recall_delta_path: Text | None = None


class ArtifactMetadataV1(_Claims):
    """The properties of one artifact, as the manifest's writer stated them."""

    profile: Text | None = None
    op_config_path: Text | None = None


class ArtifactV1(Document):
    """One artifact, which is a file or a directory (`transformersjs`)."""

    format: Text
    path: Text
    precision: Text | None = None
    metadata: ArtifactMetadataV1 | None = None


class TokenizerV1(Document):
    """The files of a tokenizer."""

    files: Items[Text] | None = None


class SegmenterFileV1(Document):
    """A file of a segmenter. Further keys state its size and SHA-256."""

    path: Text


class SegmenterV1(Document):
    """A sentence segmenter beside the model."""

    resource_files: Items[SegmenterFileV1] = ()


class ManifestV1(_Claims):
    """An exported directory, as its writer described it. Paths are relative to the directory. This class does not check
    them.
    """

    format: Literal["openmed-onnx"]
    format_version: Literal[1]
    artifacts: Annotated[Items[ArtifactV1], Field(max_length=10_000)]
    source_model_id: Text | None = None
    config_path: Text | None = None
    label_map_path: Text | None = None
    tokenizer: TokenizerV1 | None = None
    segmenter: SegmenterV1 | None = None
