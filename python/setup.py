"""The package is Python alone. Where the C library has been built, a wheel takes
a copy of it along, in rcclx/lib, with the libnccl.so.2 and librccl.so.1 beside it
(rcclx.preload), and is then a wheel of this platform; without one it is a wheel of
any, and the library is looked for when it is imported.

Which library: RCCLX_LIBRARY, or build/lib of the tree that this file is in.
RCCLX_LIBRARY= (empty) takes none.
"""
import os
import shutil

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.environ.get("RCCLX_LIBRARY", os.path.join(os.path.dirname(HERE), "build", "lib", "librcclx.so"))
PRESENT = bool(LIBRARY) and os.path.exists(LIBRARY)


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):  # it finds the tree's
            return
        folder = os.path.join(self.build_lib, "rcclx", "lib")
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier build
        if PRESENT:
            os.makedirs(folder)
            shutil.copy(LIBRARY, os.path.join(folder, "librcclx.so"))
            for name in ("libnccl.so.2", "librccl.so.1"):
                beside = os.path.join(os.path.dirname(os.path.realpath(LIBRARY)), name)
                if os.path.exists(beside):
                    shutil.copy(beside, folder)


class PlatformWheel(bdist_wheel):
    def get_tag(self):  # of this platform, but for every Python 3
        return ("py3", "none", super().get_tag()[2])


class MaybePlatform(Distribution):
    def has_ext_modules(self):
        return PRESENT


setup(distclass=MaybePlatform, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})
