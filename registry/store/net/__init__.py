"""Parts that every networked store needs: retries, deadlines, and the rules for redirects, headers and tokens.

`requests` ends a read that is silent or has no time left, and tries again after a passing failure; `http_rules` says
where a redirect and a token may go.

Start with `requests.py`.
Must not import: any kind of store.
"""
