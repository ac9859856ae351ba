"""What counts as a path of a machine, and what takes its place."""

import json
from pathlib import Path

import pytest

from onnxreg.converters.source.source_files import is_absolute_path, scrub, scrub_file

PATHS = (
    "/home/jane/model", "/tmp/x/", "/Users/jane doe/my model", "~/models/a", "~jane/models/a", "C:\\Users\\jane", "d:/models/a",
    "\\\\server\\share\\model", "file:///home/jane/model",
)  # fmt: skip
OTHERS = (
    "", "/", "//", "/x", "acme/pii", "a/b/c", "</s>", "https://hub.example/acme/pii", "B-DATE/TIME", "~", "C:", "model.onnx",
)  # fmt: skip


@pytest.mark.parametrize("text", [*PATHS, *OTHERS])
def test_paths(text: str) -> None:
    assert is_absolute_path(text) is (text in PATHS)


def test_identity_becomes_the_name_and_others_keep_their_last_part_and_no_key_is_lost() -> None:
    nested = [{"tokenizer_file": "C:\\work\\tokenizer.json"}, 3, None]
    value = {"_name_or_path": "/home/jane/model", "nested": nested, "kept": "acme/pii"}
    value["paths"] = {"/home/jane/a": 1, "/home/joe/a": "/home/joe/b", "a": 2}
    result, changed = scrub(value, "acme/pii")
    assert result == {
        "_name_or_path": "acme/pii",
        "nested": [{"tokenizer_file": "tokenizer.json"}, 3, None],
        "kept": "acme/pii",
        "paths": {"a_": 1, "a__": "b", "a": 2},
    }
    assert changed == ["_name_or_path", "nested.0.tokenizer_file", "paths.a_", "paths.a__"]


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
    changed = ["note"] * (text != expected)
    assert scrub({"note": text}, "acme/a", Path("/work/site")) == ({"note": expected}, changed)


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


def test_tokens_and_labels_are_kept(tmp_path: Path) -> None:
    path = "/home/jane/a"
    value = {"added_tokens_decoder": {"3": {"content": path}}, "label2id": {path: 0}, "id2label": {"0": path}}
    assert scrub(value, "acme/a") == (value, [])
    for name in ("tokenizer.json", "vocab.json", "id2label.json", "added_tokens.json"):
        (tmp_path / name).write_text(json.dumps({"0": "/usr/bin/python"}))
        assert scrub_file(tmp_path / name, "a") is None


def test_a_file_without_paths_is_left_and_text_survives_whatever_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"a":   1}')
    assert scrub_file(path, "a") is None
    value = {"a": "\ud83d \u00e9", "b": 10**30, "c": 1e-12}
    path.write_text(json.dumps(value | {"name_or_path": "/home/jane/model"}))
    scrubbed = scrub_file(path, "acme/a")
    assert scrubbed is not None
    assert json.loads(scrubbed[0]) == value | {"name_or_path": "acme/a"}
    assert scrubbed[1] == ["name_or_path"]
