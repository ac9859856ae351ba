"""HTTP itself: connections, conditions, ranges, and the tree as static files.

`messages` sends JSON and blobs by RFC 9110 (sections 13 and 14), `tree_routes` serves
the tree as any static host does, `connection` is uvicorn's protocol with limits.

Start with `tree_routes.py`.
"""
