"""The task `onnx`: an existing ONNX file, to which a recipe's passes are applied."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.onnx_graph import check_model, external_files, load_onnx
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime.golden import DTYPES
from onnxreg.converters.runtime.sessions import load_session, try_load
from onnxreg.converters.source import source_files
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Part, Task
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError
from onnxreg.schema.manifest.draft import DraftFile

MASK = "attention_mask"
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
MAX_GOLDEN_VALUES = 2_000
SIZES, LENGTHS = (*samples.SIZES, {"batch": 4}), (*samples.LENGTHS, 10)
"""The sizes of random samples. The third has more rows, because two graphs may agree on a few rows by chance."""


class OnnxFileOptions(PassParams, title="Options"):
    """`data` is a `.npz` file of sample inputs (the first axis of each array counts rows), or a directory of such files."""

    data: str | None = None


class OnnxFile(Task):
    """The task of an ONNX file, with random samples or the option `data`. A tokenizer beside it is published, too."""

    id, exporter = "onnx", "Original"
    paths = ("data",)
    Options = OnnxFileOptions

    def seek(self, source: str) -> str | None:
        if not Path(source).is_file():
            raise NotFoundError(f"there is no file {source}", f"the task {self.id} starts from an .onnx file")
        return None

    def find(self, source: str) -> LocatedSource:
        self.seek(source)
        path = Path(source)
        names = [path.name, *external_files(load_onnx(path), path)]
        text_files = text_files_of(path)
        for file in text_files:
            source_files.check_inside(file.parent, file)
        beside = [file.name for file in text_files]
        described = source_files.digest_files(text_files[0].parent, beside) if text_files else None
        files = [*(path.parent / name for name in names), *text_files]
        if self.options.data is not None:
            data = self.directory / self.options.data
            if not data.exists():
                message = f"there is no data at {self.options.data}"
                raise InputError(message, "paths are relative to the recipe")
            files += dict.fromkeys([data, *source_files.row_files(data)])
        return LocatedSource(
            path, source_files.digest_files(path.parent, names), described=described, files=tuple(files)
        )

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        path: Path = source.location
        check_model(load_onnx(path), path)
        model = models.load(path)
        try_load(path, path.name, "make the file in float32, or by another exporter, and export that")
        try:
            session = load_session(path)
        except ConversionError as error:  # an error of the request: nothing is converted yet
            raise InputError(error.message, error.hint) from error
        feeds = self._samples() or samples.draw(model, sizes=SIZES, lengths=LENGTHS)
        samples.check(feeds, model, path.name)
        try:
            expected = [samples.outputs(session, feed, path.name) for feed in feeds]
        except ConversionError as error:
            hint = "give inputs that it takes: options: {data: samples.npz}, see docs/recipes.md"
            raise ConversionError(error.message, hint) from error
        arrays = (*feeds[0].values(), *expected[0].values())
        is_small = sum(array.size for array in arrays) <= MAX_GOLDEN_VALUES
        is_full = all(array.size for array in expected[0].values())
        has_golden = is_small and is_full and all(str(array.dtype) in DTYPES for array in arrays)
        companions = []
        for file in text_files_of(path):
            source_files.copy_scrubbed(file, directory / file.name, name)
            companions.append(DraftFile(source_files.role_of(file.name), file.name))
        axes = {one.name: models.sizes_of(one) for one in (*model.graph.inputs, *model.graph.outputs)}
        mask, outputs = axes.get(MASK, []), {value.name for value in model.graph.outputs}
        per_token = frozenset(name for name in outputs if len(mask) == 2 and axes[name][:2] == mask)
        part = Part(path, feeds, expected, per_token, {"sample": feeds[0]} if has_golden else {})
        return ExportSubject(source.record(name), {"": part}, tuple(companions))

    def record(self, source: LocatedSource) -> dict[str, Any]:
        value, feeds = super().record(source), self._samples()
        return value if feeds is None else {**value, "data": str(samples.digest(feeds))}

    def _samples(self) -> Sequence[Feed] | None:
        return None if self.options.data is None else samples.read(self.directory / self.options.data)


def text_files_of(path: Path) -> list[Path]:
    folders = (path.parent, *([path.parent.parent] if path.parent.name == "onnx" else []))
    folder = next((folder for folder in folders if (folder / TEXT_FILES[0]).is_file()), path)
    return [file for name in TEXT_FILES if (file := folder / name).is_file()]
