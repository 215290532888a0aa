"""Test functions that all ranks run together, in processes that are started once.

    @case                          # a function of the ranks; its name is the test's
    def sums(): ...
    ranks.main(2, 4)               # the file's cases, on 2 and on 4 ranks

Each rank has gloo as its default group and the backend rcclx beside it (`ours()`), so
that the two are compared in one process. After every case the ranks tell each
other how it went. A case gets no rank into the next one before the others are done.
"""
import atexit
import datetime
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

import tap

CASES = []
LIMIT = datetime.timedelta(seconds=30)


def case(function):
    CASES.append(function)
    return function


def name_of(function):
    return function.__name__.replace("_", " ")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def variables(rank, size, port, **more):
    return {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), **more}


def start(command, size, **more):
    """Processes with the launcher's variables; what they say goes to temporary files."""
    port = free_port()
    said = [tempfile.TemporaryFile("w+") for _ in range(size)]
    return [(subprocess.Popen(command, env=variables(r, size, port, **more), stdout=said[r], stderr=subprocess.STDOUT), said[r])
            for r in range(size)]


def finish(started, seconds=100):
    """[(exit code, text)] of each; killed is -9."""
    results = []
    for process, said in started:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.seek(0)
        results.append((process.returncode, said.read()))
    return results


def program(text, size, seconds=60, **more):
    """A program of its own on size ranks, forked from this process, which has imported PyTorch
    once for all of them: [(exit code, text)]."""
    port = free_port()
    said = [tempfile.TemporaryFile("w+") for _ in range(size)]
    pids = [_fork(text, variables(r, size, port, **more), said[r]) for r in range(size)]
    codes = _reap(pids, time.monotonic() + seconds)
    results = []
    for code, file in zip(codes, said):
        file.seek(0)
        results.append((code, file.read()))
    return results


def _fork(text, environment, said):
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    os.environ.update(environment)
    code = 1
    try:
        exec(compile(text, "program", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    try:
        atexit._run_exitfuncs()  # as at the end of a program of its own
    finally:
        sys.stdout.flush()
        os._exit(code)


def _reap(pids, until):
    """Exit codes; who is late is killed: -9."""
    codes = {}
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            for pid in pids:
                if pid not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return [codes[pid] for pid in pids]


# ---- inside a rank

_ours = {}


def ours():
    """The group of all ranks on the backend under test."""
    import torch.distributed as dist

    if "all" not in _ours:
        _ours["all"] = dist.new_group(backend="rcclx", timeout=LIMIT)
    return _ours["all"]


def _one(function):
    try:
        function()
    except BaseException:
        traceback.print_exc()
        return False
    return True


def _rank(words):
    import torch
    import torch.distributed as dist

    import rcclx.torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    for function in CASES:
        if words and not any(word in name_of(function) for word in words):
            continue
        good = torch.tensor([int(_one(function))])
        sys.stderr.flush()
        dist.all_reduce(good, dist.ReduceOp.MIN)
        if dist.get_rank() == 0:
            print(f"RESULT {int(good)} {name_of(function)}", flush=True)
    dist.destroy_process_group()


def main(*sizes):
    """The parent: a test for each case and number of ranks."""
    file = os.path.abspath(sys.argv[0])
    if os.environ.get("RCCLX_TEST_RANK"):
        _rank(sys.argv[1:])
        return
    words = sys.argv[1:]
    for size in sizes:
        chosen = [f for f in CASES if not words or any(word in name_of(f) for word in words)]
        if not chosen:
            continue
        results = finish(start([sys.executable, file, *words], size, RCCLX_TEST_RANK="yes"))
        for function in chosen:
            _report(function, size, results)
    tap.main()


def _report(function, size, results):
    before, _, _ = results[0][1].partition(f"RESULT 0 {name_of(function)}\n")
    texts = "rank 0:\n" + before + "".join(f"rank {r}: {code}\n{text}" for r, (code, text) in enumerate(results) if r)

    def test():
        assert f"RESULT 1 {name_of(function)}\n" in results[0][1], texts

    test.__name__ = f"{name_of(function)} on {size} ranks"
    tap._tests.append(test)
