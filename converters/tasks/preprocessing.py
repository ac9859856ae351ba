"""Turn images and sounds into a graph's input, without transformers, as `reg run` does.

If the functions here can repeat a processor's computation, the manifest describes it under `preprocessing` or
`audio_preprocessing` (docs/format.md). `read_image` and `read_sound` follow this description.
"""

import io
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, missing_extra, why
from onnxreg.schema.core.files import read_given
from onnxreg.schema.manifest.manifest import AudioPreprocessing, Preprocessing

PHOTOGRAPHS = ((97, 131), (160, 120), (64, 64), (211, 90))
MAX_FILE_BYTES = 256 * 2**20
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""The names of Pillow's filters, in the order of their numbers in transformers."""
DRAWN_SIZE, SAMPLES = (331, 247), 64
"""The width and height of a test image, and how many of its preprocessed values a manifest has."""
IMAGE_TOLERANCE = 1e-4
SOUND_TOLERANCE = 1e-3
"""The largest difference between equal sounds after preprocessing: rounding changes logarithms of near silence."""


def draw_sound(rate: int, seconds: float) -> Any:
    """Generate two tones that grow and fade, with noise of a fixed seed: float32."""
    import numpy as np

    time = np.arange(int(rate * seconds)) / rate
    tones = np.sin(2 * np.pi * 220 * time) + 0.5 * np.sin(2 * np.pi * 1_730 * time)
    noise = np.random.default_rng(0).normal(scale=0.1, size=time.shape)
    return (0.3 * tones * np.sin(np.pi * time / seconds) + noise).astype(np.float32)


def draw_photographs(is_square: bool = False) -> list[Any]:
    """Generate coloured tiles with noise of a fixed seed. Each filter for scaling gives other pixels."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)

    def draw(height: int, width: int) -> Any:
        tiles = generator.integers(0, 200, (-(-height // 16), -(-width // 16), 3))
        large = tiles.repeat(16, axis=0).repeat(16, axis=1)[:height, :width]
        return Image.fromarray((large + generator.integers(0, 56, large.shape)).astype(np.uint8))

    return [draw(height, height if is_square else width) for height, width in PHOTOGRAPHS]


def read_image(path: Path, preprocessing: Preprocessing, frames: int = 0) -> Any:
    """Read an image as a graph's input (float32, batch 1). Raise InputError if it is not an image.

    With `frames`, the input is a video: this number of images from an animation, at equal distances.
    """
    import numpy as np

    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise missing_extra("PIL", "run", "reading an image") from error
    data = read_given(path, "image", limit=MAX_FILE_BYTES)
    try:
        file, images = Image.open(io.BytesIO(data)), []
        for at in range(frames or 1):
            file.seek((getattr(file, "n_frames", 1) - 1) * at // max(1, frames - 1))
            file.load()
            images.append(ImageOps.exif_transpose(file))
    except Exception as error:  # plug-ins of Pillow raise any error
        hint = "give a whole file of a photograph, such as .jpg or .png"
        raise InputError(f"{path} is not an image that Pillow reads", hint) from error
    if images[0].mode[0] in "IF":
        raise InputError(f"{path} has more than 8 bits for each value", "save it with 8 bits")
    numbers = [image_input(image, preprocessing) for image in images]
    return np.stack(numbers, axis=1) if frames else numbers[0]


def image_input(image: Any, preprocessing: Preprocessing) -> Any:
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
        image = _crop(image, height, width)
    values = np.asarray(image, dtype=np.float32).reshape(height, width, -1) / 255
    values = values[..., ::-1] if preprocessing.color == "BGR" else values
    values = (values - np.asarray(preprocessing.mean)) / np.asarray(preprocessing.std)
    values = values if preprocessing.layout == "NHWC" else values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None], dtype=np.float32)


def _crop(image: Any, height: int, width: int) -> Any:
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def use_own_crop(transform: Any) -> None:
    """Replace the crop in a transform of timm by the crop of `image_input`, which rounds margins down."""
    for step in transform.transforms:
        if type(step).__name__ == "CenterCrop":
            step.forward = lambda image, size=step.size: _crop(image, *size)


def preprocessing_of(
    settings: Mapping[str, Any], photographs: Sequence[tuple[Any, Any]]
) -> Preprocessing | None:
    """Translate the saved settings of an image processor. Return None if they do not reproduce the processor's output.

    `photographs` are pairs of an image and the processor's output (float32, batch 1).
    """
    import numpy as np

    if timm := settings.get("data_config"):
        settings = {"size": {"shortest_edge": timm["input_size"][-1]}, "crop_pct": timm["crop_pct"]}
        settings |= {"do_normalize": True, "image_mean": timm["mean"], "image_std": timm["std"]}
        settings["resample"] = timm["interpolation"]
    _, channels, *size = photographs[0][1].shape
    edge = (settings.get("size") or {}).get("shortest_edge")
    normalizes = settings.get("do_normalize")
    number = settings.get("resample")
    value = {
        "size": size,
        "mean": settings["image_mean"] if normalizes else [0.0] * channels,
        "std": settings["image_std"] if normalizes else [1.0] * channels,
        "color": "L" if channels == 1 else "BGR" if settings.get("do_flip_channel_order") else "RGB",
        "resample": FILTERS[number] if isinstance(number, int) and 0 <= number < len(FILTERS) else number,
    }
    resizes = [None, edge, edge and int(edge / (settings.get("crop_pct") or 1))]
    for resize in dict.fromkeys(resizes):
        try:
            stated = {key: item for key, item in {**value, "resize": resize}.items() if item is not None}
            candidate = Preprocessing.from_json(stated, "preprocessing")
        except InputError:
            continue
        pairs = ((image_input(image, candidate), numbers) for image, numbers in photographs)
        if all(np.allclose(a, b, rtol=0.0, atol=IMAGE_TOLERANCE) for a, b in pairs):
            return Preprocessing.from_json({**stated, "sample": _sample(candidate)}, "preprocessing")
    return None


def _sample(preprocessing: Preprocessing) -> list[float]:
    import numpy as np
    from PIL import Image

    x, y = np.meshgrid(*map(np.arange, DRAWN_SIZE))
    channels = [2 * x + y + 64 * channel + x * y % 50 for channel in range(3)]
    numbers = image_input(Image.fromarray(np.stack(channels, -1).astype(np.uint8)), preprocessing).reshape(-1)
    return [round(float(value), 6) for value in numbers[:: max(1, len(numbers) // SAMPLES)][:SAMPLES]]


def read_sound(path: Path, preprocessing: AudioPreprocessing) -> Any:
    """Read a sound as a graph's input (float32, batch 1), the mean of its channels. Raise InputError if it is unfit."""
    data = read_given(path, "sound", limit=MAX_FILE_BYTES)
    samples, rate = _decode(data, path)
    if rate != preprocessing.sampling_rate:
        message = f"{path} has {rate} samples a second, and the model hears {preprocessing.sampling_rate}"
        hint = f"convert it: ffmpeg -i {path.name} -ar {preprocessing.sampling_rate} -ac 1 out.wav"
        raise InputError(message, hint)
    most = preprocessing.samples
    if most is not None and len(samples) > most:
        seconds = f"{len(samples) / rate:.1f} seconds, and the model hears {most / rate:.0f} at once"
        raise InputError(f"{path} lasts {seconds}", "cut it into parts, at pauses")
    if not len(samples):
        raise InputError(f"{path} has no sound in it", "record it again")
    return sound_input(samples, preprocessing)


def _decode(data: bytes, path: Path) -> tuple[Any, int]:
    """Return the samples of a file, float32 between -1 and 1, and the sampling rate."""
    import numpy as np

    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
        if width > 4:
            raise wave.Error(f"{width} bytes a sample")
    except (wave.Error, EOFError, RuntimeError):  # RuntimeError: a chunk ends after the file
        try:
            import soundfile
        except ImportError as error:
            hint = "install soundfile, or convert it: ffmpeg -i FILE -c:a pcm_s16le out.wav"
            raise InputError(f"{path} is not a WAV file of whole numbers", hint) from error
        try:
            samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
        except Exception as error:
            raise InputError(f"{path} is not sound that soundfile reads: {why(error)}") from error
        return samples.mean(axis=1), int(rate)
    frames = frames[: len(frames) // (width * channels) * width * channels]
    # the bytes of a sample fill the upper end of 32 bits; 8 bits are unsigned
    wide = np.zeros((len(frames) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(frames, np.uint8).reshape(-1, width)
    wide[:, 3] ^= 0x80 if width == 1 else 0
    samples = wide.view("<i4").reshape(-1, channels) / 2.0**31
    return samples.mean(axis=1).astype(np.float32), rate


def wave_file(samples: Any, rate: int) -> bytes:
    """Return the bytes of a `.wav` file with 16 bits for each sample (float32 from -1 to 1)."""
    import numpy as np

    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, rate, 0, "NONE", ""))
        sound.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


def sound_input(samples: Any, preprocessing: AudioPreprocessing) -> Any:
    """Turn samples (float32, one axis) into a graph's input: pad or cut them, normalize them, make a spectrogram."""
    import numpy as np

    most = preprocessing.samples
    if most is not None:
        samples = np.pad(samples[:most], (0, max(0, most - len(samples))))
    if preprocessing.normalize:
        samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
    if preprocessing.mels is not None:
        samples = _log_mel(samples, preprocessing)
    return np.ascontiguousarray(samples[None], dtype=np.float32)


def _log_mel(samples: Any, preprocessing: AudioPreprocessing) -> Any:
    """Compute Whisper's log-mel spectrogram: Hann windows, Slaney's mel bands, logarithms up to 8 below the largest."""
    import numpy as np

    size, hop, rate = preprocessing.window or 0, preprocessing.hop or 1, preprocessing.sampling_rate
    padded = np.pad(samples.astype(np.float64), size // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop][:-1]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    power = np.abs(np.fft.rfft(windows * hann, axis=1)) ** 2

    # mels are linear up to 1 kHz (15 mels), then 27 for each factor of 6.4
    top = 15 + 27 * np.log(8) / np.log(6.4)
    mels = np.linspace(0, top, (preprocessing.mels or 0) + 2)
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
    bins, widths = np.linspace(0, rate // 2, power.shape[1]), np.diff(edges)
    ramps = edges[:, None] - bins
    triangles = np.minimum(-ramps[:-2] / widths[:-1, None], ramps[2:] / widths[1:, None]).clip(0)
    triangles *= (2 / (edges[2:] - edges[:-2]))[:, None]
    logs = np.log10(np.maximum(triangles @ power.T, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def audio_of(settings: Mapping[str, Any], sounds: Sequence[tuple[Any, Any]]) -> AudioPreprocessing | None:
    """Translate the saved settings of a feature extractor. Return None if they do not reproduce its output.

    `sounds` are pairs of a sound's samples and the extractor's output (float32, batch 1).
    """
    import numpy as np

    rate, seconds = settings.get("sampling_rate"), settings.get("chunk_length")
    value = {"sampling_rate": rate, "normalize": bool(settings.get("do_normalize"))}
    if "n_fft" in settings and isinstance(rate, int) and isinstance(seconds, int):
        value |= {"samples": rate * seconds, "mels": settings.get("feature_size")}
        value |= {"window": settings["n_fft"], "hop": settings.get("hop_length")}
    try:
        candidate = AudioPreprocessing.from_json(value, "audio_preprocessing")
    except InputError:
        return None
    pairs = [(sound_input(samples, candidate), numbers) for samples, numbers in sounds]
    is_same = all(a.shape == b.shape and np.allclose(a, b, rtol=0.0, atol=SOUND_TOLERANCE) for a, b in pairs)
    return candidate if is_same else None
