"""Run graphs in one release of ONNX Runtime, and print what it says: `python probe.py DIRECTORY [SUFFIX]`.

Reads `NAME.onnx`, or with another suffix, and `NAME.npz` (its feeds) from the directory. Needs nothing but onnxruntime and numpy.
"""

import json
import sys
from pathlib import Path

import numpy
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as state


def run(path):
    """The first output of a graph as a list; a text with the error if it does not load or run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feeds = dict(numpy.load(path.with_suffix(".npz")))
        return numpy.asarray(session.run(None, feeds)[0], numpy.float64).flatten().tolist()
    except Exception as error:  # noqa: BLE001
        return str(error)


def operators():
    """The operators of the CPU by domain and name: attributes, most inputs, element types. None: it does not say."""
    if not hasattr(state, "get_all_operator_schema"):
        return None
    listed = {}
    for schema in state.get_all_operator_schema():
        entry = listed.setdefault(f"{schema.domain}:{schema.name}", {"attributes": set(), "inputs": 0})
        entry["attributes"] |= set(schema.attributes)
        entry["inputs"] = max(entry["inputs"], schema.max_input)
    types = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            names = {name for group in kernel.type_constraints.values() for name in group}
            types.setdefault(f"{kernel.domain}:{kernel.op_name}", set()).update(names)
    return {
        name: {
            "attributes": sorted(listed[name]["attributes"]),
            "inputs": listed[name]["inputs"],
            "types": sorted(types[name]),
        }
        for name in sorted(types.keys() & listed.keys())
    }


if __name__ == "__main__":
    suffix = sys.argv[2] if len(sys.argv) > 2 else ".onnx"
    runs = {path.stem: run(path) for path in sorted(Path(sys.argv[1]).glob(f"*{suffix}"))}
    print(json.dumps({"release": onnxruntime.__version__, "runs": runs, "operators": operators()}))
