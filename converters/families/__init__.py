"""Model families: a backbone, many heads, an out-of-distribution detector and a fused router, exported as one draft."""
