"""What pip makes of the tree: with a library in it and without, and how that is found."""
import os
import shutil
import subprocess
import sys
import tempfile

import rcclx
from tap import Skip, main, test

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")
CLEAN = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RCCLX_LIBRARY", "LD_LIBRARY_PATH")}


def wheel(folder, library):
    """Its name, and the folder that it is installed in."""
    source, made = os.path.join(folder, "source"), os.path.join(folder, "made")
    shutil.copytree(TREE, source, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__"))
    said = subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, source],
                          env={**CLEAN, "RCCLX_LIBRARY": library}, capture_output=True, text=True)
    if said.returncode and "No matching distribution found for setuptools" in said.stdout + said.stderr:
        raise Skip("setuptools cannot be had")
    assert said.returncode == 0, said.stdout + said.stderr
    name, = os.listdir(made)
    where = os.path.join(folder, "installed")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", where,
                    os.path.join(made, name)], env=CLEAN, check=True, capture_output=True)
    return name, where


def python(where, code, **env):
    return subprocess.run([sys.executable, "-c", code], cwd=where, env={**CLEAN, **env}, capture_output=True, text=True)


@test
def a_wheel_takes_the_library_along():
    with tempfile.TemporaryDirectory() as folder:
        name, where = wheel(folder, rcclx.library_path)
        assert name.startswith("rcclx-") and "-py3-none-linux_" in name, name
        assert os.path.exists(os.path.join(where, "rcclx", "py.typed"))
        ran = python(where, "import rcclx; print(rcclx.library_path); rcclx.Communicator.from_env().all_reduce(bytearray(4))")
        assert ran.stdout.strip() == os.path.join(where, "rcclx", "lib", "librcclx.so"), ran
        assert "InvalidArgument: x: a bytearray has none" in ran.stderr, ran.stderr
        ran = python(where, "import rcclx.preload; print(rcclx.preload.path)")
        assert ran.stdout.strip() == os.path.join(where, "rcclx", "lib", "libnccl.so.2"), ran


@test
def a_wheel_without_one_is_for_any_platform():
    with tempfile.TemporaryDirectory() as folder:
        name, where = wheel(folder, "")
        assert name.endswith("-py3-none-any.whl"), name
        ran = python(where, "import rcclx")
        if ran.returncode:  # none is installed on this machine either
            assert "ImportError: rcclx: librcclx.so cannot be loaded" in ran.stderr, ran.stderr
        folder_of_it = os.path.dirname(rcclx.library_path)
        ran = python(where, "import rcclx; print(rcclx.library_path)", LD_LIBRARY_PATH=folder_of_it)
        assert ran.stdout == "librcclx.so\n", ran


@test
def versions_agree():
    assert rcclx.__version__ == rcclx.library_version(), (rcclx.__version__, rcclx.library_version())


main()
