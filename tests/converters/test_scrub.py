"""What counts as a path of a machine, and what takes its place."""

import json
from pathlib import Path

import pytest

from onnxreg.converters.scrub import is_absolute_path, scrub, scrub_json


@pytest.mark.parametrize(
    "text",
    [
        "/home/jane/model",
        "/tmp/x/",
        "/Users/jane doe/my model",
        "~/models/a",
        "~jane/models/a",
        "C:\\Users\\jane",
        "d:/models/a",
        "\\\\server\\share\\model",
        "file:///home/jane/model",
    ],
)
def test_paths(text: str) -> None:
    assert is_absolute_path(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "//",
        "/x",
        "acme/pii",
        "a/b/c",
        "</s>",
        "https://hub.example/acme/pii",
        "B-DATE/TIME",
        "~",
        "C:",
        "model.onnx",
    ],
)
def test_no_paths(text: str) -> None:
    assert not is_absolute_path(text)


def test_identity_becomes_the_name_and_others_keep_their_last_part() -> None:
    value = {
        "_name_or_path": "/home/jane/model",
        "nested": [{"tokenizer_file": "C:\\work\\tokenizer.json"}, 3, None],
        "kept": "acme/pii",
    }
    result, changed = scrub(value, "acme/pii")
    assert result == {
        "_name_or_path": "acme/pii",
        "nested": [{"tokenizer_file": "tokenizer.json"}, 3, None],
        "kept": "acme/pii",
    }
    assert changed == ["_name_or_path", "nested.0.tokenizer_file"]


def test_a_file_without_paths_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a":   1}')
    assert scrub_json(path, "a") is None


def test_tokens_are_not_paths(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "vocab.json", "id2label.json"):
        path = tmp_path / name
        path.write_text(json.dumps({"0": "/usr/bin/python"}))
        assert scrub_json(path, "a") is None


def test_text_survives_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    value = {"a": "\ud83d \u00e9", "b": 10**30, "c": 1e-12}
    path.write_text(json.dumps(value | {"name_or_path": "/home/jane/model"}))
    scrubbed = scrub_json(path, "acme/a")
    assert scrubbed is not None
    assert json.loads(scrubbed[0]) == value | {"name_or_path": "acme/a"}
    assert scrubbed[1] == ["name_or_path"]
