"""The verbs, those of one subject in one module: parse, one library call, show.

Each verb is a function that typer reads: its docstring is the help text, so run `make generate` after a change.
`EXAMPLES` has the examples of all verbs of a module. `app.MODULES` names the module of a verb. A verb ends with
`Session.show`, which prints its result: a document for programs, or lines for people. Code that several verbs share
is in `options` (arguments), `render` and `reports` (output) and `services` (calls that join converters and registry).
"""
