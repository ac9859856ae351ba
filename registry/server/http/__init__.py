"""HTTP itself: connections, conditions, ranges, and the tree as static files.

`conditions` implements RFC 9110 (sections 13 and 14), `responses` sends JSON and blobs, `tree_routes` serves
the tree as any static host does, `connection` is uvicorn's protocol with limits.

Start with `tree_routes.py`.
"""
