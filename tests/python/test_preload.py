"""Our libnccl.so.2 in the place of a wheel's. A library stands for PyTorch: it needs
libnccl.so.2 and finds another one by its DT_RPATH, as PyTorch's wheels do."""
import os
import shutil
import subprocess
import sys
import tempfile

import rcclx
from tap import Skip, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = os.path.join(os.path.dirname(os.path.realpath(rcclx.library_path)), "libnccl.so.2")
VERSION = 22809
_folder = tempfile.TemporaryDirectory()


def compiler():
    found = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if not found:
        raise Skip("no C compiler")
    return found


def wheel():
    """The stand-in's path; made once."""
    folder = _folder.name
    made, vendor = os.path.join(folder, "libwheel.so"), os.path.join(folder, "nccl", "libnccl.so.2")
    if not os.path.exists(made):
        os.makedirs(os.path.dirname(vendor), exist_ok=True)
        source = os.path.join(HERE, "preload")
        subprocess.run([compiler(), "-shared", "-fPIC", "-o", vendor, os.path.join(source, "vendor.c"), "-Wl,-soname,libnccl.so.2"],
                       check=True)
        subprocess.run([compiler(), "-shared", "-fPIC", "-o", made, os.path.join(source, "wheel.c"), vendor,
                        "-Wl,--disable-new-dtags,-rpath," + os.path.dirname(vendor)], check=True)
    return made


def asks():
    """What a program says that imports "PyTorch"."""
    return f"import ctypes; print(ctypes.CDLL({wheel()!r}).wheel_version())\n"


def run(*arguments, **more):
    return subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **more}, timeout=60)


def python(code, **more):
    return run(sys.executable, "-c", code, **more)


@test
def without_it_the_wheels_own_is_used():
    assert python(asks()).stdout == "12345\n"
    assert python(asks(), LD_LIBRARY_PATH=os.path.dirname(OURS)).stdout == "12345\n", "then nothing here would be needed"


@test
def imported_before_ours_is_used():
    ran = python("import rcclx.preload\n" + asks() + "print(rcclx.preload.path)")
    assert ran.stdout == f"{VERSION}\n{os.path.realpath(OURS)}\n", ran


@test
def imported_too_late_it_says_so():
    ran = python(asks() + "import rcclx.preload")
    assert ran.returncode and "nccl/libnccl.so.2 is loaded already" in ran.stderr and "before torch" in ran.stderr, ran


@test
def a_script_with_its_arguments_and_its_children():
    script = os.path.join(_folder.name, "script.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(asks() + "import subprocess, sys\nprint(sys.argv[1:])\nsys.stdout.flush()\n"
                   "if len(sys.argv) > 1: subprocess.run([sys.executable, sys.argv[0]])\nsys.exit(len(sys.argv))\n")
    ran = run(sys.executable, "-m", "rcclx.preload", script, "a", "-b", LD_PRELOAD="")
    assert ran.returncode == 3 and ran.stdout == f"{VERSION}\n['a', '-b']\n{VERSION}\n[]\n", ran


@test
def a_module():
    with open(os.path.join(_folder.name, "some_module.py"), "w", encoding="utf-8") as file:
        file.write(asks())
    ran = run(sys.executable, "-m", "rcclx.preload", "-m", "some_module", PYTHONPATH=_folder.name + ":" + os.environ["PYTHONPATH"])
    assert ran.stdout == f"{VERSION}\n", ran


@test
def its_path_for_other_programs():
    ran = run(sys.executable, "-m", "rcclx.preload")
    assert ran.stdout == os.path.realpath(OURS) + "\n", ran
    assert python(asks(), LD_PRELOAD=ran.stdout.strip()).stdout == f"{VERSION}\n"


@test
def what_is_preloaded_already_stays_behind_it():
    from rcclx import preload

    said = preload.environment("/a/libnccl.so.2", {"LD_PRELOAD": "/b/x.so:/a/libnccl.so.2 /c/y.so", "HOME": "/"})
    assert said == {"LD_PRELOAD": "/a/libnccl.so.2:/b/x.so:/c/y.so", "HOME": "/"}, said


@test
def a_missing_library_is_named():
    for ran in (run(sys.executable, "-m", "rcclx.preload", "x.py", RCCLX_NCCL_LIBRARY="/nowhere/libnccl.so.2"),
                python("import rcclx.preload", RCCLX_NCCL_LIBRARY="/nowhere/libnccl.so.2")):
        assert ran.returncode and "RCCLX_NCCL_LIBRARY=/nowhere/libnccl.so.2 is not there; build" in ran.stderr, ran


@test
def a_rocm_pytorch_gets_the_other_name():
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "torch", "lib"))
        for file in ("__init__.py", "lib/librccl.so.1"):
            open(os.path.join(folder, "torch", file), "w", encoding="utf-8").close()
        ran = run(sys.executable, "-m", "rcclx.preload", PYTHONPATH=folder + ":" + os.environ["PYTHONPATH"])
        assert ran.stdout.endswith("/librccl.so.1\n"), ran


@test
def ranks_of_rcclx_run():
    tool = os.path.join(os.path.dirname(OURS), "..", "bin", "rcclx")
    ran = run(tool, "run", "--preload", "-n", "2", "--", sys.executable, "-c", asks())
    assert ran.stdout.replace("\n", "") == str(VERSION) * 2, ran
    ran = run(tool, "run", "-n", "1", "--", sys.executable, "-c", asks())
    assert ran.stdout == "12345\n", ran
    copy = os.path.join(_folder.name, "rcclx")
    shutil.copy(tool, copy)
    ran = run(copy, "run", "--preload", "-n", "1", "--", "true")
    assert ran.returncode == 3 and "../lib/libnccl.so.2" in ran.stderr and "build or install" in ran.stderr, ran


main()
