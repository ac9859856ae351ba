"""Parts that every networked store needs: retries, deadlines, and the rules for redirects, headers and tokens.

`requests` ends a read that is silent or too slow, and tries again after a passing failure; `waits` has the limits
from the environment, the time of one file, and the requests under way (progress shows them); `http_rules` says where
a redirect and a token may go.

Start with `requests.py`.
Must not import: any kind of store.
"""
