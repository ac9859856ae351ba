"""The `reg` command. A verb parses its arguments, makes one library call, and prints the result.

`app` lists the verbs by task and imports only the module of the called verb. `options` has the shared arguments and the
`Session` of a command: its registry, its settings, and the methods that print its result. `services` has the functions
that use both converters and registry. `output` has tables, JSON, progress and errors with their exit statuses;
`versions`, `diff_report` and `search_report` have texts that several verbs print.

Start with `app.py`, then `commands/show.py` (a short verb) and `commands/transfer.py`.
Must not be imported by: any other package.
"""

VERSION = "0.2.0"
"""The version of the distribution, copied from pyproject.toml because importlib.metadata would slow `--version` down."""
COMPLETES = "_REG_COMPLETE"
"""The environment variable by which a shell requests completions. If it is set, no error may reach the user's prompt."""
