"""Turn an image into the input of a graph, as the manifest's key `preprocessing` says (docs/format.md)."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, missing_extra
from onnxreg.schema.core.files import read_given
from onnxreg.schema.manifest.parts import Preprocessing

MAX_IMAGE_BYTES = 256 * 2**20
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Names of Pillow's filters, each at the index that the settings of transformers use for it."""
DRAWN_SIZE, SAMPLES = (331, 247), 64
"""Width and height of the generated test image, and how many numbers of its input a manifest states."""
CLOSE = 1e-4
"""Largest difference between equal preprocessings; one step of an 8-bit value makes a far larger difference."""


def read_image(path: Path, preprocessing: Preprocessing) -> Any:
    """Read an image file as a graph's input (float32, batch 1). InputError if it is not an image, HostError without Pillow."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise missing_extra("PIL", "run", "reading an image") from error
    data = read_given(path, "image", limit=MAX_IMAGE_BYTES)
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        image.load()
    except Exception as error:  # Pillow's plug-ins raise anything
        hint = "give a whole file of a photograph, such as .jpg or .png"
        raise InputError(f"{path} is not an image that Pillow reads", hint) from error
    if image.mode[0] in "IF":
        raise InputError(f"{path} has more than 8 bits for each value", "save it with 8 bits")
    return to_numbers(image, preprocessing)


def to_numbers(image: Any, preprocessing: Preprocessing) -> Any:
    """Scale, crop and normalize an image (`PIL.Image.Image`) to a graph's input: float32, batch 1."""
    import numpy as np
    from PIL import Image

    image = image.convert("L" if preprocessing.color == "L" else "RGB")
    filter_ = Image.Resampling[(preprocessing.resample or "bilinear").upper()]
    height, width = preprocessing.size
    if preprocessing.resize is None:
        image = image.resize((width, height), filter_)
    else:
        shorter = min(image.size)
        image = image.resize([edge * preprocessing.resize // shorter for edge in image.size], filter_)
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    values = np.asarray(image, dtype=np.float32).reshape(height, width, -1) / 255
    values = values[..., ::-1] if preprocessing.color == "BGR" else values
    values = (values - np.asarray(preprocessing.mean)) / np.asarray(preprocessing.std)
    values = values if preprocessing.layout == "NHWC" else values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None], dtype=np.float32)


def preprocessing_of(
    settings: Mapping[str, Any], photographs: Sequence[tuple[Any, Any]]
) -> Preprocessing | None:
    """Translate the settings of an image processor into `preprocessing`; None if that gives other numbers than the processor.

    Args:
        settings: the processor's settings, as transformers saves them.
        photographs: images, each with the processor's numbers for it (float32, batch 1).
    """
    import numpy as np

    _, channels, *size = photographs[0][1].shape
    edge = (settings.get("size") or {}).get("shortest_edge")
    normalizes = settings.get("do_normalize")
    number = settings.get("resample")
    value = {
        "size": size,
        "mean": settings["image_mean"] if normalizes else [0.0] * channels,
        "std": settings["image_std"] if normalizes else [1.0] * channels,
        "color": "L" if channels == 1 else "BGR" if settings.get("do_flip_channel_order") else "RGB",
        "resample": FILTERS[number] if isinstance(number, int) and 0 <= number < len(FILTERS) else None,
    }
    resizes = [None, edge, edge and int(edge / (settings.get("crop_pct") or 1))]
    for resize in dict.fromkeys(resizes):
        try:
            stated = {key: item for key, item in {**value, "resize": resize}.items() if item is not None}
            candidate = Preprocessing.from_json(stated, "preprocessing")
        except InputError:
            continue
        pairs = ((to_numbers(image, candidate), numbers) for image, numbers in photographs)
        if all(np.allclose(a, b, rtol=0.0, atol=CLOSE) for a, b in pairs):
            return Preprocessing.from_json({**stated, "sample": _sample(candidate)}, "preprocessing")
    return None


def _sample(preprocessing: Preprocessing) -> list[float]:
    """Return evenly spaced numbers of the input for the generated test image (docs/format.md)."""
    import numpy as np
    from PIL import Image

    x, y = np.meshgrid(*map(np.arange, DRAWN_SIZE))
    channels = [2 * x + y + 64 * channel + x * y % 50 for channel in range(3)]
    numbers = to_numbers(Image.fromarray(np.stack(channels, -1).astype(np.uint8)), preprocessing).reshape(-1)
    return [round(float(value), 6) for value in numbers[:: max(1, len(numbers) // SAMPLES)][:SAMPLES]]
