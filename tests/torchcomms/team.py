"""Functions of a test program as ranks: each is run by n processes that find each other as torchrun's would."""
import os
import socket
import subprocess
import sys
import traceback

TIMEOUT = 120


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def variables(rank, n, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def team(work, n=2, env=None, command=None, fails=()):
    """The ranks' output. env(rank) are variables; `fails` are ranks that may end as they like."""
    port = free_port()
    command = command or [sys.executable, os.path.abspath(sys.argv[0]), "--as", work.__name__]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, **variables(r, n, port), **(env(r) if env else {})}) for r in range(n)]
    said = []
    try:
        for process in running:
            said.append(process.communicate(timeout=TIMEOUT)[0])
    finally:
        for process in running:
            process.kill()
    for r, process in enumerate(running):
        if r not in fails:
            assert process.returncode == 0, f"rank {r} of {n} ended with {process.returncode}:\n{said[r]}"
    return said


def be_a_rank(names):
    """True if this process was started to be one, which it then was."""
    if "--as" not in sys.argv:
        return False
    try:
        names[sys.argv[sys.argv.index("--as") + 1]]()
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    return True
