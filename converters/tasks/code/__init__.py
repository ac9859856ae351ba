"""Code that makes a module (a factory), and the consent that it needs to run.

A `Factory` is `module:function` or `file.py:function`, bound by its digest or by its distribution.
`Consent` holds the names that the user allowed for one command (`--allow-code`); `import_factory`
imports its files and nothing else.

Start with `consent.py`. The rule in words: docs/threat-model.md.
Must not import: any other package of `converters.tasks`.
"""
