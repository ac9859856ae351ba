"""A registry over HTTP: the static tree that any remote is, and the questions an app asks of it, for reading only.

`application` is the whole of it as an ASGI application, `server.serve` runs it. What it serves comes from a `Place`,
which opens files without following links and remembers parsed index files. Needs the extra `serve`.
"""
