"""What counts as a path of a machine, and what takes its place."""

import json
from pathlib import Path

import pytest

from onnxreg.converters.source.source_files import is_absolute_path, scrub, scrub_file


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trained in /home/jane/run7 on 2 gpus", "trained in run7 on 2 gpus"),
        ("--data=/tmp/x/train.json,/Users/jane/dev.json", "--data=train.json,dev.json"),
        ("see file:///root/a/b.txt.", "see b.txt."),
        ("in 'C:\\Users\\jane\\run7' and d:/Users/jane/b", "in 'run7' and b"),
        ("PATH=/usr/bin:/home/jane/bin", "PATH=/usr/bin:bin"),
        ("the home of /home/jane, or C:\\Users\\jane", "the home of ~, or ~"),
        ("two lines:\n/home/jane/a\n", "two lines:\na\n"),
        ("/home/jane", "~"),
        ("at /work/site/models/a", "at a"),
        ("in /work/site", "in site"),
        ("in /work/sites", "in /work/sites"),
    ],
)
def test_paths_in_running_text(text: str, expected: str) -> None:
    assert scrub({"note": text}, "acme/a", Path("/work/site")) == (
        {"note": expected},
        ["note"] * (text != expected),
    )


@pytest.mark.parametrize(
    "text",
    [
        "use </s> and /think or /no_think",
        "either/or, a/b/c, ../tmp/x and ~/models",
        "https://hub.example/home/jane/model and s3://tmp/home/x",
        "{% if a %}/{% endif %}",
        "(?i:\\p{L}+)|C:\\s",
        "/home",
    ],
)
def test_running_text_without_paths(text: str) -> None:
    assert scrub([text], "acme/a") == ([text], [])


def test_places_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/people/jane doe")
    monkeypatch.setattr("tempfile.tempdir", "/scratchy")
    monkeypatch.chdir(tmp_path)
    text = f"from /people/jane doe/a to /scratchy/b in {tmp_path}/c"
    assert scrub(text, "acme/a")[0] == "from a to b in c"


def test_keys_are_scrubbed_and_none_is_lost() -> None:
    value = {"paths": {"/home/jane/a": 1, "/home/joe/a": "/home/joe/b", "a": 2}}
    result, changed = scrub(value, "acme/a")
    assert result == {"paths": {"a_": 1, "a__": "b", "a": 2}}
    assert changed == ["paths.a_", "paths.a__"]


def test_tokens_and_labels_in_a_config_are_kept() -> None:
    tokens = {"3": {"content": "/home/jane/a"}}
    value = {
        "added_tokens_decoder": tokens,
        "label2id": {"/home/jane/a": 0},
        "id2label": {"0": "/home/jane/a"},
    }
    assert scrub(value, "acme/a") == (value, [])


def test_a_file_without_paths_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a":   1}')
    assert scrub_file(path, "a") is None


def test_tokens_are_not_paths(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "vocab.json", "id2label.json", "added_tokens.json"):
        path = tmp_path / name
        path.write_text(json.dumps({"0": "/usr/bin/python"}))
        assert scrub_file(path, "a") is None


def test_text_survives_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    value = {"a": "\ud83d \u00e9", "b": 10**30, "c": 1e-12}
    path.write_text(json.dumps(value | {"name_or_path": "/home/jane/model"}))
    scrubbed = scrub_file(path, "acme/a")
    assert scrubbed is not None
    assert json.loads(scrubbed[0]) == value | {"name_or_path": "acme/a"}
    assert scrubbed[1] == ["name_or_path"]
