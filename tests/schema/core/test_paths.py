"""Paths that a manifest may not hold, because some file system would put them elsewhere."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.processor import no_quadratic_time

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_distinct, check_path

HOSTILE: dict[str, str | Callable[[], str]] = {
    "empty": "",
    "dot": ".",
    "dot dot": "..",
    "climbing": "../x",
    "climbing inside": "a/../../x",
    "climbing at the end": "a/..",
    "dot inside": "a/./b",
    "absolute": "/etc/passwd",
    "two slashes": "a//b",
    "slash at the end": "a/",
    "network path": "//server/share",
    "backslash": "a\\b",
    "windows climbing": "..\\x",
    "windows network path": "\\\\server\\share",
    "drive": "C:/x",
    "drive relative": "C:x",
    "stream": "model.onnx:hidden",
    "long path prefix": "\\\\?\\C:\\x",
    "nul": "a\x00b",
    "newline": "a\nb",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7f",
    "C1 control": "a\x85b",
    "tab": "a\tb",
    "wildcard": "*.onnx",
    "question": "a?",
    "quote": 'a"b',
    "pipe": "a|b",
    "less": "a<b",
    "device": "nul",
    "device upper": "CON",
    "device with extension": "aux.txt",
    "device with two extensions": "com1.tar.gz",
    "device with blank": "prn .txt",
    "device as directory": "lpt9/x",
    "device superscript": "com¹",
    "console": "CONOUT$",
    "dot at the end": "model.",
    "dot at the end of a directory": "a./b",
    "blank at the end": "model ",
    "blank in front": " model",
    "no-break space at the end": "model\u00a0",
    "short name": "OPENME~1.JSO",
    "short name of a directory": "progra~12/x",
    "zero width": "open\u200cmed-onnx.json",
    "right to left": "model\u202exnno.exe",
    "byte order mark": "\ufeffmodel.onnx",
    "line separator": "a\u2028b",
    "lone surrogate": "a\ud800",
    "long": "a/" * 600 + "b",
    "long part": "a" * 256,
    "long part in bytes": "é" * 128,
    "deep": "/".join("a" * 33),
    "100 MB": lambda: "a" * 100_000_000,
}

FINE = [
    *("model.onnx", "a/b/c.txt", "..x", "x..y", ".gitattributes", "com10", "console", "auxiliary/nullable"),
    *("model.required_operators_and_types.config", "onnx/model_q4f16.onnx", "модель.onnx", "é" * 127),
    *("a b", "~backup~", "model~1.onnx.data", "/".join("a" * 32), "LICENSE", "a" * 255),
]


@pytest.mark.parametrize("path", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_path_is_refused(path):
    with pytest.raises(InputError, match="path") as caught:
        check_path(path() if callable(path) else path)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("path", FINE)
def test_ordinary_path_is_kept(path):
    assert check_path(path) == path


@given(st.text(st.characters() | st.sampled_from("./\\: ~con"), max_size=30))
def test_an_accepted_path_stays_below_its_root(path):
    try:
        check_path(path)
    except InputError:
        return
    posix, windows = PurePosixPath(path), PureWindowsPath(path)
    assert not posix.is_absolute()
    assert not windows.is_absolute()
    assert not windows.drive
    assert ".." not in posix.parts + windows.parts
    assert posix.parts == windows.parts
    assert str(posix) == path
    assert (Path("/root") / path).resolve().is_relative_to("/root")


COLLISIONS = {
    "same": ["a", "a"],
    "case": ["Model.onnx", "model.onnx"],
    "case of a directory": ["Onnx/a", "onnx/A"],
    "composed and decomposed": ["caf\u00e9.json", "cafe\u0301.json"],
    "sharp s": ["stra\u00dfe", "STRASSE"],
    "ligature": ["\ufb01le", "file"],
    "Kelvin": ["\u212a", "k"],
    "Angstrom": ["\u212b", "\u00e5"],
    "final sigma": ["ΟΔΟΣ", "οδος"],
    "iota subscript": ["\u0345\u0301", "\u0301\u03b9"],
    "file and directory": ["a", "a/b"],
    "file and directory, case": ["a/b/c", "A/B"],
    "file and directory, others between": ["a", "a-b", "a.b", "a0", "a/z"],
    "file and deep directory": ["a/b", "a/b/c/d"],
    "manifest": ["openmed-onnx.json", "OpenMed-ONNX.json"],
    "manifest as directory": ["openmed-onnx.json", "openmed-onnx.json/x"],
}


@pytest.mark.parametrize("paths", COLLISIONS.values(), ids=COLLISIONS.keys())
def test_collision(paths):
    for order in (paths, paths[::-1]):
        with pytest.raises(InputError, match=r"collide|both a file and a directory|two files are called"):
            check_distinct(order)


def test_distinct_paths():
    check_distinct(["a", "b", "a.b", "a-b", "ab/a", "ab/b", "ac", "a b", "ab-/a"])


SMALL = st.lists(
    st.lists(st.sampled_from(["a", "A", "b", "a-", "a."]), min_size=1, max_size=3).map("/".join), max_size=5
)


@given(SMALL)
def test_collisions_are_those_of_the_definition(paths):
    folded = [tuple(path.lower().split("/")) for path in paths]
    prefixes = {path[:n] for path in folded for n in range(1, len(path))}
    collide = len(set(folded)) < len(folded) or not prefixes.isdisjoint(folded)
    try:
        check_distinct(paths)
    except InputError:
        assert collide
    else:
        assert not collide


def test_many_deep_paths_take_no_quadratic_time():
    paths = [f"{i:07d}/" + "a/" * 30 + "x" for i in range(20_000)]
    with no_quadratic_time():
        check_distinct(paths)
