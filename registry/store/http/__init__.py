"""A registry on a static web server, read-only.

`HttpRegistry` reads the tree below a URL, conditionally and in ranges. `tokens` finds the bearer token of a
host.

Start with `http.py`.
"""
