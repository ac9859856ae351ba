"""`reg serve`: a registry over HTTP, read-only.

`server` has all routes, which `middleware` surrounds. `served_registry` is the registry from outside, `answers` are its
HTTP; `api` and `hub_routes` are for programs, `pages` for people.

Start with `server.py`. The interface in words: docs/serve.md.
"""
