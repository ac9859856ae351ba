"""Count the project's files that a verb executes, and how often it reads a document from one place (docs/dev/design.md).

Each verb of `FLOWS` runs in a process of its own on a temporary registry. A file counts if one of its functions runs, in
any thread; bodies of modules and classes, lambdas and comprehensions do not count. A document is the index file or the
manifest; the comparison within a swap of the index file is not a reading.
"""

import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from inspect import CO_OPTIMIZED
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

FLOWS = {
    "resolve": "resolve acme/tagger --format onnx-int8",
    "push to a directory": "push acme/tagger PLACE",
    "push to S3": "push acme/tagger S3",
    "pull": "--registry OTHER pull acme/tagger PLACE",
    "export": "export CHECKPOINT --name acme/tiny",
}
READERS = ("DirectoryStore.get", "DirectoryStore.open", "BucketStore.get", "BucketStore.open")


def count(manifest: str, words: list[str]) -> None:
    """Run one command in this process, and print the number of files and the most readings of a document."""
    from onnxreg.cli import main

    house = Path(main.__file__).parents[1]
    home = tuple(f"{house}/{package}/" for package in ("cli", "converters", "registry", "schema"))
    files, reads = set[str](), Counter[str]()

    def profile(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(home):
            files.add(code.co_filename)
        if event == "return" and code.co_qualname in READERS and value is not None:
            key, asker = frame.f_locals["key"], frame.f_back
            while asker and asker.f_code.co_name in ("get", "open"):
                asker = asker.f_back
            is_swap = asker is not None and asker.f_code.co_name in ("swap", "swap_from")
            if (key.startswith("index/") or key.endswith(manifest)) and not is_swap:
                reads[f"{frame.f_locals['self'].url} {key.partition('/')[0]}"] += 1

    sys.argv[1:], main.quick_exit = words, sys.exit
    threading.setprofile(profile)
    sys.setprofile(profile)
    with suppress(SystemExit):
        main.main()
    sys.setprofile(None)
    print(f"{len(files)} | {max(reads.values(), default=0)}")


def main() -> None:
    from onnxreg.registry import Registry
    from support.registries.judged import judged_draft
    from support.servers.s3servers import ministack
    from support.tasks.architectures import TEXT, save_text_model

    with TemporaryDirectory() as scratch, ministack(Path(scratch)) as server:
        root = Path(scratch)
        manifest = Registry(root / "home").add(judged_draft(root / "draft", 0, 3)).digest.hex
        save_text_model(TEXT[0], "ForTokenClassification", root / "CHECKPOINT")
        own = {f"REG_{name.upper()}": str(root / name) for name in ("home", "state", "keys", "trust")}
        for flow, line in FLOWS.items():
            words = [str(root / word) if word.isupper() else word for word in line.split()]
            words = [server.fresh() if word.endswith("/S3") else word for word in words]
            command, environment = [sys.executable, __file__, manifest, *words], {**server.environment, **own}
            output = subprocess.check_output(command, env={**os.environ, **environment})
            print(f"| {flow} | {output.splitlines()[-1].decode()} |")


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    count(sys.argv[1], sys.argv[2:]) if sys.argv[1:] else main()
