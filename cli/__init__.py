"""The `reg` command. A verb parses its arguments, makes one library call, and prints the result.

`app` lists the verbs and imports only the module of the called verb. `options` has the shared arguments and the
`Session` of a command. `services` has the functions that use both converters and registry. `output` has tables, JSON,
progress and errors. `versions`, `diff_report` and `search_report` have texts that several verbs print.

Start with `app.py`, then `commands/show.py` (a short verb) and `commands/transfer.py`. Must not be imported by: any
other package.
"""

from collections.abc import Sequence

VERSION = "0.2.0"  # as in pyproject.toml; importlib.metadata would slow `--version` down
COMPLETES = "_REG_COMPLETE"  # set if a shell requests completions: then no error may reach the user's prompt
is_running = False  # true in the process of the program `reg`, whose exports run in child processes


def skip_globals(words: Sequence[str]) -> list[str]:
    """Return the words from the verb on, without the global options before it."""
    remaining = iter(words)
    for word in remaining:
        if word == "--registry":
            next(remaining, None)
        elif word != "--quiet" and not word.startswith("--registry="):
            return [word, *remaining]
    return []
