"""Programs built for NCCL on this library, unchanged: PyTorch's own "nccl" backend,
vLLM, CuPy.

    python -m rcclx.preload train.py --epochs 3         # a script, or -m module, and its arguments
    import rcclx.preload                                # before `import torch`, in the program itself
    LD_PRELOAD=$(python -m rcclx.preload) program       # any other program

Wheels of PyTorch find their libnccl.so.2 by a path inside them, which
LD_LIBRARY_PATH does not change; but the loader takes a library of one name only
once, so whoever loads ours before is heard. The first form sets LD_PRELOAD and
starts Python again, so that processes started from there (torchrun's workers) have
it, too; the second is for this process alone. On ROCm's PyTorch the name is
librccl.so.1.

RCCLX_NCCL_LIBRARY is the path of another file to load.
"""
from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from ._library import path as _beside

NAMES = ("libnccl.so.2", "librccl.so.1")


def _wanted() -> str:
    """The name under which the installed PyTorch looks for it."""
    found = importlib.util.find_spec("torch")
    folders = list(found.submodule_search_locations or []) if found else []
    rocm = any(list(Path(folder, "lib").glob("librccl.so*")) for folder in folders)
    return NAMES[1] if rocm else NAMES[0]


def find() -> str:
    """The file that takes NCCL's place: RCCLX_NCCL_LIBRARY, or the one beside librcclx.so.
    ImportError when there is none."""
    asked = os.environ.get("RCCLX_NCCL_LIBRARY")
    file = Path(asked) if asked else Path(_beside).resolve().parent / _wanted()
    if not file.is_file():
        told = f"RCCLX_NCCL_LIBRARY={asked}" if asked else str(file)
        raise ImportError(f"rcclx.preload: {told} is not there; build the libraries with `make`, or set RCCLX_NCCL_LIBRARY to "
                          "the libnccl.so.2 of RCCLX")
    return str(file.resolve())


def _loaded() -> List[str]:
    """Files of such a name that are in this process."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        files = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
    return sorted(file for file in files if os.path.basename(file).startswith(NAMES))


def load() -> str:
    """Ours into this process, before any other of that name; its path. ImportError when it is
    too late."""
    file = find()
    others = [other for other in _loaded() if os.path.realpath(other) != file]
    if others:
        raise ImportError(f"rcclx.preload: {others[0]} is loaded already, and a second one would not be used; import rcclx.preload "
                          "before torch, or start the program with python -m rcclx.preload")
    ctypes.CDLL(file, ctypes.RTLD_GLOBAL)
    return file


def environment(file: str, before: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The variables of a process that shall have it from its start."""
    variables = dict(os.environ if before is None else before)
    others = [one for one in variables.get("LD_PRELOAD", "").replace(":", " ").split() if one != file]
    variables["LD_PRELOAD"] = ":".join([file, *others])
    return variables


def main(arguments: Sequence[str]) -> None:
    """python -m rcclx.preload: without arguments the path, else a script or -m module."""
    try:
        file = find()
    except ImportError as fault:
        sys.exit(str(fault))
    if not arguments:
        print(file)
        return
    if any(c in file for c in " :"):
        sys.exit(f"rcclx.preload: LD_PRELOAD takes no path with ':' or a blank in it, as {file!r} has")
    if arguments[0] in ("-h", "--help"):
        print(__doc__)
        return
    os.execve(sys.executable, [sys.executable, *arguments], environment(file))


if __name__ == "__main__":
    main(sys.argv[1:])
else:
    path = load()
