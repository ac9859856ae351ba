"""The verbs, in one module for each subject. A verb parses its arguments, makes one library call and shows the result.

The docstring of a verb is its help text: run `make generate` after a change. `EXAMPLES` has the examples of a module.
"""
