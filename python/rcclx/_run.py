"""run(): ranks as processes of this machine, for tests, notebooks and small programs.

    parent ---- spawn, environment of a launcher ----> rank 0 ... rank n-1
       ^                                                  |
       +-------- a pipe each: result, or traceback -------+
"""
from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing.connection import wait
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Union

from ._communicator import Communicator
from ._errors import InvalidArgument, InvalidUsage, RankFailed, Timeout

Environment = Union[Mapping[str, str], Callable[[int], Mapping[str, str]]]

GRACE = 3.0  # seconds between SIGTERM and SIGKILL

_environment = threading.Lock()


def _pack(fn: Callable[..., Any], args: Any) -> bytes:
    """A function that was typed in is in no file: cloudpickle takes such along."""
    if fn.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        try:
            import cloudpickle  # type: ignore
        except ImportError:
            raise InvalidUsage("fn: new processes cannot import what was typed into a notebook or a prompt; put it into a "
                               "module, or install cloudpickle") from None
        typed: bytes = cloudpickle.dumps((fn, args))
        return typed
    return pickle.dumps((fn, args))


def _child(pipe: Any, packed: bytes) -> None:
    """A rank: its last words are (True, result) or (False, text)."""
    try:
        fn, args = pickle.loads(packed)
        with Communicator.from_env() as comm:
            words = pickle.dumps((True, fn(comm, *args)))
    except BaseException:
        words = pickle.dumps((False, traceback.format_exc()))
    pipe.send_bytes(words)
    pipe.close()


def _ports() -> int:
    """A free port whose successor is free, too: rank 0 is met there."""
    for _ in range(64):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
    raise OSError("no two free ports next to each other")


def _variables(nranks: int, env: Environment) -> Iterator[Dict[str, str]]:
    port, name = str(_ports()), secrets.token_hex(16)
    for rank in range(nranks):
        yield {"RANK": str(rank), "WORLD_SIZE": str(nranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(nranks),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RCCLX_RUN_ID": name,
               **(env(rank) if callable(env) else env)}


class _Rank:
    def __init__(self, variables: Mapping[str, str], packed: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, end = context.Pipe(duplex=False)
        self.process = context.Process(target=_child, args=(end, packed), daemon=True)
        with _environment:  # a new process reads it before any code of ours can run there
            before = dict(os.environ)
            try:
                os.environ.update(variables)
                self.process.start()
            finally:
                os.environ.clear()
                os.environ.update(before)
        end.close()

    def last_words(self) -> Any:
        try:
            return pickle.loads(self.pipe.recv_bytes())
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code} and no result"
            return (False, how)
        except Exception:
            return (False, "its result cannot be unpickled:\n" + traceback.format_exc())


def _stop(ranks: List[_Rank]) -> None:
    for r in ranks:
        r.process.terminate()
    until = time.monotonic() + GRACE
    for r in ranks:
        r.process.join(max(0.0, until - time.monotonic()))
        if r.process.is_alive():
            r.process.kill()
        r.process.join()
        r.pipe.close()


def _collect(ranks: List[_Rank], until: Optional[float]) -> List[Any]:
    results: Dict[int, Any] = {}
    while len(results) < len(ranks):
        left = {r.pipe: i for i, r in enumerate(ranks) if i not in results}
        ready = wait(list(left), None if until is None else max(0.0, until - time.monotonic()))
        if not ready:
            raise Timeout(f"run: ranks {', '.join(map(str, left.values()))} of {len(ranks)} were not done in time")
        failures = []
        for pipe in ready:
            rank = left[pipe]  # type: ignore[index]
            good, results[rank] = ranks[rank].last_words()
            if not good:
                failures.append(rank)
        if failures:
            raise RankFailed(failures[0], f"rank {failures[0]} of {len(ranks)}: {results[failures[0]]}")
    for r in ranks:  # they have said all; what is left is to exit
        r.process.join(GRACE)
    return [results[i] for i in range(len(ranks))]


def run(fn: Callable[..., Any], nranks: int, *args: Any, env: Environment = {},
        timeout: Optional[float] = None) -> List[Any]:
    """Start nranks processes on this machine; each calls fn(comm, *args) with its
    Communicator. Returns their results in rank order.

        def work(comm, x):
            return comm.all_reduce(x * comm.rank)

        if __name__ == "__main__":
            print(rcclx.run(work, 4, numpy.ones(3)))

    The processes are new ones (multiprocessing's "spawn"), so fn, args and results
    must be picklable, and a script needs the line with __main__. A function that was
    typed into a notebook can be used where the package cloudpickle is installed.

    env: variables for the ranks, such as {"RCCLX_DEVICE": "host"}, or a function that
    gives those of a rank; for GPUs, one each: lambda r: {"CUDA_VISIBLE_DEVICES": str(r)}.
    timeout: seconds for everything; None waits. Raises RankFailed with the traceback of the first rank
    that raises or dies, Timeout after timeout; no process is left behind.
    """
    if not callable(fn):
        raise InvalidArgument(f"fn: {fn!r} cannot be called")
    if not isinstance(nranks, int) or not 1 <= nranks <= 1024:
        raise InvalidArgument(f"nranks: {nranks!r} is outside 1..1024")
    until = None if timeout is None else time.monotonic() + timeout
    packed = _pack(fn, args)
    ranks: List[_Rank] = []
    try:
        for variables in _variables(nranks, env):
            ranks.append(_Rank(variables, packed))
        return _collect(ranks, until)
    finally:
        _stop(ranks)
