"""A registry in a bucket of S3 or of a compatible server.

`S3Store` creates, compares and swaps objects, `S3Client` sends the requests and decides which failures to
retry, `MultipartUpload` sends large objects in parts. `signed_requests` and `payload_signature` skip layers
of botocore for frequent requests.

Start with `bucket.py`.
"""
