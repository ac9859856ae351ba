"""The `reg` command. A verb parses its arguments, makes one library call, and prints the result.

`app` lists the verbs by task and imports the module of the called verb only. `commands` has one module for
each verb, `options` the shared arguments, `services` the calls that join converters and registry, `reports`
and `render` the output. `errors` maps the family of an error to an exit status. A `Session` (`context`) has the
registry and the settings of one command.

Start with `app.py`, then `commands/tag.py` (a short verb) and `commands/push.py`.
Must not be imported by: any other package.
"""

VERSION = "0.2.0"
"""Equal to the distribution's; importlib.metadata would take longer to say it than everything else `--version` does."""
COMPLETES = "_REG_COMPLETE"
"""The variable by which a shell asks for completions; an error would appear in the user's prompt."""
