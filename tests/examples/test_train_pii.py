import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import train_pii
import transformers
from pii_data import training_sentences
from pii_recipe import Recipe
from pii_tags import TAG_IDS
from train_pii import OccupiedError, main, provenance

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
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *letters, *(f"##{letter}" for letter in letters)]
    (place / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=256, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.BertModel(config).save_pretrained(place)
    transformers.BertTokenizer(str(place / "vocab.txt"), model_max_length=256).save_pretrained(place)
    return place


Train = Callable[..., bool]


@pytest.fixture(scope="module")
def train(encoder: Path) -> Train:
    def run(place: Path, recipe: Recipe = RECIPE, **more: Any) -> bool:
        done: bool = train_pii.train(place, recipe, cache=place.parent / "cache", encoder=encoder, **more)
        return done

    return run


@pytest.fixture(scope="module")
def output(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "pii"
    assert train(place)
    return place


def digests(place: Path) -> dict[str, str]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_it_leaves_two_checkpoints_that_differ_in_weights_a_suite_and_a_provenance(output, encoder):
    files = {"heldout.jsonl", "confirm.jsonl", "provenance.json"}
    assert {path.name for path in output.iterdir()} == {"0.1.0", "0.2.0", *files}
    recorded = provenance(output)
    assert [c["steps"] for c in recorded["checkpoints"].values()] == [2, STEPS]
    assert recorded["files"] == {k: v for k, v in digests(output).items() if k != "provenance.json"}
    assert recorded["settings"]["held_out_sha256"] == recorded["files"]["heldout.jsonl"]
    model = transformers.AutoModelForTokenClassification.from_pretrained(output / "0.2.0")
    assert model.config.label2id == TAG_IDS
    document = json.loads((output / "0.2.0" / "tokenizer.json").read_bytes())
    assert document["truncation"] is None and document["padding"] is None
    first, second = digests(output / "0.1.0"), digests(output / "0.2.0")
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}
    data = b"".join(path.read_bytes() for path in output.rglob("*") if path.is_file())
    for place in (str(output.parent), str(encoder), "name_or_path"):
        assert place.encode() not in data, "a place on this machine"


def test_two_runs_give_the_same_bytes_and_leave_torch_as_it_was(output, train, tmp_path):
    def state() -> tuple[bool, int, list[int]]:
        rng: list[int] = torch.get_rng_state().tolist()
        return torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), rng

    threads = torch.get_num_threads()
    torch.set_num_threads(RECIPE.threads + 1)
    try:
        before = state()
        train(tmp_path / "again")
        assert state() == before
    finally:
        torch.set_num_threads(threads)
    assert digests(tmp_path / "again") == digests(output)


def test_what_is_no_finished_run_of_these_settings_is_left_alone(output, train, tmp_path):
    for change in ({"steps": 6}, {"seed": 21}, {"held_out_rows": 31}):
        with pytest.raises(OccupiedError, match="other settings"):
            train(output, Small(**change))
    shutil.copytree(output, tmp_path / "pii")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert not train(tmp_path / "pii")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (tmp_path / "pii" / "heldout.jsonl").write_text("")
    with pytest.raises(OccupiedError, match="has changed"):
        train(tmp_path / "pii")
    for content in ("", "[]", "{}", '{"settings": 1, "files": []}'):
        (tmp_path / "pii" / "provenance.json").write_text(content)
        with pytest.raises(OccupiedError, match="something else"):
            train(tmp_path / "pii")
        assert (tmp_path / "pii" / "provenance.json").read_text() == content


def test_an_interrupted_run_leaves_nothing(train, tmp_path):
    def interrupt(step: int, loss: float) -> None:
        if step == STEPS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "pii", report=interrupt)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_the_command_says_what_it_did_and_clears_what_a_killed_run_left(
    encoder, tmp_path, capsys, monkeypatch
):
    def run(name: str, *words: str) -> tuple[int, str, str]:
        status = main(["--output", str(tmp_path / name), "--encoder", str(encoder), "--steps", "4", *words])
        return (status, *capsys.readouterr())

    monkeypatch.setattr(train_pii, "Recipe", Small)
    (tmp_path / ".pii.part" / "0.1.0").mkdir(parents=True)
    (tmp_path / "pii").mkdir()
    status, out, err = run("pii")
    assert (status, err) == (0, "")
    assert all(words in out for words in ("step 4 of 4: loss", "pii: trained", "FIRSTNAME", "0.2.0"))
    assert not (tmp_path / ".pii.part").exists()
    assert "already trained" in run("pii")[1]
    assert run("quiet", "--quiet") == (0, "", "")
    status, _, err = run(".")
    assert (status, err[:7], err.count("\n")) == (2, "error: ", 1)
    for wrong in (("--steps", "1"), ("--encoder", "no-such-place")):
        with pytest.raises(SystemExit) as stop:
            run("other", *wrong)
        assert stop.value.code == 2
