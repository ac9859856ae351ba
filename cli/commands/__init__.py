"""The verbs, in one module for each subject. A verb parses its arguments, makes one library call and shows the result.

Each verb is a function whose docstring is its help text: run `make generate` after a change.
`EXAMPLES` has the examples of all verbs of a module. `app.GROUPS` names the module of each verb. A verb ends with
`Session.show`, which prints a document for programs, or lines for people. Verbs share the arguments in `options`, the
texts in `output` and the reports, and the functions in `services`, which use both converters and registry.
"""
