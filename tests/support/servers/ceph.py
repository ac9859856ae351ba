"""Ceph's S3 gateway, with a cluster of its own behind it: one monitor, one object store in memory.

Debian: `apt-get install --no-install-recommends radosgw ceph-mon ceph-osd`. Nobody signs in inside the cluster, and
everything listens on the loopback interface.
"""

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.servers.s3servers import Server, free_port, make_bucket, program, running

CONFIG = """
[global]
fsid = {fsid}
mon host = {monitors}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail warn = 1
mon data avail crit = 1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
setuser match path =
rgw enable apis = s3, admin
mon data = {directory}/mon
osd data = {directory}/osd
run dir = {directory}
admin socket = {directory}/$name.asok
pid file = {directory}/$name.pid
log file = {directory}/$name.log
"""
"""`ms mon client mode`: the gateway insists on an encrypted connection otherwise, and waits for it for 300 s."""

STARTUP = 60
"""Seconds that a command may take that waits for the cluster."""


@contextmanager
def ceph(directory: Path) -> Iterator[Server]:
    """The test is skipped where Ceph is not installed."""
    monitor, store, gateway = map(program, ("ceph-mon", "ceph-osd", "radosgw"))
    server = Server(f"http://127.0.0.1:{free_port()}", "testkey12345", "testsecret12345")
    fsid, config = str(uuid.uuid4()), directory / "ceph.conf"
    monitors = f"[v2:127.0.0.1:{free_port()},v1:127.0.0.1:{free_port()}]"
    config.write_text(CONFIG.format(fsid=fsid, monitors=monitors, directory=directory))

    def do(name: str, *words: str) -> str:
        command = [program(name), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=STARTUP)
        return done.stdout.strip()

    with ExitStack() as stack:

        def start(command: str, *words: str) -> None:
            place = directory / Path(command).name
            place.mkdir()
            stack.enter_context(running([command, "-c", config, "-f", *words], place))

        for name in ("mon", "osd"):
            (directory / name).mkdir()
        chart = str(directory / "monmap")
        do("monmaptool", "--create", "--fsid", fsid, "--addv", "a", monitors, "--enable-all-features", chart)
        do("ceph-mon", "-c", str(config), "-i", "a", "--mkfs", "--monmap", chart)
        start(monitor, "-i", "a")
        number = do("ceph", "-c", str(config), "osd", "create")
        do("ceph-osd", "-c", str(config), "-i", number, "--mkfs")
        start(store, "-i", number)
        address = server.endpoint.removeprefix("http://")
        start(gateway, "--name", "client.rgw", "--rgw-frontends", f"beast endpoint={address}")
        keys = ["--access-key", server.key, "--secret-key", server.secret]
        do("radosgw-admin", "-c", str(config), "user", "create", "--uid", "t", "--display-name", "t", *keys)
        yield make_bucket(server)
