"""`reg serve`: a registry over HTTP, read-only.

`app` has all routes and `middleware` surrounds them. `served_registry` is the registry from outside, `answers` are its
HTTP; `api` and `hub_routes` are for programs, `pages` for people.

Start with `app.py`. The interface in words: docs/serve.md.
"""
