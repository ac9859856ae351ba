"""Reading recipe files: YAML that is safe, and nothing that stands twice."""

from pathlib import Path

import pytest
from support.processor import no_quadratic_time

from onnxreg.converters.engine.read_recipe import read_document, read_recipe
from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.files import read_yaml

RECIPE = "task: onnx\nsteps:\n  - {name: int8, pass: OnnxDynamicQuantization}\n"


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE)
    (tmp_path / "a.json").write_text(
        '{"task": "onnx", "steps": [{"name": "int8", "pass": "OnnxDynamicQuantization"}]}'
    )
    assert read_recipe(tmp_path / "a.yaml") == read_recipe(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "twice": (RECIPE + "task: onnx\n", "the key 'task' occurs twice"),
        "twice, where": ("a: 1\nb: 2\na: 3\n", r"a\.yaml, line 3, column 1, is .*: the key 'a' occurs twice"),
        "twice, and false": ("0: a\n0: b\n", "line 2, column 1, is .*: the key 0 occurs twice"),
        "twice, and empty": ('"": a\n"": b\n', "the key '' occurs twice"),
        "twice, and null": ("null: a\n~: b\n", "the key None occurs twice"),
        "list as a key": ("[a]: b\n", "neither YAML nor JSON: found unhashable key"),
        "bool": ("a: !!bool foo\n", "neither YAML nor JSON"),
        "int": ('a: !!int ""\n', "neither YAML nor JSON"),
        "float": ('a: !!float ""\n', "neither YAML nor JSON"),
        "large float": (f"a: 1{':00' * 200}.5\n", "neither YAML nor JSON"),
        "timestamp": ("a: !!timestamp foo\n", "neither YAML nor JSON"),
        "date": ("a: 2020-13-45\n", "neither YAML nor JSON"),
        "set": ("a: !!set [1]\n", "expected a mapping node"),
        "escape": (r'a: "\UFFFFFFFF"', "neither YAML nor JSON"),
        "alias": ("a: &x [1]\nb: *x\n", "aliases are not allowed"),
        "code": ("a: !!python/object/apply:os.system [id]\n", "neither YAML nor JSON"),
        "syntax": ("a: [1,\n", "neither YAML nor JSON"),
        "deep": ("[" * 5000, "neither YAML nor JSON"),
        "two documents": ("a: 1\n---\nb: 2\n", "neither YAML nor JSON"),
    }.values(),
)
def test_unsafe_documents_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError, match=said):
        read_document(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "task: onnx\nversion: 1.0\nsteps: [{name: a, pass: b}]\n",
            "is not valid at version: there is",
        ),
        (
            "task: onnx\nsteps:\n  - {name: a, pass: b}\n  - {name: c}\n",
            r"is not valid at steps.1.pass",
        ),
        (
            "task: 1\nsteps: [{name: a, pass: b}]\n",
            "is not valid at task: it must be a valid string: write it in quotes",
        ),
        ("task: onnx\n", "is not valid at steps: it is missing"),
    ],
)
def test_invalid_recipes_are_refused_by_their_key(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"^a\.yaml .*{told}"):
        read_recipe(tmp_path / "a.yaml")


def test_many_keys_take_no_quadratic_time() -> None:
    text = "".join(f"key{number}: 1\n" for number in range(30_000))
    with no_quadratic_time():
        assert len(read_yaml(text, "a.yaml", "export")) == 30_000


def test_broken_yaml_is_told_with_its_line_and_what_to_look_for(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("task: onnx\nsteps:\n\t- {name: a}\n")
    with pytest.raises(
        InputError, match=r"^a\.yaml, line 3, column 1, is neither YAML nor JSON: found"
    ) as caught:
        read_recipe(tmp_path / "a.yaml")
    assert "tabs" in caught.value.hint


@pytest.mark.parametrize("claim", ["profile: android", "profile_version: 2", "translation: []"])
def test_no_file_says_what_the_program_alone_says(tmp_path: Path, claim: str) -> None:
    (tmp_path / "a.yaml").write_text(f"{RECIPE}{claim}\n")
    with pytest.raises(InputError, match=rf"a\.yaml: {claim.partition(':')[0]} is a reserved key"):
        read_recipe(tmp_path / "a.yaml")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"a\.yaml"):
        read_recipe(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not text"):
        read_recipe(tmp_path / "b.yaml")
    (tmp_path / "c.yaml").write_bytes(b" " * (MAX_TEXT_BYTES + 1))
    with pytest.raises(InputError, match=r"c\.yaml"):
        read_recipe(tmp_path / "c.yaml")
