"""Show how a trained checkpoint becomes a published, resolved and compared artifact, by the commands of a user.

    python examples/demo.py [--cache DIR]

The demo trains a model (only once), exports two versions with the android profile, pushes both to a registry in a directory,
resolves one, compares the two, and sums up. The plain INT8 file of the first version loses too much. For the second version,
`--certify` tries four candidates on one suite and confirms the winner on another. All files stay in the cache directory.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from onnxreg.registry import Registry

NAME = "demo/pii"
VERSIONS = ("0.1.0", "0.2.0")
DEVICE = "ort-android-1.23"
SUITES = ("heldout.jsonl", "confirm.jsonl")
NO_CANDIDATE = 7
"""The exit status of an export that cannot be made as requested, for example if no candidate passes."""
CANDIDATES = ("int8-int8-embeddings", "weights8-32-int8-embeddings", "mixed-int8-int8-embeddings", "fp16")
"""The candidates of the search: small and fast but inaccurate, accurate but slow, between both, and the usual float16."""


class Shell:
    """Runs `reg` in the demo's directory and shows each command as a user would type it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._reg = Path(sys.executable).with_name("reg")
        own = {f"REG_{kind}": str(directory / "user" / kind.lower()) for kind in ("STATE", "KEYS", "TRUST")}
        Path(own["REG_TRUST"]).parent.mkdir(parents=True)
        Path(own["REG_TRUST"]).touch()
        self._env = {**os.environ, **own, "REG_HOME": "home", "HF_HUB_OFFLINE": "1"}

    def reg(self, *arguments: str) -> None:
        """Run one command with its output; the demo ends if it fails."""
        if status := self.status(*arguments):
            raise SystemExit(status)

    def status(self, *arguments: str) -> int:
        """Run one command with its output; return its exit status."""
        print(f"\n$ reg {shlex.join(arguments)}", flush=True)
        process = subprocess.run([self._reg, *arguments], cwd=self._directory, env=self._env, check=False)
        return process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path(__file__).parents[1] / ".cache")
    cache = parser.parse_args().cache.resolve()
    started = time.monotonic()
    trained, stage = cache / "pii", cache / "demo"
    print(
        "A small PII tagger: its encoder is fetched (85 MB), it is trained for about two minutes, once:",
        flush=True,
    )
    trainer = [sys.executable, Path(__file__).with_name("train_pii.py")]
    subprocess.run([*trainer, "--output", trained, "--cache", cache / "packages"], check=True)
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for link in (*VERSIONS, *SUITES):
        (stage / link).symlink_to(trained / link)
    play(Shell(stage))
    summary(stage)
    directory = os.path.relpath(stage)
    print(
        f"\nDone in {time.monotonic() - started:.0f} s. Everything is in {directory}: reg --registry {directory}/home ls"
    )


def play(shell: Shell) -> None:
    """Run the commands of the demo."""
    shell.reg(*export(VERSIONS[0]))
    search = ("--certify", "--confirm-suite", SUITES[1], *(f"--candidate={name}" for name in CANDIDATES))
    status = shell.status(*export(VERSIONS[1]), *search)
    if status == NO_CANDIDATE:
        print("\nNo candidate passed. The version is published with the plain INT8 file:", flush=True)
        shell.reg(*export(VERSIONS[1]))
    elif status:
        raise SystemExit(status)
    shell.reg("remote", "add", "origin", "shared")
    for version in VERSIONS:
        shell.reg("push", f"{NAME}:{version}")
    shell.reg("push", f"{NAME}:{VERSIONS[-1]}")
    shell.reg("ls", NAME)
    shell.reg("resolve", NAME, "--device", DEVICE, "--remote", "origin")
    shell.reg("diff", *(f"{NAME}:{version}" for version in VERSIONS))
    shell.reg("verify")


def export(version: str) -> tuple[str, ...]:
    """Return the arguments of `reg` that export a version."""
    model = ("--profile", "android", "--name", NAME, "--version", version)
    return ("export", version, *model, "--eval-suite", SUITES[0], "--output", f"export-{version}")


def summary(stage: Path) -> None:
    """Print the results: sizes, verdicts and the held-out recall."""
    console = Console(width=max(80, Console().width))
    table = Table("version", "artifact", Column("MB", justify="right"), "verdict", title=f"{NAME}: published")
    registry = Registry(stage / "home")
    for version in VERSIONS:
        for artifact in registry.get(f"{NAME}:{version}").manifest.artifacts:
            size = f"{artifact.own_size / 1e6:.1f}"
            verdict = "reference" if artifact.precision == "float32" else artifact.certification.state
            table.add_row(version, artifact.path, size, verdict)
    certificates = (stage / f"export-{VERSIONS[-1]}" / "certificates").glob("*.json")
    console.print("\n", table, recall(max(certificates)))  # of the INT8 file, unless float16 won the search


def recall(certificate: Path) -> Table:
    """Make a table of a judged file's held-out character recall by label; the title has the loss against the checkpoint."""
    document = json.loads(certificate.read_text())
    (metric,) = document["metrics"]
    loss = "not measured" if metric["loss"] is None else f"{metric['loss']:.4f}"
    title = f"{NAME}:{VERSIONS[-1]}, held-out recall (largest loss {loss}, limit {metric['limit']})"
    columns = (Column(name, justify="right") for name in ("gold spans", certificate.stem))
    table = Table("label", *columns, title=title)
    for check in document["checks"]:
        _, _, label = check["name"].partition("/")
        if label and check["samples"]:
            table.add_row(label, str(check["samples"]), f"{check['value']:.4f}")
    return table


if __name__ == "__main__":
    main()
