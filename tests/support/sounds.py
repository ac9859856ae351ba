"""Files of sound."""

import wave
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def write_sound(path: Path, rate: int = 16_000, seconds: float = 1.0) -> Any:
    """Write a rising tone as a .wav of 16 bits; return its samples."""
    time = np.arange(int(rate * seconds)) / rate
    values = (12_000 * np.sin(2 * np.pi * (300 * time + 500 * time**2))).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(values.tobytes())
    return (values / 2**15).astype(np.float32)


def logits_of(model: Path, source: Path, sounds: Iterable[Any]) -> list[Any]:
    """What a published file gives for the numbers of transformers' own feature extractor."""
    import onnxruntime
    import transformers

    extractor = transformers.AutoFeatureExtractor.from_pretrained(source)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    rows = (extractor(one, sampling_rate=16_000, return_tensors="np")["input_values"] for one in sounds)
    return [session.run(None, {"input_values": row})[0] for row in rows]
