"""`text-generation`: a decoder checkpoint, for `ModelBuilder`."""

from pathlib import Path
from typing import Any

from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import CONFIG, locate, read_license, taking_part, weight_files
from onnxreg.converters.tasks.checkpoints.checkpoint import located_source
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Sample, Task
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Source

HEAD_SUFFIX = "ForCausalLM"
GENERATION_CONFIG = "generation_config.json"
"""Optional settings of text generation."""


class TextGeneration(Task):
    """A Hugging Face checkpoint of a causal language model, which `ModelBuilder` takes unchanged.

    Nothing is loaded here and no code of the checkpoint is run. The pass compares its graph with the
    checkpoint itself.
    """

    id = "text-generation"

    def find(self, source: str) -> LocatedSource:
        location = locate(source)
        directory = location.directory
        _check(directory)
        names = taking_part(directory, code=False)
        names += [GENERATION_CONFIG] if (directory / GENERATION_CONFIG).is_file() else []
        return located_source(location, names)

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        origin = source.origin or Source.from_json({"id": name, "digest": str(source.digest)})
        fields = {"task": self.id, "family": _config(source.location).get("model_type")}
        license_name = read_license(source.location)
        fields |= {} if license_name is None else {"license": license_name}
        return ExportSubject(origin, Sample((), ()), source.location, fields=fields)


def _check(directory: Path) -> None:
    architectures = _config(directory).get("architectures") or []
    if not any(str(name).endswith(HEAD_SUFFIX) for name in architectures):
        names = ", ".join(map(str, architectures))[:200] or "nothing"
        raise InputError(
            f"not a causal language model: config.json says {names}",
            "text-generation exports decoders such as LlamaForCausalLM",
        )
    if not weight_files(directory):
        raise InputError(
            "the checkpoint has no weights: neither model.safetensors nor pytorch_model.bin",
            "give the directory that save_pretrained wrote",
        )


def _config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    value = read_json(path) if path.is_file() else None
    if not isinstance(value, dict):
        raise InputError(
            "the checkpoint has no config.json that can be read",
            "give the directory that save_pretrained wrote",
        )
    return value
