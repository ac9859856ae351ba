"""ONNX Runtime itself on a model package, through its C API: `python load_package.py DIRECTORY` prints what it found.

The Python package has no binding for it. The table of functions is append-only, so the places below hold from API version
31 on: `onnxruntime_c_api.h`, where `GetModelPackageApi` gives a table of its own.
"""

import ctypes
import json
import sys
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import onnxruntime

API_VERSION = 31
GET_ERROR_MESSAGE, CREATE_ENV, CREATE_SESSION_OPTIONS, SESSION_INPUTS, SESSION_OUTPUTS = 2, 3, 10, 30, 31
MODEL_PACKAGES = 427
OPTIONS, OPEN, SCHEMA, COMPONENTS, VARIANTS, EP = 0, 2, 4, 6, 8, 9
RESOLVE, SELECT, SELECTED, FOLDER, SESSION = 10, 11, 13, 14, 15


class Base(ctypes.Structure):
    _fields_ = [("get_api", ctypes.CFUNCTYPE(c_void_p, c_uint32)), ("version", ctypes.CFUNCTYPE(c_char_p))]


def library() -> Path | None:
    """The runtime's shared library, where this release has model packages in its C API."""
    found = list(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.1.*"))
    return found[0] if found and int(found[0].name.split(".")[3]) >= API_VERSION else None


class Table:
    """A table of functions; those that return a status raise its message."""

    def __init__(self, address: int, errors: "Table | None" = None) -> None:
        self._at = ctypes.cast(address, POINTER(c_void_p))
        self._errors = errors or self

    def function(self, index: int, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(self._at[index])

    def call(self, index: int, *arguments: Any) -> None:
        status = self.function(index, c_void_p, *map(type, arguments))(*arguments)
        if status:
            message = self._errors.function(GET_ERROR_MESSAGE, c_char_p, c_void_p)(status)
            raise SystemExit(message.decode())


class Runtime:
    def __init__(self, path: Path) -> None:
        base = ctypes.CDLL(str(path)).OrtGetApiBase
        base.restype = POINTER(Base)
        self.api = Table(base().contents.get_api(API_VERSION))
        self.packages = Table(self.api.function(MODEL_PACKAGES, c_void_p)(), self.api)
        self.env, self.session_options, self.options = c_void_p(), c_void_p(), c_void_p()
        self.api.call(CREATE_ENV, c_int64(3), c_char_p(b"test"), out(self.env))
        self.api.call(CREATE_SESSION_OPTIONS, out(self.session_options))
        self.packages.call(OPTIONS, self.env, self.session_options, out(self.options))

    def names(self, index: int, *arguments: Any) -> list[str]:
        names, count = POINTER(c_char_p)(), c_size_t()
        self.packages.call(index, *arguments, out(names), out(count))
        return [names[place].decode() for place in range(count.value)]

    def text(self, index: int, *arguments: Any) -> str:
        found = c_char_p()
        self.packages.call(index, *arguments, out(found))
        return (found.value or b"").decode()

    def count(self, index: int, session: c_void_p) -> int:
        found = c_size_t()
        self.api.call(index, session, out(found))
        return found.value


def out(value: Any) -> c_void_p:
    return ctypes.cast(byref(value), c_void_p)


def load(runtime: Runtime, directory: str, references: Sequence[str]) -> dict[str, Any]:
    package, schema = c_void_p(), c_int64()
    runtime.packages.call(OPEN, c_char_p(directory.encode()), out(package))
    runtime.packages.call(SCHEMA, package, out(schema))
    components = {}
    for name in runtime.names(COMPONENTS, package):
        key = c_char_p(name.encode())
        variants = {
            variant: runtime.text(EP, package, key, c_char_p(variant.encode()))
            for variant in runtime.names(VARIANTS, package, key)
        }
        chosen, session = c_void_p(), c_void_p()
        runtime.packages.call(SELECT, package, key, runtime.options, out(chosen))
        runtime.packages.call(SESSION, runtime.env, chosen, c_void_p(), out(session))
        components[name] = {
            "variants": variants,
            "selected": runtime.text(SELECTED, chosen),
            "folder": runtime.text(FOLDER, chosen),
            "inputs": runtime.count(SESSION_INPUTS, session),
            "outputs": runtime.count(SESSION_OUTPUTS, session),
        }
    must_exist = ctypes.c_int(1)
    resolved = {
        reference: runtime.text(RESOLVE, package, c_char_p(), c_char_p(reference.encode()), must_exist)
        for reference in references
    }
    return {"schema": schema.value, "components": components, "resolved": resolved}


if __name__ == "__main__":
    path = library()
    if path is None:
        raise SystemExit("this onnxruntime has no model packages")
    print(json.dumps(load(Runtime(path), sys.argv[1], sys.argv[2:])))
