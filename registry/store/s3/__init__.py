"""A registry in a bucket of S3 or of a compatible server.

`S3Store` creates, compares and swaps objects, `S3Client` sends the requests and decides which failures to
retry, `MultipartUpload` sends large objects in parts. `connection`
makes the client of botocore, `signed_requests` skips its layers for frequent requests.

Start with `bucket.py`.
"""
