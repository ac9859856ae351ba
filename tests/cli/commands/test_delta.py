"""`reg delta`, and the deltas that push and publication make."""

import json
from pathlib import Path

import onnx
import pytest
from support.registries import retrained
from support.servers import s3servers

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.log.contents import Selection

NAME = "acme/pii"
Run = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two versions without deltas; the registry of every command."""
    registry = Registry(tmp_path / "home")
    for step in range(2):
        registry.add(retrained.draft(tmp_path / f"draft{step}", step))
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    return tmp_path


def document(capsys: Run, *words: str) -> dict[str, object]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    value: dict[str, object] = json.loads(capsys.readouterr().out)
    return value


def test_made_and_listed(home: Path, capsys: Run) -> None:
    report = document(capsys, "delta", "make", NAME)
    assert (report["ref"], report["made"]) == (f"{NAME}:0.1.1", 3)
    listed = document(capsys, "delta", "ls", NAME)
    assert listed["deltas"] == report["deltas"]
    paths = {(row["path"], row["from"]) for row in listed["deltas"]}  # type: ignore[attr-defined]
    assert paths == {
        ("model.onnx", "0.1.0"),
        ("mobile.onnx", "0.1.0"),
        ("model_int8.onnx", "0.1.0"),
    }
    assert report["unlike"] == []
    assert document(capsys, "delta", "make", NAME)["made"] == 0


def test_the_tables_for_people(home: Path, capsys: Run) -> None:
    assert main(["delta", "ls", NAME]) == 0
    assert f"{NAME}:0.1.1 offers no deltas; `reg delta make {NAME}` makes some" in capsys.readouterr().out
    assert main(["delta", "make", NAME, "--from", "0.1.0"]) == 0
    assert "model_int8.onnx" in capsys.readouterr().out
    assert main(["log", NAME]) == 0
    assert "deltas   0.1.1 (deltas: 3)" in capsys.readouterr().out


def test_an_old_version_that_is_here_in_part(home: Path, capsys: Run, tmp_path: Path) -> None:
    """Only the files that are here are old files, also small ones."""
    (tmp_path / "part").mkdir()
    Registry(tmp_path / "part").pull(
        f"{NAME}:0.1.0", str(home / "home"), selection=Selection(formats=("onnx-int8",))
    )
    Registry(tmp_path / "part").pull(f"{NAME}:0.1.1", str(home / "home"))
    report = document(capsys, "--registry", str(tmp_path / "part"), "delta", "make", NAME)
    paths = {(row["path"], row["from"]) for row in report["deltas"]}  # type: ignore[attr-defined]
    assert paths == {("model_int8.onnx", "0.1.0")}


def test_a_file_that_was_small(tmp_path: Path, capsys: Run) -> None:
    """The old file is smaller than any file that is worth a delta."""
    registry = Registry(tmp_path / "home")
    for step, size in enumerate((60_000, 70_000)):
        draft = retrained.draft(tmp_path / f"draft{step}", step)
        (draft.root / "config.json").write_text(f'"{"x" * size}"')
        registry.add(draft)
    report = document(capsys, "--registry", str(tmp_path / "home"), "delta", "make", NAME)
    assert "config.json" in [row["path"] for row in report["deltas"]]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("reader_in_process")
def test_external_data_of_a_small_model_file(tmp_path: Path, capsys: Run) -> None:
    """The model file is smaller than any file that is worth a delta; it says where the tensors are."""
    for step in range(2):
        (tmp_path / str(step)).mkdir()
        path = tmp_path / str(step) / "m.onnx"
        onnx.save(retrained.model(step), path, save_as_external_data=True, location="m.data")
        assert main(["add", str(path), str(path.with_name("m.data")), "--name", "acme/data"]) == 0
    (row,) = document(capsys, "delta", "make", "acme/data")["deltas"]  # type: ignore[misc, attr-defined]
    assert (row["path"], row["from"]) == ("m.data", "0.1.0") and row["size"] < 0.5 * row["of"]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("delta", "make", "acme/none"), 3, "acme/none"),
        (("delta", "make", NAME, "--from", "9.9.9"), 3, "no files of 9.9.9"),
        (("delta", "make", NAME, "--from", "x"), 2, "x"),
        (("delta", "ls", "acme/none"), 3, "acme/none"),
    ],
)
def test_mistakes(
    home: Path,
    capsys: Run,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    monkeypatch.chdir(home)
    assert main([*words]) == status
    assert message in capsys.readouterr().err


def test_a_push_makes_them_at_the_remote(home: Path, capsys: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert main(["push", NAME, "--all", "--remote", "./there"]) == 0
    assert main(["push", NAME, "./there", "--deltas"]) == 0
    assert "offers 3 deltas" in capsys.readouterr().out
    listed = document(capsys, "delta", "ls", NAME, "--remote", "./there")
    assert len(listed["deltas"]) == 3  # type: ignore[arg-type]
    assert document(capsys, "delta", "ls", NAME)["deltas"] == []


def test_a_push_into_a_bucket_makes_them_there(
    home: Path, capsys: Run, ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ministack.enter(monkeypatch)
    bucket_url = ministack.fresh()
    assert main(["push", NAME, "--all", "--remote", bucket_url, "--deltas"]) == 0
    listed = document(capsys, "delta", "ls", f"{NAME}:0.1.1", "--remote", bucket_url)
    assert len(listed["deltas"]) == 3  # type: ignore[arg-type]
    assert main(["verify", "--remote", bucket_url]) == 0


def test_du_and_archives_know_them(home: Path, capsys: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    before = document(capsys, "du")
    assert main(["delta", "make", NAME]) == 0
    after = document(capsys, "du")
    assert str(before) != str(after)
    assert main(["archive", "create", "all.zip", NAME]) == 0
    assert main(["archive", "verify", "all.zip"]) == 0
    capsys.readouterr()
    assert main(["gc", "--json"]) == 0
    assert main(["verify"]) == 0


def test_resolve_names_the_deltas_of_its_answer(home: Path, capsys: Run) -> None:
    assert "deltas" not in document(capsys, "resolve", NAME)
    assert main(["delta", "make", NAME]) == 0
    answer = document(capsys, "resolve", NAME, "--precision", "int8")
    (delta,) = answer["deltas"]  # type: ignore[misc, attr-defined]
    assert delta["new"] == answer["artifact"]["digest"]  # type: ignore[index]
    assert delta["from"] == "0.1.0" and delta["url"].endswith(delta["delta"][7:])
