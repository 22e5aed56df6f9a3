#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs `make install` into an empty folder and uses the result as its users do: from pkg-config
(shared and static), from CMake, as a program. Also checks what the shared library shows and needs."""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# The C library, in the files that it comes in (fewer since glibc 2.34).
LIBC = re.compile(r"(libc\.so\.6|ld-linux.*|libpthread\.so\.0|libdl\.so\.2|libm\.so\.6|librt\.so\.1)$")


class Install:
    def __init__(self, options, folder):
        self.options = options
        self.folder = Path(folder)
        self.example = Path(options.root) / "examples" / "cmake"
        self.prefix = self.folder / "prefix"
        (self.folder / "run").mkdir(mode=0o700)
        self.environment = {
            key: value for key, value in os.environ.items()
            # An outer make or meson must not reach into the inner one.
            if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DESTDIR", "CFLAGS", "LDFLAGS")
        }
        self.environment["CUDALINK_RUNTIME_DIR"] = str(self.folder / "run")
        self.environment["TMPDIR"] = str(self.folder)  # consumers look in the usual folders, too

    def try_run(self, *command, **environment):
        command = [str(word) for word in command]
        print("$", " ".join(command), flush=True)
        return subprocess.run(command, env={**self.environment, **environment}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, *command, **environment):
        result = self.try_run(*command, **environment)
        if result.returncode != 0:
            sys.exit(f"{result.stdout}\nended with {result.returncode}")
        return result.stdout

    def needs(self, program):
        """The shared libraries that a program asks for."""
        return re.findall(r"\(NEEDED\).*\[(.*)\]", self.run("readelf", "-dW", program))

    def find(self, name):
        found = sorted(self.prefix.rglob(name))
        if not found:
            sys.exit(f"{name} was not installed")
        return found[0]

    def make_install(self):
        self.run("make", "-C", self.options.root, "install", f"BUILD={self.folder / 'build'}",
                 f"PREFIX={self.prefix}", "MESON_OPTIONS=-Dtests=enabled -Dtools=enabled")
        tests = [path for path in (self.folder / "build" / "tests").rglob("*.o")]
        if tests:
            sys.exit(f"make install has built tests: {tests[:3]} ...")
        self.library = self.find("libcudalink.so.0").parent

    def check_files(self):
        installed = {path.name for path in (self.prefix / "include" / "cudalink").iterdir()}
        public = {path.name for path in (Path(self.options.root) / "include/cudalink").glob("*.h*")}
        if installed != public:
            sys.exit(f"headers: {installed ^ public} differ")
        for name in ("libcudalink.so", "libcudalink.a", "cudalink.pc", "cudalink-config.cmake",
                     "bash-completion/completions/cudalink", "zsh/site-functions/_cudalink"):
            self.find(name)

    def declared(self):
        text = "".join(path.read_text(encoding="utf-8")
                       for path in (self.prefix / "include/cudalink").glob("*.h"))
        return set(re.findall(r"^CUDALINK_API[^;(]*?\b(cudalink_\w+)\(", text, re.M))

    def check_manual(self):
        manual = self.find("man1").parent
        for name in ["man1/cudalink.1", "man7/cudalink.7", *(f"man3/{name}.3" for name in self.declared())]:
            if not (manual / name).exists():
                sys.exit(f"the manual has no {name}")

    def check_exports(self):
        shared = self.library / "libcudalink.so.0"
        names = [line.split()[-1].split("@")[0]
                 for line in self.run("nm", "-D", "--defined-only", shared).splitlines()]
        strangers = [name for name in names if not re.match(r"cudalink_|CUDALINK_0\.\d+$", name)]
        if strangers or not names:
            sys.exit(f"exported beside cudalink_: {strangers}")

        dynamic = self.run("readelf", "-dW", shared)
        needed = self.needs(shared)
        if [name for name in needed if not LIBC.match(name)]:
            sys.exit(f"the library needs more than libc: {needed}")
        if "NODELETE" not in dynamic or "[libcudalink.so.0]" not in dynamic:
            sys.exit(f"soname or nodelete is missing:\n{dynamic}")

    def check_declared(self):
        """Every function of the headers is in the library: nobody finds out at link time."""
        declared = self.declared()
        listing = self.run("nm", "-D", "--defined-only", self.library / "libcudalink.so.0")
        defined = set(re.findall(r"\bcudalink_\w+", listing))
        if declared - defined:
            sys.exit(f"declared but not in the library: {sorted(declared - defined)}")

    def pkg_config(self, *options):
        path = str(self.find("cudalink.pc").parent)
        return self.run("pkg-config", *options, "cudalink", PKG_CONFIG_PATH=path).split()

    def check_pkg_config(self):
        shared, static, cpp = (self.folder / name for name in ("shared", "static", "cpp"))
        source = self.example / "roundtrip.c"
        flags = self.pkg_config("--cflags", "--libs")
        self.run(self.options.compiler, "-std=c11", source, "-o", shared, *flags)
        self.run(self.options.cpp_compiler, "-std=c++17", source.with_suffix(".cpp"), "-o", cpp, *flags)
        self.run(self.options.compiler, "-std=c11", "-static", source, "-o", static,
                 *self.pkg_config("--static", "--cflags", "--libs"))
        for program in (shared, cpp):
            self.run(program, LD_LIBRARY_PATH=str(self.library))
        self.run(static)
        if self.needs(static):
            sys.exit("the static program needs a shared library")

    def configure_cmake(self, prefix):
        build = self.folder / "cmake-build"
        shutil.rmtree(build, ignore_errors=True)
        return build, self.try_run(
            "cmake", "-S", self.example, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DCMAKE_C_COMPILER={self.options.compiler}",
            f"-DCMAKE_CXX_COMPILER={self.options.cpp_compiler}")

    def check_cmake(self, prefix):
        build, configured = self.configure_cmake(prefix)
        if configured.returncode != 0:
            sys.exit(configured.stdout)
        self.run("cmake", "--build", build)
        for name, soname in (("shared", True), ("cpp", True), ("static", False)):
            program = build / f"roundtrip_{name}"
            self.run(program)
            if ("libcudalink.so.0" in self.needs(program)) != soname:
                sys.exit(f"{program.name} is linked with the wrong library: {self.needs(program)}")

    def check_cmake_versions(self):
        """Only the same minor number fits, from this patch number downwards."""
        files = self.find("cudalink-config-version.cmake")
        for version, fits in (("0.1", True), ("0.1.0", True), ("0.0", False), ("0.1.99", False),
                              ("0.2", False), ("1.0", False)):
            script = self.folder / "version.cmake"
            script.write_text(f'set(PACKAGE_FIND_VERSION "{version}")\ninclude("{files}")\n'
                              'message("compatible: ${PACKAGE_VERSION_COMPATIBLE}")\n')
            if f"compatible: {str(fits).upper()}" not in self.run("cmake", "-P", script):
                sys.exit(f"find_package(cudalink {version}) should be {fits}")

    def check_program(self):
        program = self.prefix / "bin" / "cudalink"
        self.run(program, "--help")

    def check_moved(self):
        """The CMake files find their installation after it was moved."""
        moved = self.folder / "moved"
        self.prefix.rename(moved)
        self.check_cmake(moved)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--cpp-compiler", required=True)
    with tempfile.TemporaryDirectory(prefix="cudalink-install-") as folder:
        install = Install(parser.parse_args(), folder)
        install.make_install()
        install.check_files()
        install.check_manual()
        install.check_exports()
        install.check_declared()
        install.check_pkg_config()
        install.check_cmake(install.prefix)
        install.check_cmake_versions()
        install.check_program()
        install.check_moved()


main()
