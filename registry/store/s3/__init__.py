"""A registry in a bucket of S3 or of a compatible server.

`S3Store` creates, compares and swaps objects, `S3Client` sends the requests and decides which failures to
retry, `MultipartUpload` sends large objects in parts, `botocore_client`
makes the client of botocore and skips its layers for frequent requests.

Start with `bucket.py`.
"""
