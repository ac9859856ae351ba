"""Files of sound that are malformed, or that a model cannot hear."""

import struct
from pathlib import Path

import pytest

from onnxreg.converters.tasks.preprocessing import read_sound
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import AudioPreprocessing

HEARD = AudioPreprocessing.from_json({"sampling_rate": 16_000, "samples": 8_000})
SAMPLES = bytes(range(16)) * 6


def riff(
    channels: int = 1, bits: int = 16, rate: int = 16_000, data: bytes = SAMPLES, more: bytes = b""
) -> bytes:
    """A .wav file with any header; `more` is a chunk before the samples."""
    width = channels * bits // 8
    head = struct.pack("<HHIIHH", 1, channels, rate, rate * width, width, bits)
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + more
    body += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        riff(channels=0),
        riff(bits=40),
        riff(bits=64),
        riff(more=b"junk\xff\xff\xff\x7f"),
        riff()[:30],
        riff(data=b""),
        riff(data=SAMPLES * 200),
        riff(rate=8_000),
    ],
    ids=["channels", "40 bits", "64 bits", "far chunk", "cut", "silent", "long", "rate"],
)
def test_a_malformed_sound_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(InputError):
        read_sound(tmp_path / "a.wav", HEARD)


@pytest.mark.parametrize(("bits", "count"), [(8, 96), (16, 48), (24, 32), (32, 24)])
def test_samples_of_all_widths_lie_between_minus_one_and_one(tmp_path: Path, bits: int, count: int) -> None:
    (tmp_path / "a.wav").write_bytes(riff(bits=bits))
    numbers = read_sound(tmp_path / "a.wav", HEARD)
    assert numbers.shape == (1, 8_000) and abs(numbers).max() <= 1
    assert numbers[0, :count].any() and not numbers[0, count:].any()
