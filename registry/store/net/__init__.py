"""Parts that every networked store needs: retries, deadlines, redirects, headers, tokens.

`retry` tries again after a passing failure, `pace` ends a read that is silent or too slow, `redirects`
checks every hop by the rules of the first URL, `limits` has the variables and the time of one file,
`server_waits` lists what requests wait for (progress shows it), `tokens` finds the bearer token of a host.

Start with `pace.py`.
Must not import: any kind of store.
"""
