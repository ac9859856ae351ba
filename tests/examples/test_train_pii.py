import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import train_pii
import transformers
from pii_data import training_sentences
from pii_recipe import Recipe
from pii_tags import TAG_IDS
from train_pii import OccupiedError, main, provenance, train

STEPS = 4


@dataclass(frozen=True)
class Small(Recipe):
    """One thread: two wait for each other, and for the processor, if others use it."""

    threads: int = 1
    steps: int = STEPS
    batch: int = 2
    training_rows: int = 40
    held_out_rows: int = 30


RECIPE = Small()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of random weights over single letters."""
    place = tmp_path_factory.mktemp("encoder")
    letters = sorted(
        {letter for s in training_sentences(300, 0) for letter in s.text.lower() if letter != " "}
    )
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    (place / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=256,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.BertModel(config).save_pretrained(place)
    transformers.BertTokenizer(str(place / "vocab.txt"), model_max_length=256).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def output(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "pii"
    assert train(place, RECIPE, cache=place.parent / "cache", encoder=encoder)
    return place


def digests(place: Path) -> dict[str, str]:
    files = (path for path in sorted(place.rglob("*")) if path.is_file())
    return {
        path.relative_to(place).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def test_it_leaves_two_checkpoints_a_suite_and_a_provenance(output: Path) -> None:
    assert {path.name for path in output.iterdir()} == {
        "0.1.0",
        "0.2.0",
        "heldout.jsonl",
        "confirm.jsonl",
        "provenance.json",
    }
    recorded = provenance(output)
    assert [c["steps"] for c in recorded["checkpoints"].values()] == [2, STEPS]
    assert recorded["files"] == {k: v for k, v in digests(output).items() if k != "provenance.json"}
    assert recorded["settings"]["held_out_sha256"] == recorded["files"]["heldout.jsonl"]


def test_the_checkpoints_differ_in_their_weights_only(output: Path) -> None:
    first, second = digests(output / "0.1.0"), digests(output / "0.2.0")
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}


def test_a_checkpoint_loads_as_any_hugging_face_directory(output: Path) -> None:
    place = output / "0.2.0"
    model = transformers.AutoModelForTokenClassification.from_pretrained(place)
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    assert model.config.label2id == TAG_IDS
    assert model.config.id2label == {number: tag for tag, number in TAG_IDS.items()}
    assert model(**tokenizer("call ann", return_tensors="pt")).logits.shape == (1, 9, len(TAG_IDS))
    assert tokenizer.model_max_length == 256


def test_a_checkpoints_tokenizer_neither_cuts_nor_pads(output: Path) -> None:
    document = json.loads((output / "0.2.0" / "tokenizer.json").read_bytes())
    assert document["truncation"] is None and document["padding"] is None


def test_nothing_written_names_a_place_on_this_machine(output: Path, encoder: Path) -> None:
    for path in output.rglob("*"):
        if path.is_file():
            assert str(output.parent).encode() not in path.read_bytes()
            assert str(encoder).encode() not in path.read_bytes()
            assert b"name_or_path" not in path.read_bytes()


def test_two_runs_give_the_same_bytes(output: Path, encoder: Path, tmp_path: Path) -> None:
    torch.rand(3)
    train(tmp_path / "again", RECIPE, cache=tmp_path / "cache", encoder=encoder)
    assert digests(tmp_path / "again") == digests(output)


def test_it_leaves_torch_as_it_was(encoder: Path, tmp_path: Path) -> None:
    def state() -> tuple[bool, int, list[int]]:
        rng: list[int] = torch.get_rng_state().tolist()
        return torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), rng

    threads = torch.get_num_threads()
    torch.set_num_threads(RECIPE.threads + 1)
    try:
        before = state()
        train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder)
        assert state() == before
    finally:
        torch.set_num_threads(threads)


def test_a_finished_run_is_not_repeated(output: Path, encoder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    assert not train(output, RECIPE, cache=output.parent / "cache", encoder=encoder)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


@pytest.mark.parametrize("change", [{"steps": 6}, {"seed": 21}, {"held_out_rows": 31}])
def test_a_run_of_other_settings_is_not_overwritten(
    output: Path, encoder: Path, change: dict[str, int]
) -> None:
    with pytest.raises(OccupiedError, match="other settings"):
        train(output, Small(**change), cache=output.parent / "cache", encoder=encoder)


def test_a_result_that_was_changed_is_not_taken_for_finished(encoder: Path, tmp_path: Path) -> None:
    train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder)
    (tmp_path / "pii" / "heldout.jsonl").write_text("")
    with pytest.raises(OccupiedError, match="has changed"):
        train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": 1, "files": []}'])
def test_somebody_elses_directory_is_left_alone(encoder: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "provenance.json").write_text(content)
    with pytest.raises(OccupiedError, match="something else"):
        train(tmp_path, RECIPE, cache=tmp_path / "cache", encoder=encoder)
    assert (tmp_path / "provenance.json").read_text() == content


def test_an_interrupted_run_leaves_nothing(encoder: Path, tmp_path: Path) -> None:
    def interrupt(step: int, loss: float) -> None:
        if step == STEPS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder, report=interrupt)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_killed_runs_leftovers_are_cleared(encoder: Path, tmp_path: Path) -> None:
    killed = tmp_path / ".pii.part" / "0.1.0"
    killed.mkdir(parents=True)
    assert train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder)
    assert not killed.parent.exists()


def test_an_empty_directory_may_be_filled(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "pii").mkdir()
    assert train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_pii, "Recipe", Small)


def test_the_command_says_what_it_did(
    small: None, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--output", str(tmp_path / "pii"), "--encoder", str(encoder), "--steps", "4"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert "step 4 of 4: loss" in first.out and "pii: trained" in first.out and first.err == ""
    assert "FIRSTNAME" in first.out and "0.2.0" in first.out
    assert main(command) == 0
    assert "already trained" in capsys.readouterr().out


def test_the_command_can_be_silent(
    small: None, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["--output", str(tmp_path / "pii"), "--encoder", str(encoder), "--steps", "4", "--quiet"]) == 0
    )
    assert capsys.readouterr() == ("", "")


def test_a_refusal_is_one_line(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["--output", str(tmp_path), "--encoder", str(encoder)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and message.count("\n") == 1


@pytest.mark.parametrize("wrong", [["--steps", "1"], ["--encoder", "no-such-place"]])
def test_wrong_options_are_usage_errors(tmp_path: Path, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--output", str(tmp_path / "pii"), *wrong])
    assert stop.value.code == 2


def test_finding_a_finished_run_needs_no_torch(output: Path, encoder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from pii_recipe import Recipe; from train_pii import train;"
        f"train(Path({str(output)!r}), Recipe({STEPS}, 2, threads=1, training_rows=40, held_out_rows=30),"
        f" cache=Path(), encoder=Path({str(encoder)!r})); sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(train_pii.__file__).parent)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0


def test_long_steps_are_announced(encoder: Path, tmp_path: Path) -> None:
    told: list[str] = []
    train(tmp_path / "pii", RECIPE, cache=tmp_path / "cache", encoder=encoder, tell=told.append)
    assert [what.partition(":")[0] for what in told] == [
        "loading PyTorch and making the texts to train on",
        "checkpoint 0.1.0",
        "checkpoint 0.2.0",
    ]
