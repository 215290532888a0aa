"""What the package refuses when it is built and imported, and the door for C++."""
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import torchcomms

from tap import Skip, main, test
from team import be_a_rank, team

TREE, SITE = os.environ["TREE_OF_TESTS"], os.environ["SITE_OF_TESTS"]
PACKAGE = os.path.join(TREE, "python", "torchcomms_rcclx")


def python(code, folder=None, **env):
    path = os.pathsep.join([folder] if folder else [SITE])
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path, **env}, capture_output=True, text=True)


def copy_of_package(folder):
    shutil.copytree(os.path.join(SITE, "torchcomms_rcclx"), os.path.join(folder, "torchcomms_rcclx"))
    for name in os.listdir(SITE):
        if name.startswith("torchcomms_rcclx-"):
            shutil.copytree(os.path.join(SITE, name), os.path.join(folder, name))
    return os.path.join(folder, "torchcomms_rcclx")


def patch(path, old, new):
    """In a binary file, a string by another as long."""
    data = open(path, "rb").read()
    assert old in data and len(old) == len(new), (path, old)
    with open(path, "wb") as out:
        out.write(data.replace(old, new))


IMPORT = "import torchcomms_rcclx"
NEW_COMM = "import torch, torchcomms; torchcomms.new_comm('rcclx', torch.device('cpu'), name='x')"


@test
def another_torch_or_torchcomms_is_refused_at_import():
    with tempfile.TemporaryDirectory() as folder:
        build = os.path.join(copy_of_package(folder), "_build.py")
        was = open(build).read()
        for name in ("TORCH", "TORCHCOMMS"):
            with open(build, "w") as out:
                out.write(was + f"{name} = '0.0.7'\n")
            for code in (IMPORT, NEW_COMM):
                ran = python(code, folder)
                assert ran.returncode == 1 and f"compiled for {name.lower()} 0.0.7, and this is" in ran.stderr, ran
                assert "Install it again" in ran.stderr, ran


@test
def another_interface_is_refused_by_the_core_itself():
    import torchcomms_rcclx

    was = torchcomms_rcclx.interface_version.encode()
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(copy_of_package(folder), "librcclx_torchcomms.so")
        patch(library, b"\0" + was + b"\0", b"\0" + b"9.9" + b"\0")
        for code in (IMPORT, NEW_COMM):
            ran = python(code, folder)
            assert ran.returncode == 1 and f"does not take (ABI version mismatch: 9.9 != {was.decode()})" in ran.stderr, ran
            assert "TORCHCOMMS_SOURCE" in ran.stderr, ran


@test
def a_library_that_is_none_is_refused():
    for path in ("/nowhere/librcclx.so", torch._C.__file__):
        ran = python(NEW_COMM, RCCLX_LIBRARY=path)
        assert ran.returncode == 1 and path in ran.stderr and ("cannot be loaded" in ran.stderr or "has no rcclx" in ran.stderr), ran


def mixed():
    try:
        torchcomms.new_comm("rcclx", torch.device("cpu"), name="mixed", timeout=__import__("datetime").timedelta(seconds=20)).barrier(False)
    except RuntimeError as why:
        print("REFUSED", why)
        os._exit(0)
    os._exit(0 if os.environ["RANK"] == "0" else 1)


@test
def ranks_with_different_libraries_are_told():
    with tempfile.TemporaryDirectory() as folder:
        other = os.path.join(folder, "librcclx.so")
        shutil.copy(os.path.join(SITE, "torchcomms_rcclx", "lib", "librcclx.so"), other)
        import torchcomms_rcclx
        version = torchcomms_rcclx.library_version.encode()
        patch(other, b"\0" + version + b"\0", b"\0" + b"7" + version[1:] + b"\0")
        said = team(mixed, 2, env=lambda r: {"RCCLX_LIBRARY": other, "RCCLX_INIT_TIMEOUT": "3"} if r else {"RCCLX_INIT_TIMEOUT": "3"}, fails=(0,))
        assert f"rank 0 runs RCCLX {version.decode()}, rank 1 runs 7{version.decode()[1:]}" in said[1], said


@test
def ranks_that_do_not_come_are_missed():
    code = NEW_COMM.replace("name='x'", "name='x', timeout=__import__('datetime').timedelta(seconds=2)")
    ran = python(code, RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    assert ran.returncode == 1 and "new_comm 'x': the ranks did not meet in the store" in ran.stderr, ran
    ran = python("import os; os.environ.pop('MASTER_PORT', 0); " + NEW_COMM, RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    assert ran.returncode == 1 and "MASTER_PORT is not set and no store was given" in ran.stderr, ran
    ran = python(NEW_COMM.replace("'x')", "'x').barrier(False)"), RANK="0", WORLD_SIZE="1")  # alone, it needs nobody
    assert ran.returncode == 0, ran


def setup(**env):
    variables = {k: v for k, v in os.environ.items() if k != "TORCHCOMMS_SOURCE"}
    ran = subprocess.run([sys.executable, "setup.py", "--version"], cwd=PACKAGE, env={**variables, **env}, capture_output=True, text=True)
    return ran.stderr


@test
def what_cannot_be_built_is_said_at_once():
    assert "TORCHCOMMS_SOURCE is not set" in setup()
    assert "has no comms/torchcomms/TorchCommBackend.hpp" in setup(TORCHCOMMS_SOURCE="/nowhere")
    with tempfile.TemporaryDirectory() as folder:
        header = os.path.join(folder, "comms", "torchcomms", "TorchCommBackend.hpp")
        os.makedirs(os.path.dirname(header))
        for version, words in (("0.9", "too old"), ("1.10", "too new")):
            with open(header, "w") as out:
                out.write(f'inline constexpr const char* TORCHCOMM_BACKEND_ABI_VERSION = "{version}";')
            assert f"a backend interface {version}, {words}" in setup(TORCHCOMMS_SOURCE=folder), version
        assert "is not there. Run `make`" in setup(TORCHCOMMS_SOURCE=os.environ["TORCHCOMMS_SOURCE"], RCCLX_LIBRARY="/nowhere")


PROGRAM = r"""
#include <ATen/ops/full.h>
#include <comms/torchcomms/TorchComm.hpp>
#include <cstdio>

int main()
{
    auto comm = torch::comms::new_comm("rcclx", at::Device(at::kCPU), "from C++");
    at::Tensor t = at::full({ 4 }, comm->getRank() + 1.0);
    comm->all_reduce(t, torch::comms::ReduceOp::SUM, false);
    comm->all_reduce(t, torch::comms::ReduceOp::SUM, true)->wait();
    std::printf("rank %d of %d: %g\n", comm->getRank(), comm->getSize(), t[3].item<double>());
    comm->finalize();
}
"""


@test
def a_program_in_cxx_comes_in_by_the_other_door():
    if not shutil.which("g++"):
        raise Skip("there is no g++")
    from torch.utils import cpp_extension

    folders = [os.path.dirname(torchcomms.__file__)] + cpp_extension.library_paths()
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "program.cpp"), os.path.join(folder, "program")
        with open(source, "w") as out:
            out.write(PROGRAM)
        made = subprocess.run(["g++", "-std=c++20", source, "-o", program, "-I", os.environ["TORCHCOMMS_SOURCE"]]
                              + [word for path in cpp_extension.include_paths() for word in ("-I", path)]
                              + [word for path in folders for word in ("-L", path, "-Wl,-rpath," + path)]
                              + ["-Wl,--no-as-needed", "-ltorchcomms", "-ltorch_cpu", "-lc10"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[-2000:]
        door = os.path.join(SITE, "torchcomms_rcclx", "librcclx_torchcomms.so")
        env = {"TORCHCOMMS_BACKEND_LIB_PATH_RCCLX": door, "LD_LIBRARY_PATH": os.pathsep.join(folders)}
        said = team(None, 2, command=[program], env=lambda r: env)
        for r, text in enumerate(said):
            assert f"rank {r} of 2: 6" in text, text


if not be_a_rank(globals()):
    main()
