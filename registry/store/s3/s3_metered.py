"""Connections of botocore whose answers are metered: see `pace`."""

from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

from onnxreg.registry.store.net.pace import MeteredResponse


class MeteredHttpConnection(AWSHTTPConnection):  # type: ignore[misc]
    response_class = MeteredResponse


class MeteredHttpsConnection(AWSHTTPSConnection):  # type: ignore[misc]
    response_class = MeteredResponse


class PlainPool(AWSHTTPConnectionPool):  # type: ignore[misc]
    ConnectionCls = MeteredHttpConnection


class SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]
    ConnectionCls = MeteredHttpsConnection


def meter(client: Any) -> None:
    """Let a client make metered connections."""
    session = client._endpoint.http_session
    session._pool_classes_by_scheme.update(http=PlainPool, https=SecurePool)
