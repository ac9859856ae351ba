"""Work on a Dask cluster that is there already."""

from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from onnxreg.schema.core.errors import HostError, RemoteError

Item = TypeVar("Item")
Result = TypeVar("Result")
PATIENCE = "15s"


def run_all(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    address: str,
    show_link: Callable[[str], object] = lambda link: None,
) -> Generator[tuple[Item, Result | HostError]]:
    """Run work as `pool.run_all` does, on the workers of a scheduler. Dask gives the work of a worker that is gone to others first.

    `show_link` gets the URL of the scheduler's dashboard, if it has one. Raises RemoteError if no scheduler answers.
    Closing the iterator cancels jobs that have not begun.
    """
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise RemoteError(
            f"no Dask scheduler answers at {address}", "give the address that it printed: tcp://HOST:8786"
        ) from error
    with client:
        if "dashboard" in client.scheduler_info().get("services", {}):
            show_link(client.dashboard_link)
        futures = {client.submit(work, item, pure=False): item for item in items}
        try:
            for future in as_completed(futures, loop=client.loop):
                lost = future.exception()
                yield futures[future], future.result() if lost is None else _as_host_error(lost)
        finally:
            client.cancel([future for future in futures if not future.done()])


def _as_host_error(lost: BaseException) -> HostError:
    """The cause that Dask gives for work without a result: every worker died, or one lacks our code."""
    from distributed import KilledWorker

    if isinstance(lost, KilledWorker):
        return HostError(
            "its workers died", "too little memory? start them with --nthreads 1, and fewer on a machine"
        )
    cause = f"{type(lost).__name__}: {lost}"
    return HostError(
        f"its worker could not begin: {cause}", "every worker needs onnxreg[dask], of this version"
    )
