"""Devices that run a stock release of ONNX Runtime, by names such as `ort-android-1.23`.

All of these packages are full builds: every operator, ONNX and ORT format. What a release loads is in `runtimes`; the
providers of each package are those that its documentation names.
"""

from typing import NamedTuple

from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.runtimes import RELEASES

OLDEST = (1, 16)
"""The oldest release: older packages for phones were minimal builds, and load no ORT format that is made today."""


class RuntimePackage(NamedTuple):
    """A published package of ONNX Runtime for one platform; `absent` are minor numbers that were never published."""

    name: str
    platform: str
    providers: tuple[str, ...]
    source: str
    absent: tuple[int, ...] = ()


PACKAGES = (
    RuntimePackage(
        "ort-android",
        "android",
        ("CPU", "NNAPI", "XNNPACK"),
        "Maven com.microsoft.onnxruntime:onnxruntime-android; "
        "https://onnxruntime.ai/docs/execution-providers/NNAPI-ExecutionProvider.html, Xnnpack-ExecutionProvider.html",
    ),
    RuntimePackage(
        "ort-ios",
        "ios",
        ("CPU", "CoreML", "XNNPACK"),
        "CocoaPods onnxruntime-c and onnxruntime-objc; "
        "https://onnxruntime.ai/docs/execution-providers/CoreML-ExecutionProvider.html, Xnnpack-ExecutionProvider.html",
        absent=(31,),
    ),
    RuntimePackage(
        "ort-web",
        "web",
        ("CPU",),
        "npm onnxruntime-web; https://onnxruntime.ai/docs/get-started/with-javascript/web.html",
        absent=(28, 31),
    ),
    RuntimePackage(
        "ort-webgpu",
        "web",
        ("CPU", "WebGPU"),
        "npm onnxruntime-web, imported as onnxruntime-web/webgpu; "
        "https://onnxruntime.ai/docs/get-started/with-javascript/web.html",
        absent=(28, 31),
    ),
    RuntimePackage(
        "ort-desktop", "desktop", ("CPU",), "PyPI onnxruntime: asked with get_available_providers"
    ),
)


class Preset(NamedTuple):
    device: Device
    source: str


def presets() -> dict[str, Preset]:
    """Every preset by its name, oldest release first within a package."""
    presets_by_name = {}
    for package in PACKAGES:
        for major, minor in sorted(RELEASES):
            if (major, minor) >= OLDEST and minor not in package.absent:
                release = f"{major}.{minor}"
                name = f"{package.name}-{release}"
                device = Device(release, name, providers=package.providers, platform=package.platform)
                presets_by_name[name] = Preset(device, package.source)
    return presets_by_name


def preset(name: str) -> Device:
    """The device of this name. InputError, with the nearest names, if there is none."""
    presets_by_name = presets()
    if name in presets_by_name:
        return presets_by_name[name].device
    hint = suggest(name, presets_by_name, Advice("list-devices"))
    raise InputError(f"there is no device preset {name[:80]!r}", hint)
