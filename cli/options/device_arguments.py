"""Devices on the command line: the name of a preset, or a file that holds one device or an array of them."""

from pathlib import Path
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.query.device import Device, preset

FILE = "operators_file"
"""In a file, instead of `operators`: the path of the operator config, from the file's own directory."""


def read_device(word: str) -> Device:
    """One device. InputError if it is not exactly one; NotFoundError if there is no such file."""
    devices = read_devices(word)
    if len(devices) != 1:
        raise InputError(f"{word} holds {len(devices)} devices", "name a file that holds one")
    return devices[0]


def read_devices(word: str) -> list[Device]:
    """The devices that a word means. InputError, naming the file and the device, if one cannot be read;
    NotFoundError if there is no such file."""
    path = Path(word)
    if not path.is_file():
        if path.suffix == ".json" or "/" in word:
            raise NotFoundError(
                f"there is no device file {word}",
                "check the path; `reg devices` lists presets that need none",
            )
        return [preset(word)]
    document = canonical.decode(path.read_bytes(), word)
    if not isinstance(document, list):
        return [_device(document, path, path.stem, word)]
    return [
        _device(item, path, f"{path.stem}[{index}]", f"{word}[{index}]")
        for index, item in enumerate(document)
    ]


def _device(value: Any, path: Path, name: str, where: str) -> Device:
    """A device without a name is called after its file."""
    try:
        if isinstance(value, dict):
            value = {"name": name} | value
            if FILE in value:
                value["operators"] = _operators(value.pop(FILE), path)
        return Device.read(value)
    except InputError as error:
        raise InputError(f"{where}: {error.message}", error.advice) from error


def _operators(file: Any, path: Path) -> str:
    if not isinstance(file, str):
        raise InputError(f"{FILE} is not a path")
    try:
        return (path.parent / file).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{FILE}: {file} cannot be read", "the path starts at the device file") from error
