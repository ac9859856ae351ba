"""`reg serve`: a registry over HTTP, read-only.

`app.py` has all routes. `ServedRegistry` is the registry from outside, `Api` answers the questions of apps,
`http` sends files and ranges, `pages` are for people. `Settings` and `Limits` protect the server from its
users.

Start with `app.py`. The interface in words: docs/serve.md.
"""
