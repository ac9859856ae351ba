"""The flatbuffer bindings that onnxruntime ships, without the rest of its tools."""

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

NAME = "ort_flatbuffers_py"


def register_bindings() -> None:
    """Make `ort_flatbuffers_py` importable without `onnxruntime.tools`, which imports torch if it is
    installed.

    Raises ImportError if onnxruntime is not installed or ships no bindings.
    """
    if NAME in sys.modules:
        return
    runtime = find_spec("onnxruntime")
    if runtime is None or not runtime.submodule_search_locations:
        raise ImportError("onnxruntime is not installed", name="onnxruntime")
    folder = Path(runtime.submodule_search_locations[0]) / "tools/ort_format_model" / NAME
    spec = spec_from_file_location(NAME, folder / "__init__.py", submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise ImportError("onnxruntime ships no flatbuffer bindings", name="onnxruntime")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
