"""One module for each verb, named as the verb: parse, one library call, render.

Each has `EXAMPLES` and a `command` (or one function for each verb of a group) that typer reads. What several verbs
share is in `options` (arguments), `render` and `reports` (output) and `services` (calls that join converters and registry).
"""
