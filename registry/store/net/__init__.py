"""Parts that every networked store needs: retries, deadlines, and the rules for redirects, headers and tokens.

`retry` tries again after a passing failure, `pace` ends a read that is silent or too slow, `http_rules`
says where a redirect and a token may go, `limits` has the variables and the time of one file,
`server_waits` lists what requests wait for (progress shows it).

Start with `pace.py`.
Must not import: any kind of store.
"""
