"""How the ranks of a new communicator find each other: one puts the library's unique
id into the group's store, the others look for it there.

They look again and again instead of waiting inside the store: a thread that waits
there keeps the others of its process from using it.
"""
from __future__ import annotations

import time
from typing import Any

from .._communicator import Communicator, unique_id
from ._errors import Timeout, translated


def _fetch(store: Any, key: str, words: str, seconds: float) -> bytes:
    until, pause = time.monotonic() + seconds, 1e-4
    while not store.check([key]):
        if time.monotonic() > until:
            raise Timeout(f"{words}: the rank that leads it has not come within {seconds:g} s; does it make the same calls on this "
                          "group?")
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    found: bytes = store.get(key)
    return found


def meet(store: Any, key: str, rank: int, size: int, device: str, words: str, seconds: float) -> Communicator:
    """The communicator of `size` ranks of which this is `rank`; all call it with the same key,
    which is free again afterwards."""
    with translated():
        if rank == 0:
            store.set(key, unique_id())
        comm = Communicator(size, rank, _fetch(store, key, words, seconds), device)
    if rank == 0:  # all have read it, or there were no communicator
        store.delete_key(key)
    return comm
