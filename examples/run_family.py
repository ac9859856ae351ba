"""Run a pulled model family on one image: its species, its disease, and whether it resembles the training images.

    reg pull examples/digits origin --output ./family
    python examples/run_family.py ./family image.npy

The image is float32 `[channels, height, width]` in a `.npy` file. Heads are loaded when a row first needs them, each with one
thread: hundreds of sessions with a pool of threads each would take seconds to load.
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
    """`disease` is None if the species has no head; the verdict and its distance are None without a detector."""

    species: str
    disease: str | None
    in_distribution: bool | None
    distance: float | None


class Family:
    """The files of one version in a directory. `precision` is that of backbone and heads: float32, float16 or int8."""

    def __init__(self, directory: Path, precision: str = "int8", threads: int = 0) -> None:
        self._directory = directory
        self._precision = precision
        document = json.loads((directory / "onnx-metadata.json").read_text("utf-8"))
        self._members: dict[str, Any] = document["members"]
        self._routing: dict[str, str | None] = document["routing"]
        self._species: list[str] = self._members["backbone"]["classes"]
        self._backbone = self._load("backbone", threads)
        self._detector = self._load("ood") if "ood" in self._members else None
        self._head = cache(self._load)

    def ask(self, image: Any) -> Answer:
        """Classify an image, float32 `[channels, height, width]`; ValueError for another shape or type."""
        shape = self._backbone.get_inputs()[0].shape[1:]
        if image.dtype != np.float32 or list(image.shape) != shape:
            raise ValueError(
                f"the image is {image.dtype} {list(image.shape)}, the family reads float32 {shape}"
            )
        logits, embedding = self._backbone.run(["species_logits", "embedding"], {"input": image[None]})
        species = self._species[int(logits[0].argmax())]
        verdict, distance = None, None
        if self._detector is not None:
            distances, verdicts = self._detector.run(
                ["distance", "in_distribution"], {"embedding": embedding}
            )
            verdict, distance = bool(verdicts[0]), float(distances[0])
        return Answer(species, self._disease(species, embedding), verdict, distance)

    def _disease(self, species: str, embedding: Any) -> str | None:
        member = self._routing[species]
        if member is None:
            return None
        (logits,) = self._head(member).run(["disease_logits"], {"embedding": embedding})
        return str(self._members[member]["classes"][int(logits[0].argmax())])

    def _load(self, member: str, threads: int = 1) -> Any:
        files = self._members[member]["files"]
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
    print(f"species          {answer.species}")
    print(f"disease          {answer.disease or 'no head'}")
    print(f"in distribution  {answer.in_distribution} (distance {answer.distance})")
