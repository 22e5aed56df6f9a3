#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the Debian packages and looks at them, without installing any: versions, dependencies, what is in
which package, and a program that is built and run from what they unpack to. scripts/test-deb installs them
into a fresh Debian."""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = {"libcudalink0", "libcudalink-dev", "cudalink"}


class Packages:
    def __init__(self, options, folder):
        self.options, self.folder, self.root = options, Path(folder), Path(folder) / "root"
        self.root_of_source = Path(options.root)
        (self.folder / "run").mkdir(mode=0o700)
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DESTDIR", "CFLAGS", "LDFLAGS")}
        self.environment["CUDALINK_RUNTIME_DIR"] = str(self.folder / "run")
        self.environment["TMPDIR"] = str(self.folder)  # consumers look in the usual folders, too

    def run(self, *command, **environment):
        command = [str(word) for word in command]
        print("$", " ".join(command), flush=True)
        result = subprocess.run(command, env={**self.environment, **environment}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode != 0:
            sys.exit(f"{result.stdout}\nended with {result.returncode}")
        return result.stdout

    def build(self):
        self.run(self.root_of_source / "scripts/build-deb", self.folder / "deb")
        made = (self.folder / "deb").glob("*.deb")
        self.files = {path.name.split("_")[0]: path for path in made if "-dbgsym" not in path.name}
        if set(self.files) != PACKAGES:
            sys.exit(f"packages: {sorted(self.files)}")

    def field(self, package, name):
        return self.run("dpkg-deb", "--field", self.files[package], name).strip()

    def check_fields(self):
        for package in PACKAGES:
            version = self.field(package, "Version")
            if version.split("-")[0].split("~")[0] != self.options.version:
                sys.exit(f"{package} is {version}, the project {self.options.version}: see debian/changelog")
        needs = [word.strip().split(" ")[0] for word in self.field("libcudalink0", "Depends").split(",")]
        if needs != ["libc6"]:
            sys.exit(f"the library needs more than libc: {needs}")
        if f"libcudalink0 (= {version})" not in self.field("libcudalink-dev", "Depends"):
            sys.exit("libcudalink-dev goes with any libcudalink0")
        if "libcudalink0" in self.field("cudalink", "Depends"):
            sys.exit("the program has the library inside, but its package wants it")

    def unpack(self):
        """Each package alone, then all together; no file is in two of them."""
        owners = {}
        for package, path in sorted(self.files.items()):
            alone = self.folder / package
            for target in (alone, self.root):
                self.run("dpkg-deb", "--extract", path, target)
            for file in alone.rglob("*"):
                if not file.is_dir() and owners.setdefault(file.relative_to(alone), package) != package:
                    sys.exit(f"{file.relative_to(alone)} is in {package} and {owners[file.relative_to(alone)]}")
        self.library = next(self.root.rglob("libcudalink.so.0")).parent
        for name, package in {"libcudalink.so.0": "libcudalink0", "libcudalink.so": "libcudalink-dev",
                              "libcudalink.a": "libcudalink-dev", "cudalink.pc": "libcudalink-dev",
                              "cudalink.hpp": "libcudalink-dev", "cudalink.7.gz": "libcudalink-dev",
                              "cudalink_pack.3.gz": "libcudalink-dev", "cudalink": "cudalink",
                              "cudalink.1.gz": "cudalink"}.items():
            if package not in {owners[path] for path in owners if path.name == name}:
                sys.exit(f"{name} is not in {package}")

    def use(self):
        self.run(self.root / "usr/bin/cudalink", "demo", "--seconds", "0.2", "--size", "64x64", "--kind", "host")
        source = self.root_of_source / "examples/cmake/roundtrip.c"
        program = self.folder / "program"
        # The link of libcudalink-dev leads into libcudalink0.
        self.run(self.options.compiler, source, "-o", program, f"-I{self.root / 'usr/include'}",
                 f"-L{self.library}", "-lcudalink")
        self.run(program, LD_LIBRARY_PATH=str(self.library))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("root", "version", "compiler"):
        parser.add_argument(f"--{name}", required=True)
    with tempfile.TemporaryDirectory(prefix="cudalink-deb-") as folder:
        packages = Packages(parser.parse_args(), folder)
        packages.build()
        packages.check_fields()
        packages.unpack()
        packages.use()


main()
