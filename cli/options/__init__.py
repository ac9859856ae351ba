"""Arguments and options that several verbs share, and our extensions of typer.

`shared` has the options, `query_options` those that make up a query, `completion` answers the Tab key,
`help` replaces typer's help and messages by ours.

Start with `shared.py`.
"""
