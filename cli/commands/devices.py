"""`reg devices`: the devices that have a name."""

from typing import Any

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.query.device import Preset, presets
from onnxreg.schema.query.runtimes import OLDEST_FORMAT

EXAMPLES = ("reg devices", "reg devices --json")


def command(session: Session, as_json: Json = False) -> None:
    """List the presets for --device: stock releases of ONNX Runtime and what they load.

    With --json: {devices: [{name, ort, opset, ir_version, ort_formats, platform, providers, source}]}; opset and
    ir_version are the newest that load, ort_formats the oldest and newest.
    """
    devices = presets().values()
    if as_json:
        output.write_json({"devices": [_json(preset) for preset in devices]})
        return
    session.table(
        ("DEVICE", "OPSET", "IR", "ORT FORMAT", "PROVIDERS"),
        [
            (
                preset.device.name,
                preset.device.runtime.opset,
                preset.device.runtime.ir,
                f"{OLDEST_FORMAT}-{preset.device.runtime.ort_format}",
                ", ".join(preset.device.providers),
            )
            for preset in devices
        ],
    )


def _json(preset: Preset) -> dict[str, Any]:
    device, loads = preset.device, preset.device.runtime
    return {
        "name": device.name,
        "ort": device.ort,
        "opset": loads.opset,
        "ir_version": loads.ir,
        "ort_formats": [OLDEST_FORMAT, loads.ort_format],
        "platform": device.platform,
        "providers": list(device.providers),
        "source": preset.source,
    }
