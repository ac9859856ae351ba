"""Arguments and options that several verbs share, and what typer needs around them.

`shared` has the options, `query_options` those that make up a query, `completion` answers the Tab key, `help` and
`usage_errors` say things in our words.

Start with `shared.py`.
"""
