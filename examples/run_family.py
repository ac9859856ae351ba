"""Classify an image with a pulled model family, and say if the image resembles those that the family was trained on.

    reg pull examples/digits origin --output ./family
    python examples/run_family.py ./family image.npy

The image is float32 `[channels, height, width]` in a `.npy` file. A head is loaded when it is first needed, with only one
thread: hundreds of sessions, each with a pool of threads, would take seconds to load.
"""

import argparse
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort


@dataclass(frozen=True)
class Answer:
    """The classes by the backbone and by a head, and the verdict and distance of the outlier detector, if any."""

    first: str
    second: str | None
    in_distribution: bool | None
    distance: float | None


class Family:
    """A model family from a directory. `precision` (float32, float16 or int8) chooses the files of backbone and heads."""

    def __init__(self, directory: Path, precision: str = "int8", threads: int = 0) -> None:
        self._directory = directory
        self._precision = precision
        manifest = json.loads((directory / "openmed-onnx.json").read_text("utf-8"))
        self._precisions = {item["path"]: item["precision"] for item in manifest["artifacts"]}
        self._members: dict[str, Any] = {item["name"]: item for item in manifest["model_family"]["members"]}
        self._routing: dict[str, str | None] = manifest["model_family"]["routing"]
        self._embedding: str = manifest["model_family"]["edges"][0]["output"]
        self._backbone = self._load("backbone", threads)
        self._detector = self._load("ood") if "ood" in self._members else None
        self._head = cache(self._load)

    def ask(self, image: Any) -> Answer:
        """Classify a float32 image `[channels, height, width]`. Raise ValueError for another shape or type."""
        shape = self._backbone.get_inputs()[0].shape[1:]
        if image.dtype != np.float32 or list(image.shape) != shape:
            raise ValueError(
                f"the image is {image.dtype} {list(image.shape)}, the family reads float32 {shape}"
            )
        names = [self._members["backbone"]["classes"]["output"], self._embedding]
        logits, embedding = self._backbone.run(names, {"input": image[None]})
        first, second, verdict, distance = self._class("backbone", logits), None, None, None
        if self._detector is not None:
            distances, verdicts = self._detector.run(
                ["distance", "in_distribution"], {self._embedding: embedding}
            )
            verdict, distance = bool(verdicts[0]), float(distances[0])
        if (member := self._routing[first]) is not None:
            second = self._class(member, self._head(member).run(None, {self._embedding: embedding})[0])
        return Answer(first, second, verdict, distance)

    def _class(self, member: str, logits: Any) -> str:
        return str(self._members[member]["classes"]["ids"][int(logits[0].argmax())])

    def _load(self, member: str, threads: int = 1) -> Any:
        files = {self._precisions[path]: path for path in self._members[member]["artifacts"]}
        path = self._directory / files.get(self._precision, files["float32"])
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there: reg pull with --member {member} fetches it")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="what reg pull --output wrote")
    parser.add_argument("image", type=Path, help="float32 [channels, height, width] in a .npy file")
    parser.add_argument("--precision", default="int8", choices=["float32", "float16", "int8"])
    given = parser.parse_args()
    try:
        answer = Family(given.directory, given.precision).ask(np.load(given.image, allow_pickle=False))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"backbone         {answer.first}")
    print(f"head             {answer.second or 'none'}")
    print(f"in distribution  {answer.in_distribution} (distance {answer.distance})")
