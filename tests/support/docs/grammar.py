"""What `reg` would make of a command line, without running it."""

from typing import Any

from onnxreg.cli.app import build

ROOT = build()


def parse(words: list[str]) -> Any:
    """The command that the words name, once all of them were accepted; a usage error where one was not."""
    group, context = ROOT, ROOT.make_context("reg", words)
    while hasattr(group, "commands"):
        rest = [*context._protected_args, *context.args]
        if not rest and context.params.get("version"):
            return group
        name, group, rest = group.resolve_command(context, rest)
        context = group.make_context(name, rest, parent=context)
    return group
