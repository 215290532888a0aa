"""The process group: what torch.distributed calls for the backend "rcclx".

    dist.all_reduce  --> ProcessGroup.allreduce (_collectives.py)
                             --> route of the tensor's device --> C call
                                 host: _host.py   GPU: _cuda.py
    dist.send, recv  --> ProcessGroup.send --> channel to that rank (_channel.py)

It is a torch.distributed.ProcessGroup itself, in Python; PyTorch's C++ (DDP,
functional collectives) reaches its methods by their names. Here are messages, what
becomes of a group, and the names of other versions.
"""
from __future__ import annotations

import datetime
from typing import Any, NoReturn, Optional, Sequence

import torch
import torch.distributed as dist

from .._communicator import Communicator
from .._library import lib
from .._library import path as library_path
from ._channel import MOST_TAGS, Channel
from ._collectives import Collectives
from ._cuda import CudaRoute, now
from ._errors import InvalidUsage, refuse, translated
from ._host import HostRoute
from ._tensors import dense, one, why_not
from ._work import ManyWorks, Work


class ProcessGroup(Collectives):
    """A group of the backend "rcclx". Made by init_process_group and new_group."""

    # ---- messages

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        return self._message("send", tensors, dstRank, tag, sends=True)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        return self._message("recv", tensors, srcRank, tag, sends=False)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> NoReturn:
        refuse("recv", "this backend cannot receive from whoever comes first; name the source: dist.recv(tensor, src=...)")

    recvAnysource = recv_anysource

    def _message(self, call: str, tensors: Any, peer: int, tag: int, sends: bool) -> Work:
        tensor = one(call, tensors)
        if not dense(tensor):
            refuse(call, why_not(tensor))
        if peer == self._rank or not 0 <= peer < self._size:
            refuse(call, f"rank {peer} from rank {self._rank} of {self._size}; another rank of the group is needed")
        self._calls += 1
        if self._gone:
            self._gone_with(call)
        key = (self._kind(call, tensor.device), sends, peer, tag)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._channel(call, tensor.device, *key)
        work = channel.post(tensor)
        if self._block is not None:
            self._block.append(work)
        return work

    def _channel(self, call: str, device: torch.device, kind: str, sends: bool, peer: int, tag: int) -> Channel:
        if sum(1 for k in self._channels if k[:3] == (kind, sends, peer)) >= MOST_TAGS:
            refuse(call, f"tag {tag} with rank {peer}: {MOST_TAGS} different tags are in use with it already, and each has a connection "
                         "of its own; use fewer tags")
        pair = (self._rank, peer) if sends else (peer, self._rank)
        words = f"{self._words(call)} {'to' if sends else 'from'} rank {peer}" + (f" with tag {tag}" if tag else "")
        key = f"{kind}/{pair[0]}>{pair[1]}/{tag}"
        return Channel(words, sends, lambda: self._meet(key, pair, device, words),
                       (lambda: None) if kind == "cpu" else lambda: now(device))

    # ---- several calls as one

    def _start_coalescing(self, device: Any = None) -> None:
        self._block = []

    def _end_coalescing(self, device: Any = None) -> Work:
        works, self._block = self._block or [], None
        return ManyWorks(works)

    # ---- parts of it

    def split_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, opts: Any = None,
                    group_name: Optional[str] = None, group_desc: Optional[str] = None, device_types: Any = None) -> Any:
        """A group of these ranks of mine, by the library's own split: every rank calls it, each
        with the ranks of its part. A rank that is not among them gets None."""
        ranks = sorted(ranks)
        mine = self._rank in ranks
        name = group_name or f"{self._name}:split:{self._calls}:{ranks}"
        part = ProcessGroup(dist.distributed_c10d.PrefixStore(f"{name}/", self._store), ranks.index(self._rank) if mine else 0, len(ranks),
                            timeout or self._timeout, name, opts or self.options)
        part._set_group_desc(group_desc or "undefined")
        for kind, route in self._routes.items():
            with route.guard(), translated():
                comm = route.comm.split(ranks[0] if mine else None)
            if comm is not None:
                part._routes[kind] = part._adopt(comm, route)
                part._tune(part._routes[kind])
        return part if mine else None

    splitGroup = split_group

    def _adopt(self, comm: Communicator, route: Any) -> Any:
        words, seconds = f"group {self._name}", self._seconds
        return HostRoute(comm, words, seconds) if isinstance(route, HostRoute) else CudaRoute(comm, route.device, words, seconds)

    def perform_nocolor_split(self, device: Any) -> None:
        """New groups are not made by splits unless split_group is called."""

    def eager_connect_single_device(self, device: torch.device) -> None:
        """The communicator of that device, now rather than with the first call."""
        if device.type not in self._routes:
            self._open("eager_connect_single_device", device)

    # ---- its end

    def shutdown(self) -> None:
        """After all that was begun. destroy_process_group calls it."""
        self._end("close")

    def abort(self) -> None:
        """At once: what runs fails, and peers that wait for this rank are told."""
        self._end("abort")

    def _end(self, verb: str) -> None:
        self._gone = True
        for channel in self._channels.values():
            channel.end(verb)
        for route in self._routes.values():
            if route.comm._handle.value is not None:
                getattr(route, verb)()
        self._channels.clear()



def create(dist_opts: Any, backend_options: Any = None) -> ProcessGroup:
    """What torch.distributed calls to make a group."""
    if not hasattr(lib, "rcclxStreamWait"):
        raise InvalidUsage(f"rcclx: {library_path} is too old for rcclx.torch: it has no rcclxStreamWait; build a newer one, or point "
                           "RCCLX_LIBRARY at it")
    return ProcessGroup(dist_opts.store, dist_opts.group_rank, dist_opts.group_size, dist_opts.timeout, dist_opts.group_id,
                        backend_options)
