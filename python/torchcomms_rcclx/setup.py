"""Compiled at install, against the torch and the torchcomms that are installed, with the headers of torchcomms' sources,
which its wheels do not bring along:

    TORCHCOMMS_SOURCE=/path/to/torchcomms pip install --no-build-isolation ./python/torchcomms_rcclx

RCCLX_LIBRARY    librcclx.so, of which a copy is taken along; default: build/lib of the tree this lies in
RCCLX_INCLUDE    the folder of rcclx.h; default: include of the tree
"""
import glob
import importlib.metadata
import importlib.util
import os
import re
import shutil
import sys

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
LIBRARY = os.environ.get("RCCLX_LIBRARY") or os.path.join(TREE, "build", "lib", "librcclx.so")
INCLUDE = os.environ.get("RCCLX_INCLUDE") or os.path.join(TREE, "include")
INTERFACES = ("1.1", "1.2", "1.3")  # what the class in csrc/backend.h fits


def stop(why):
    sys.exit(f"torchcomms_rcclx: {why}")


def find_torch():
    try:
        import torch
    except ImportError as why:
        stop(f"torch cannot be imported where this is built ({why}). Install it first, and pass --no-build-isolation to pip, "
             "so that this is compiled against the torch that it will run with.")
    return torch


def find_torchcomms():
    """The folder of the installed package, and its version."""
    spec = importlib.util.find_spec("torchcomms")
    if not spec or not spec.origin:
        stop("torchcomms is not installed here. Install it first, and pass --no-build-isolation to pip.")
    folder = os.path.dirname(spec.origin)
    version = importlib.metadata.version("torchcomms")
    if not os.path.exists(os.path.join(folder, "libtorchcomms.so")):
        stop(f"the installed torchcomms ({version}, {folder}) has no libtorchcomms.so: it is too old, or a placeholder. Install a "
             "release of 0.3 or newer, or build it from TORCHCOMMS_SOURCE.")
    return folder, version


def find_interface():
    """The folder of torchcomms' sources, and the version of its interface to backends."""
    source = os.environ.get("TORCHCOMMS_SOURCE")
    if not source:
        stop("TORCHCOMMS_SOURCE is not set. It names the folder of torchcomms' sources, of the release that is installed: its "
             "wheels have no headers.")
    header = os.path.join(source, "comms", "torchcomms", "TorchCommBackend.hpp")
    if not os.path.exists(header):
        stop(f"TORCHCOMMS_SOURCE={source} has no comms/torchcomms/TorchCommBackend.hpp. It names the root of torchcomms' sources.")
    found = re.search(r'TORCHCOMM_BACKEND_ABI_VERSION\s*=\s*"([\d.]+)"', open(header, encoding="utf-8").read())
    version = found.group(1) if found else "of no number"
    if version not in INTERFACES:
        newer = found and [int(n) for n in version.split(".")] > [int(n) for n in INTERFACES[-1].split(".")]
        stop(f"the torchcomms in {source} has a backend interface {version}, too {'new' if newer else 'old'} for this version: it "
             f"knows {', '.join(INTERFACES)}. Take sources and installation of such a release, or "
             f"{'a newer RCCLX' if newer else 'a newer torchcomms'}.")
    return source, version


def find_library():
    if not os.path.exists(LIBRARY):
        stop(f"{LIBRARY} is not there. Run `make` in RCCLX's tree first, or set RCCLX_LIBRARY.")
    if not os.path.exists(os.path.join(INCLUDE, "rcclx.h")):
        stop(f"{INCLUDE} has no rcclx.h. Set RCCLX_INCLUDE.")


class BuildWithLibrary(build_py):
    """Beside the Python files: the C library, and what this was compiled for."""

    def run(self):
        super().run()
        folder = os.path.join(self.build_lib, "torchcomms_rcclx")
        os.makedirs(os.path.join(folder, "lib"), exist_ok=True)
        shutil.copy(LIBRARY, os.path.join(folder, "lib", "librcclx.so"))
        with open(os.path.join(folder, "_build.py"), "w", encoding="utf-8") as out:
            out.write(f"TORCH = {torch.__version__!r}\nTORCHCOMMS = {torchcomms_version!r}\nINTERFACE = {interface!r}\n")


def extension():
    from torch.utils import cpp_extension

    gpu = torch.version.cuda or torch.version.hip
    without = "allocator_host.cpp" if gpu else "allocator_gpu.cpp"
    sources = [path for path in sorted(glob.glob(os.path.join(HERE, "csrc", "*.cpp"))) if os.path.basename(path) != without]
    torch_libraries = ["c10", "torch_cpu"] + (["torch_hip" if torch.version.hip else "torch_cuda"] if gpu else [])
    made = Extension(
        "torchcomms_rcclx.librcclx_torchcomms", [os.path.relpath(path, HERE) for path in sources], language="c++",
        include_dirs=[INCLUDE, source] + (cpp_extension.include_paths("cuda") if gpu else cpp_extension.include_paths()),
        library_dirs=[torchcomms_folder] + cpp_extension.library_paths(), libraries=["torchcomms"] + torch_libraries,
        extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wno-attributes", "-Wno-overloaded-virtual"])
    return made, cpp_extension.BuildExtension.with_options(no_python_abi_suffix=True)


torch = find_torch()
torchcomms_folder, torchcomms_version = find_torchcomms()
source, interface = find_interface()
find_library()
module, BuildExtension = extension()
setup(ext_modules=[module], cmdclass={"build_py": BuildWithLibrary, "build_ext": BuildExtension})
