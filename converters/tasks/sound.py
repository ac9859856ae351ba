"""Turn a sound into the input of a graph, as the manifest's key `audio_preprocessing` says (docs/format.md)."""

import io
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, why
from onnxreg.schema.core.files import read_given
from onnxreg.schema.manifest.parts import AudioPreprocessing

MAX_SOUND_BYTES = 256 * 2**20
CLOSE = 1e-3
"""Largest difference between equal preprocessings: rounding changes the logarithms of near silence."""
WIDEST = 4
"""The most bytes per sample in a WAV file that is read without the library soundfile."""


def read_sound(path: Path, preprocessing: AudioPreprocessing) -> Any:
    """Read a sound file as a graph's input (float32, batch 1); several channels become their mean.

    Raises InputError if the file is not sound, is empty, has another sampling rate or is longer than the model's input;
    NotFoundError if there is no file.
    """
    data = read_given(path, "sound", limit=MAX_SOUND_BYTES)
    samples, rate = _decode(data, path)
    if rate != preprocessing.sampling_rate:
        raise InputError(
            f"{path} has {rate} samples a second, and the model hears {preprocessing.sampling_rate}",
            f"convert it: ffmpeg -i {path.name} -ar {preprocessing.sampling_rate} -ac 1 out.wav",
        )
    most = preprocessing.samples
    if most is not None and len(samples) > most:
        seconds = f"{len(samples) / rate:.1f} seconds, and the model hears {most / rate:.0f} at once"
        raise InputError(f"{path} lasts {seconds}", "cut it into parts, at pauses")
    if not len(samples):
        raise InputError(f"{path} has no sound in it", "record it again")
    return to_numbers(samples, preprocessing)


def _decode(data: bytes, path: Path) -> tuple[Any, int]:
    """Return the samples of a file, float32 between -1 and 1, and the sampling rate."""
    import numpy as np

    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = file.readframes(file.getnframes())
        if width > WIDEST:
            raise wave.Error(f"{width} bytes a sample")
    except (wave.Error, EOFError, RuntimeError):  # RuntimeError for a chunk that ends behind the file
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


def to_numbers(samples: Any, preprocessing: AudioPreprocessing) -> Any:
    """Turn samples (float32, one axis) into a graph's input: pad or cut, normalize, and for `log-mel` make a spectrogram."""
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
    """Compute Whisper's spectrogram: Hann windows, power, Slaney's triangles up to 8 kHz, log10, eight decades, scaled."""
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
    """Translate the settings of a feature extractor into `audio_preprocessing`; None if that gives other numbers.

    Args:
        settings: the extractor's settings, as transformers saves them.
        sounds: samples, each with the extractor's numbers for it (float32, batch 1).
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
    pairs = [(to_numbers(samples, candidate), numbers) for samples, numbers in sounds]
    is_same = all(a.shape == b.shape and np.allclose(a, b, rtol=0.0, atol=CLOSE) for a, b in pairs)
    return candidate if is_same else None
