"""How the ranks of a new communicator find each other: each leaves word in the group's
store that it has come, the first one the library's unique id, and all look until
everybody has.

They look again and again instead of waiting inside the store: a thread that waits
there keeps the others of its process from using it.
"""
from __future__ import annotations

import time
from typing import Any, List, Sequence

from .._communicator import Communicator, unique_id
from ._errors import Timeout, translated


def _await(store: Any, keys: List[str], who: Sequence[int], words: str, seconds: float) -> None:
    until, pause = time.monotonic() + seconds, 1e-4
    while not store.check(keys):
        if time.monotonic() > until:
            late = [f"rank {rank}" for rank, key in zip(who, keys) if not store.check([key])]
            raise Timeout(f"{words}: {', '.join(late)} did not come before the timeout of {seconds:g} s; do all ranks make the same "
                          "calls on this group? Look at what the one named does, or give the group a longer timeout")
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def meet(store: Any, key: str, me: int, who: Sequence[int], device: str, words: str, seconds: float) -> Communicator:
    """The communicator of the ranks `who`, in this order, of which this is `me`; all call it
    with the same key, which is free again afterwards."""
    mine, keys = who.index(me), [f"{key}/{rank}" for rank in who]
    with translated():
        store.set(keys[mine], b"here" if mine else unique_id())
        try:
            _await(store, keys, who, words, seconds)
        except Timeout:
            store.delete_key(keys[mine])  # who comes later shall not find this one
            raise
        comm = Communicator(len(who), mine, store.get(keys[0]), device)
    if mine == 0:  # all have seen all, or there were no communicator
        for name in keys:
            store.delete_key(name)
    return comm
