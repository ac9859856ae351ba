"""One module for each verb, with the verb's name: parse, one library call, render.

Each has `EXAMPLES` and a function `command` (or one function for each verb of a group) that typer reads.
Its docstring is the help text, so run `make generate` after a change. Code that several verbs share is in
`options` (arguments), `render` and `reports` (output) and `services` (calls that join converters and
registry).
"""
