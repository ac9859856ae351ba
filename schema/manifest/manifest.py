"""`openmed-onnx.json`, format version 2: the document of one version.

It does not state the machine of the conversion, the time of the conversion or the number of the version.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_MEMBERS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import Count, Document, Items, JsonObject, ModelName, RelPath, Table, Text
from onnxreg.schema.core.errors import InputError, value_error
from onnxreg.schema.core.ref import check_distinct
from onnxreg.schema.manifest.family import Member, ModelFamily
from onnxreg.schema.manifest.vocabulary import (
    ASIDE,
    CHANNELS,
    DESCRIPTION,
    FILENAME,
    FORMAT,
    LOSS,
    MAX_DESCRIPTION_CHARS,
    Tensor,
    check_description,
)

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest_v1 import ManifestV1

Positive = Annotated[Count, Field(gt=0)]


class Preprocessing(Document):
    """The conversion of an image to a tensor.

    The image is scaled to `size` (height, width), in pixels. If `resize` is set, the image's shorter edge is scaled to
    that many pixels, and then a centre rectangle of `size` is cropped. Values are scaled to 0 to 1. `mean` is
    subtracted, and the result is divided by `std`, per channel in the order of `color`. `layout` is the order of the
    axes. `resample` is the filter's name in Pillow. `sample` has the result for a test image that onnxreg generates.
    Another program can generate the same image to test its own preprocessing.
    """

    size: tuple[Positive, Positive]
    mean: Items[float]
    std: Items[Annotated[float, Field(gt=0)]]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR", "L"] = "RGB"
    resize: Positive | None = None
    resample: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None
    sample: Items[float] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        channels = CHANNELS[self.color]
        if (len(self.mean), len(self.std)) != (channels, channels):
            raise ValueError(f"{self.color} has {channels} channels: mean and std need one value for each")
        if self.resize is not None and self.resize < max(self.size):
            raise ValueError("size cannot be cut out of an image whose shorter edge is smaller")
        return self

    @classmethod
    def of_input(cls, value: Mapping[str, Any], shape: tuple[int, int, int]) -> Self:
        """Read preprocessing that people wrote. Raise InputError unless it fits `shape` (channels, height, width)."""
        channels, *size = shape
        image = cls.from_json({"layout": "NCHW", "color": "RGB", **value, "size": size}, "preprocessing")
        if image.layout != "NCHW" or CHANNELS[image.color] != channels:
            raise InputError(f"the input has {channels} channels first, not {image.color} as {image.layout}")
        return image


class AudioPreprocessing(Document):
    """The conversion of a sound (float32, one channel, -1 to 1, at `sampling_rate` Hz) to a tensor.

    With `samples`, the sound is cut or padded with zeros to this length. With `normalize`, its mean becomes 0 and its
    variance 1. With `mels`, `window` and `hop`, it becomes Whisper's log-mel spectrogram, shape `[mels, samples /
    hop]`.
    """

    sampling_rate: Positive
    normalize: bool = False
    samples: Positive | None = None
    mels: Positive | None = None
    window: Positive | None = None
    hop: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        stated = [key is not None for key in (self.mels, self.window, self.hop)]
        if any(stated) and not (all(stated) and self.samples):
            raise ValueError("a spectrogram needs mels, window, hop and samples")
        return self


class Dim(Document):
    """One axis of a tensor: `{"kind": "dynamic", "name": "batch"}` or `{"kind": "static", "value": 17}`."""

    kind: Literal["dynamic", "static"]
    name: Text | None = None  # "" for an axis that the graph does not name
    value: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.kind == "static") != (self.value is not None):
            raise ValueError("a static axis has a value, a dynamic axis has none")
        return self


class TensorSpec(Document):
    """One input or output of a graph. `dtype` is numpy's name, such as `float32`. `axes` has a label for each axis."""

    name: Text
    dtype: Text
    axes: Items[Text] = ()
    shape: Items[Dim] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.axes and len(self.axes) != len(self.shape):
            raise ValueError(f"{len(self.axes)} axes are named, the shape has {len(self.shape)}")
        return self

    @property
    def tensor(self) -> Tensor:
        return self.dtype, tuple(dim.value for dim in self.shape)

    @property
    def shape_text(self) -> str:
        """The shape as text, such as `[batch, 384]`. A dynamic axis without a name is `?`."""
        axes = (str(dim.value) if dim.kind == "static" else dim.name or "?" for dim in self.shape)
        return f"[{', '.join(axes)}]"


class Operator(Document):
    """One operator that an artifact needs, in its graph, a subgraph or a function.

    The default domain is `ai.onnx`. `opset` is the version that introduced the operator's definition. `inputs` and
    `outputs` map a position to element types in the spelling of ONNX Runtime, such as `int64_t`.
    """

    domain: Text
    name: Text
    opset: Count
    inputs: Table[Items[str]] = {}
    outputs: Table[Items[str]] = {}


class WeightCount(Document):
    """The numbers of quantized weights and of all weights in a graph, and the bytes that they take in the file."""

    weights_quantized: Count
    weights_total: Count
    bytes_quantized: Count
    bytes_total: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weights_quantized > self.weights_total or self.bytes_quantized > self.bytes_total:
            raise ValueError("more is quantized than there is")
        return self


class Quantization(Document):
    """The quantization that the recipe requested, and the quantized weights in the file."""

    requested: JsonObject
    measured: WeightCount


class SemanticDigest(Document):
    """Digests of a graph's computation. They do not depend on how the file is written (docs/format.md).

    `graph` covers operators, attributes and the flow of values. `weights` covers the stored tensors. Equal digests mean
    the same computation. Different digests prove nothing.
    """

    graph: Digest
    weights: Digest


class KvCache(Document):
    """The cache of keys and values of a decoder: its bytes for each token, and the maximum number of tokens in it."""

    bytes_per_token: Positive
    max_tokens: Positive


class Step(Document):
    """A pass that was applied, with its parameters and its result.

    `input` is the step whose result this step read. Without `input`, this step read the source. `skipped` says which
    missing dependency kept an optional pass from running.
    """

    name: Text
    pass_: Annotated[Text, Field(alias="pass")]
    version: Count
    params: JsonObject
    input: Text | None = None
    result: JsonObject = {}
    skipped: Text | None = None


class Code(Document):
    """The Python function that made the model, as `module:function`. The user allowed it by `--allow-code`.

    `digest` covers the function's file, or all files of the function's package. An installed package has no `digest`:
    `distribution` and `version` name the package. The distribution `python` is Python itself.
    """

    name: Text
    digest: Digest | None = None
    distribution: Text | None = None
    version: Text | None = None


class Recipe(Document):
    """The recipe that was run, with all its parameters.

    `tools` has the versions of the tools that affect the bytes, and, under the key `isa`, the machine's instruction
    set. With equal tools, a rebuild gives the same bytes. `trust_remote_code` is true if code of a transformers
    checkpoint was run.
    """

    profile: Text
    profile_version: Count
    steps: Items[Step]
    tools: Table[str]
    parameters: JsonObject = {}
    trust_remote_code: bool = False
    code: Code | None = None


class Check(Document):
    """A measured value of an artifact, and the verdict on it.

    `value` is null if it could not be measured. `interval` is the 95 % interval of `value`. `dataset` is the digest of
    the test data. `direction` says if higher or lower values are better.
    """

    name: Text
    metric: Text
    value: float | None
    verdict: Literal["pass", "fail", "unknown", "info"]
    limit: float | None = None
    samples: Count | None = None
    dataset: Digest | None = None
    interval: tuple[float, float] | None = None
    direction: Literal["higher", "lower"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval ends before it begins")
        value, limit = self.value, self.limit
        is_above = value is not None and limit is not None and value > limit
        if self.name == LOSS and self.verdict == "pass" and is_above:
            raise ValueError(f"{LOSS} is {value:g}, its limit {limit:g}, and its verdict is pass")
        return self

    @property
    def label(self) -> str:
        """The text `<name>/<metric>`. If the name already includes the metric, it is the name alone."""
        is_named = self.direction is not None or self.name.startswith(self.metric)
        return self.name if is_named else f"{self.name}/{self.metric}"


class Evidence(Document):
    """The digests of the files that lead to a verdict: artifact, parent in full precision, suite and report."""

    artifact: Digest
    parent: Digest | None = None
    suite: Digest | None = None
    report: Digest | None = None
    synthetic: bool | None = None  # what the suite states about its texts


class ArtifactCertification(Document):
    """The verdict on an artifact, the rule that decided, and the reasons."""

    state: Literal["certified", "refused", "unknown"]
    rule: Text | None = None
    reasons: Items[Text] = ()
    evidence: Evidence | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in ("artifact", "parent", "suite") if self.state == "certified" else ():
            if getattr(self.evidence, key, None) is None:
                raise ValueError(f"certified without evidence of the {key}")
        return self


MEDIA_TYPE = "application/vnd.onnxreg.manifest.v2+json"
# onnxreg makes `onnx`, `onnx-int8`, `onnx-int4`, `ort`, `onnx-android` (opset 18, fixed inputs and outputs),
# `ort-android` (made from `onnx-android`, with an operator config), `webgpu` (fp16), `transformersjs` (a
# directory as Transformers.js loads it) and `openvino-ir`. Other names are allowed.
FormatName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
PrecisionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]
Description = Annotated[
    str,
    AfterValidator(value_error(check_description)),
    WithJsonSchema({"type": "string", "maxLength": MAX_DESCRIPTION_CHARS, "pattern": DESCRIPTION}),
]


class PieceDigests(Document):
    """The digests of a file's consecutive pieces of `size` bytes. A damaged download is repaired piece by piece."""

    size: Positive
    digests: Annotated[Items[Digest], Field(min_length=1, max_length=65_536)]


class StoredFile(Document):
    """A file: its path in the version, its digest, and its size in bytes."""

    path: RelPath
    digest: Digest
    size: Count
    pieces: PieceDigests | None = None

    @model_validator(mode="after")
    def _check_pieces(self) -> Self:
        if self.pieces is not None and -(-self.size // self.pieces.size) != len(self.pieces.digests):
            raise ValueError("pieces are not as many as the size asks for")
        return self


class FileEntry(StoredFile):
    """A file beside an artifact, or a companion file. Roles are `config`, `labels`, `tokenizer`, `golden`, ..."""

    role: Text


class ArtifactMetadata(Document):
    """The metadata of an artifact, as in format version 1. Operators outside of ai.onnx are written as `domain:Op`."""

    profile: Text | None = None
    opset: Count | None = None
    execution_providers: Items[Text] = ()
    inputs: Items[TensorSpec] = ()
    outputs: Items[TensorSpec] = ()
    operators: Items[Text] = ()
    unsupported_ops: Items[Text] = ()
    warnings: Items[Text] = ()


class Artifact(StoredFile):
    """A file that a runtime loads, the `files` beside it, and its properties.

    `parent` is the digest of the artifact from which it was made. `ort_format` is the version of a file in ORT format.
    `semantic` is absent if the graph cannot be read. `contrib` lists the operators and features in use that a release of
    ONNX Runtime may lack, such as `MatMulNBits bits=8`. `kv_cache` is set for a decoder with a cache. `reproducible` is
    false if conversions are known to give different bytes.
    """

    format: FormatName
    precision: PrecisionName
    files: Items[FileEntry] = ()
    parent: Digest | None = None
    metadata: ArtifactMetadata = Field(default_factory=ArtifactMetadata.model_construct)
    opset_imports: Table[Count] = {}
    ir_version: Count | None = None
    ort_format: Count | None = None
    semantic: SemanticDigest | None = None
    operators: Items[Operator] = ()
    contrib: Items[Text] = ()
    kv_cache: KvCache | None = None
    quantization: Quantization | None = None
    checks: Items[Check] = ()
    certification: ArtifactCertification = Field(
        default_factory=lambda: ArtifactCertification(state="unknown")
    )
    reproducible: bool = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        evidence = self.certification.evidence
        if evidence is not None and evidence.artifact != self.digest:
            raise ValueError("certification.evidence.artifact is about other bytes than digest")
        failed = any(check.name == LOSS and check.verdict == "fail" for check in self.checks)
        if failed and self.certification.state == "certified":
            raise ValueError(f"certified, and the verdict of its check {LOSS} is fail")
        return self

    @property
    def suite(self) -> Digest | None:
        evidence = self.certification.evidence
        return None if evidence is None else evidence.suite

    @property
    def external_data(self) -> tuple[Digest, ...]:
        """The digests of the files of external data, in the order of their paths."""
        files = sorted((file.path, file.digest) for file in self.files if file.role == "external-data")
        return tuple(digest for _, digest in files)

    @property
    def reaches_limit(self) -> bool:
        """True if the artifact is certified although the upper end of a check's interval reaches the limit."""
        return self.certification.state == "certified" and any(
            check.interval is not None and check.limit is not None and check.interval[1] >= check.limit
            for check in self.checks
        )

    @property
    def own_size(self) -> int:
        """The number of bytes that a runtime loads. Golden vectors and operator configs do not count."""
        size = self.size + sum(entry.size for entry in self.files if entry.role not in ASIDE)
        return min(size, canonical.MAX_INTEGER)

    def all_files(self) -> Iterator[FileEntry]:
        main = {key: getattr(self, key) for key in StoredFile.model_fields}
        return iter((FileEntry.model_construct(role="artifact", **main), *self.files))


class Source(Document):
    """The source of a version. `digest` is the `directory_digest` of the files that were used."""

    id: Text  # for local files, the model's own name
    revision: Text | None = None
    digest: Digest | None = None

    def public_id(self, model: str) -> str | None:
        """Return the id, such as a Hub id, by which others can find the source, or None for local files."""
        return None if self.id == model and self.revision is None else self.id


class TokenizerFiles(Document):
    path: Text = "."
    files: Items[RelPath] = ()


class Manifest(Document):
    """One version of a model. `family` is the model type in the checkpoint's config, such as `bert`."""

    format: Literal["openmed-onnx"]
    format_version: Literal[2]
    name: ModelName
    formats: Items[FormatName]
    artifacts: Annotated[Items[Artifact], Field(min_length=1, max_length=MAX_MEMBERS)]
    files: Annotated[Items[FileEntry], Field(max_length=100_000)] = ()
    source: Source | None = None
    recipe: Recipe | None = None
    license: Text | None = None
    description: Description | None = None
    labels: Items[Text] | None = None
    task: Text | None = None
    family: Text | None = None
    model_family: ModelFamily | None = None
    source_model_id: Text | None = None
    config_path: RelPath | None = None
    label_map_path: RelPath | None = None
    minimum_opset: Count | None = None
    max_sequence_length: Count | None = None
    tokenizer: TokenizerFiles | None = None
    segmenter: JsonObject | None = None
    preprocessing: Preprocessing | None = None
    audio_preprocessing: AudioPreprocessing | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if fault := next(chain(self._artifact_faults(), self._family_faults()), None):
            raise ValueError(fault)
        return self

    def _artifact_faults(self) -> Iterator[str]:
        by_path: dict[str, tuple[Digest, int]] = {}
        own_files = [entry for artifact in self.artifacts for entry in (artifact, *artifact.files)]
        for entry in (*own_files, *self.files):
            if by_path.setdefault(entry.path, (entry.digest, entry.size)) != (entry.digest, entry.size):
                yield f"path {entry.path[:80]!r} names two different files"
        value_error(check_distinct)([FILENAME, *by_path])
        if sorted(self.formats) != sorted({artifact.format for artifact in self.artifacts}):
            yield "formats does not list exactly the formats of artifacts, each once"
        parents: dict[Digest, set[Digest]] = {artifact.digest: set() for artifact in self.artifacts}
        keys: set[tuple[str, str, str]] = set()
        for index, artifact in enumerate(self.artifacts):
            keys.add((artifact.format, artifact.precision, artifact.path))
            if len(keys) <= index:
                yield f"artifacts.{index} repeats format, precision and path of another artifact"
            if artifact.parent is not None:
                if artifact.parent not in parents:
                    yield f"artifacts.{index}.parent is not an artifact of this manifest"
                parents[artifact.digest].add(artifact.parent)
        try:
            TopologicalSorter(parents).prepare()
        except CycleError:
            yield "artifacts are each other's parents"

    def _family_faults(self) -> Iterator[str]:
        if self.model_family is None:
            return
        members, by_path = self.model_family.members, {artifact.path: artifact for artifact in self.artifacts}
        files = {entry.path for entry in self.files}
        owned: set[str] = set()
        for member in members:
            paths = [(path, "artifacts", path in by_path) for path in member.artifacts]
            for path, kind, is_known in paths + [(path, "files", path in files) for path in member.files]:
                if not is_known:
                    yield f"member {member.name} names {path[:80]}, which is not among the {kind} of this manifest"
                if path in owned:
                    yield f"member {member.name} names {path[:80]}, which another member has"
                owned.add(path)
        if orphans := sorted(by_path.keys() - owned):
            yield f"artifact {orphans[0][:80]} belongs to no member of the family"

        def tensor(member: Member, path: str, side: Literal["input", "output"], name: str) -> Tensor:
            metadata = by_path[path].metadata
            for spec in metadata.inputs if side == "input" else metadata.outputs:
                if spec.name == name:
                    return spec.tensor
            raise ValueError(f"member {member.name}: {path} has no {side} called {name[:80]}")

        def shown(end: Tensor) -> str:
            return f"{end[0]}[{', '.join('?' if dim is None else str(dim) for dim in end[1])}]"

        for member in members:
            if (classes := member.classes) is not None:
                for path in member.artifacts:
                    dims = tensor(member, path, "output", classes.output)[1]
                    columns = dims[-1] if dims else None
                    if columns != len(classes.ids):
                        columns_text = "no fixed number of" if columns is None else columns
                        yield (
                            f"member {member.name} has {len(classes.ids)} classes, and {classes.output} of {path} "
                            f"{columns_text} columns"
                        )
        for edge in self.model_family.edges:
            (source,) = (member for member in members if member.name == edge.source)
            produced = {tensor(source, path, "output", edge.output) for path in source.artifacts}
            for member in self.model_family.of_role(edge.target):
                for path in member.artifacts:
                    accepted = tensor(member, path, "input", edge.input)
                    if unlike := sorted(produced - {accepted}, key=repr):
                        ends = f"{shown(accepted)}, and {edge.output} of {edge.source} {shown(unlike[0])}"
                        yield f"member {member.name}: {edge.input} of {path} is {ends}"

    def all_files(self) -> Iterator[FileEntry]:
        """Yield every file of the version except the manifest itself. Companion files come last."""
        for artifact in self.artifacts:
            yield from artifact.all_files()
        yield from self.files

    def ancestors(self, artifact: Artifact) -> list[Artifact]:
        """Return the artifact's parent, its parent's parent, and so on."""
        by_digest = {item.digest: item for item in self.artifacts}
        lineage: list[Artifact] = []
        while artifact.parent is not None:
            artifact = by_digest[artifact.parent]
            lineage.append(artifact)
        return lineage

    def check_weights(self, external_data: Mapping[str, tuple[Digest, ...]]) -> None:
        """Raise InputError if a report evaluated a graph of this version with other external data.

        `external_data` is the report's: the digests of the external data, by the digest of the graph.
        """
        here = {(str(item.digest), item.external_data) for item in self.artifacts}
        for graph, _ in {item for item in external_data.items() if item[0] in dict(here)} - here:
            message = f"the report is about graph {graph[7:19]}... with other external data"
            raise InputError(message, "name the version whose bytes were evaluated")

    @property
    def entry_artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts that an app loads first. In a family, these belong to the backbone or to the stages."""
        if (family := self.model_family) is None:
            return self.artifacts
        first = {path for member in family.stages or family.of_role("backbone") for path in member.artifacts}
        return tuple(artifact for artifact in self.artifacts if artifact.path in first)

    @property
    def members(self) -> dict[str, str]:
        """The name of each artifact's member, by the artifact's path. Empty if this is not a family."""
        members = self.model_family.members if self.model_family else ()
        return {path: member.name for member in members for path in member.artifacts}

    @property
    def stages(self) -> dict[str, str]:
        """The name of each artifact's stage, by the artifact's path. Empty if this is not a pipeline."""
        return self.members if self.model_family and self.model_family.stages else {}

    @property
    def heads(self) -> frozenset[str]:
        members = self.model_family.of_role("head") if self.model_family else ()
        return frozenset(path for member in members for path in member.artifacts)


def read_manifest(data: bytes, label: str = FILENAME) -> "Manifest | ManifestV1":
    """Read a manifest of format version 1 or 2. Raise InputError for another document."""
    value = canonical.decode(data, label)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(f"{label} is not a manifest: its format is not {FORMAT!r}", f"expected {FILENAME}")
    version = value.get("format_version")
    if version == 1 and version is not True:
        from onnxreg.schema.manifest.manifest_v1 import ManifestV1

        return ManifestV1.decode(data, label)
    if version == 2:
        return Manifest.decode(data, label)
    hint = "upgrade onnxreg to read a newer version"
    raise InputError(f"{label} has format_version {str(version)[:40]!r}; this build reads 1 and 2", hint)


def contract_of(manifest: Manifest, artifact: Artifact) -> Digest | None:
    """Return the digest of an artifact's *contract*: the properties on which an app's code relies. Return None if
    inputs or outputs are not recorded.

    The contract covers inputs and outputs, labels, tokenizer and preprocessing (docs/resolve.md). It does not cover the
    names of dynamic axes.
    """
    sides = {"inputs": artifact.metadata.inputs, "outputs": artifact.metadata.outputs}
    if not all(sides.values()):
        return None
    parts: dict[str, Any] = {
        side: [
            {"name": spec.name, "dtype": spec.dtype, "shape": [dim.value for dim in spec.shape]}
            for spec in specs
        ]
        for side, specs in sides.items()
    }
    for key in ("labels", "tokenizer", "segmenter"):
        parts[key] = {entry.path: str(entry.digest) for entry in manifest.files if entry.role == key}
    parts["labels"] = list(manifest.labels or ()) or parts["labels"]
    for key in ("preprocessing", "audio_preprocessing"):
        stated = getattr(manifest, key)
        parts[key] = stated and stated.to_json()
    return Digest.of(canonical.encode({key: item for key, item in parts.items() if item}))
