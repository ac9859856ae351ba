"""Arguments and options that several verbs share.

`shared` has the options, `query_options` those that make up a query, `completion` answers the Tab key.

Start with `shared.py`.
"""
