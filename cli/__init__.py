"""The `reg` command. A verb parses its arguments, makes one library call, and prints the result.

`app` lists the verbs by task and imports the module of the called verb only. `options` has the shared arguments,
`services` the calls that join converters and registry, `errors` the exit statuses. A `Session` (`context`) has the
registry and the settings of one command, and prints its result: `output` has tables and JSON, `versions`,
`diff_report`, `search_report` and `transfer_report` the words of several verbs.

Start with `app.py`, then `commands/show.py` (a short verb) and `commands/push.py`.
Must not be imported by: any other package.
"""

VERSION = "0.2.0"
"""Equal to the distribution's; importlib.metadata would take longer to say it than everything else `--version` does."""
COMPLETES = "_REG_COMPLETE"
"""The variable by which a shell asks for completions; an error would appear in the user's prompt."""
