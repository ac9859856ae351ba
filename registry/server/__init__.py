"""`reg serve`: serve a registry over HTTP, for reading only.

`server` has all routes. `served_registry` reads the registry for clients, `answers` makes
HTTP responses. `api` and `hub_routes` are for programs, `pages` for people.

Start with `server.py`. docs/serve.md describes the interface.
"""
