# SPDX-License-Identifier: MIT
"""scripts/install-deps: what it installs on a bare machine, and the line that it prints where it can't. With
an apt of the test's own, on a PATH where nothing is installed.

Usage: test_install_deps.py ROOT
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))

# Package lists are a file with lines "PACKAGE VERSION"; apt-get update copies it from the mirror. A package
# that others only name has the version "(none)", and apt-cache show says yes to it.
APT_CACHE = """
[ -f lists ] || exit 0
version=$(sed -n "s/^$2 //p" lists)
if [ "$1" = show ]; then [ -n "$version" ]; exit; fi
printf '%s:\\n  Installed: (none)\\n  Candidate: %s\\n  Version table:\\n' "$2" "${version:-(none)}"
"""
APT_GET = """
echo "$*" >>calls
if [ "$1" = update ]; then cat mirror >lists; exit; fi
[ -f lists ] || exit 100
for package; do
  case $package in install | -*) continue ;; esac
  grep -q "^$package [^(]" lists || { echo "E: no $package" >&2; exit 100; }
  case $package in
    meson) meson=$(sed -n 's/^meson //p' lists); stub meson "echo ${meson%%-*}" ;;
    python3-venv) stub python3 "$(cat python)" ;;
  esac
done
"""
STUB = """
printf '#!/bin/sh\\n%s\\n' "$2" >"bin/$1"
chmod +x "bin/$1"
"""
PYTHON = """
case $* in
  "-m venv .venv") mkdir -p .venv/bin; cp pip .venv/bin/pip ;;
  *from_dlpack*) grep -q "^python3-numpy 1:1.24" lists ;;
esac
"""
PIP = """#!/bin/sh
echo "pip $*" >>calls
printf '#!/bin/sh\\necho 1.9.0\\n' >.venv/bin/meson
chmod +x .venv/bin/meson
"""
TOOLS = ["sh", "dpkg", "sed", "grep", "cat", "cp", "mkdir", "chmod", "dirname", "env"]

OTHERS = ["gcc", "libc6-dev", "ninja-build", "pkg-config", "libpng-dev"]
FOR_TESTS = """g++ clang cmake libcmocka-dev ffmpeg python3-dev python3-numpy python3-pytest python3-pil spin
groff-base mandoc debhelper tmux zsh""".split()
OLD, NEW = "0.61.2-1", "1.3.2-1ubuntu1"
OLD_NUMPY, NEW_NUMPY = "1:1.21.5-1", "1:1.24.2-1"
OLD_TORCH, NEW_TORCH = "1.8.1-4", "1.13.1+dfsg-4"


def release(meson, torch, numpy):
    """The packages that a mirror has, as lines."""
    others = {*OTHERS, *FOR_TESTS, "python3-venv"} - {"python3-numpy"}
    lines = [f"{package} 1.0" for package in sorted(others)]
    return "\n".join([*lines, f"meson {meson}", f"python3-torch {torch}", f"python3-numpy {numpy}", ""])


@unittest.skipUnless(shutil.which("dpkg"), "needs dpkg")
class InstallDeps(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.tree = Path(temporary.name)
        self.bin = self.tree / "bin"
        self.bin.mkdir()
        (self.tree / "scripts").mkdir()
        # Of the machine's own Python the script asks for modules by its full path.
        script = (ROOT / "scripts" / "install-deps").read_text(encoding="utf-8")
        self.write(self.tree / "scripts" / "install-deps", script.replace("/usr/bin/python3", "python3"))
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for name, text in (("apt-cache", APT_CACHE), ("apt-get", APT_GET), ("stub", STUB)):
            self.write(self.bin / name, "#!/bin/sh\n" + text)
        self.write(self.tree / "pip", PIP)
        self.write(self.tree / "python", PYTHON)

    def write(self, path, text):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def machine(self, meson, torch=NEW_TORCH, numpy=NEW_NUMPY, lists=True, root=True):
        packages = release(meson, torch, numpy)
        (self.tree / "mirror").write_text(packages, encoding="utf-8")
        if lists:
            (self.tree / "lists").write_text(packages, encoding="utf-8")
        self.write(self.bin / "id", f"#!/bin/sh\necho {0 if root else 1000}\n")

    def install(self, what):
        return subprocess.run([self.tree / "scripts" / "install-deps", what], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True,
                              env={**os.environ, "PATH": str(self.bin)})

    def calls(self):
        path = self.tree / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def printed(self, what):
        """The packages in the line for a user who can't install."""
        ended = self.install(what)
        self.assertEqual((ended.returncode, self.calls()), (1, []), ended.stderr)
        line = ended.stderr.splitlines()[-1]
        before, _, packages = line.partition(" --no-install-recommends ")
        self.assertEqual(before, "  apt-get update && apt-get install -y")
        packages = packages.split()
        self.assertEqual(len(packages), len(set(packages)), line)
        return set(packages)

    def test_a_user_is_told_one_line_for_all(self):
        for meson, wanted in ((NEW, {"meson"}), (OLD, {"python3-venv"})):
            with self.subTest(meson=meson):
                self.machine(meson, root=False)
                self.assertEqual(self.printed("demo"), {*OTHERS, *wanted})

    def test_without_lists_the_line_does_for_every_release(self):
        self.machine(OLD, lists=False, root=False)
        self.assertEqual(self.printed("demo"), {*OTHERS, "meson", "python3-venv"})
        self.assertEqual(self.printed("test"), {*OTHERS, *FOR_TESTS, "meson", "python3-venv"})

    def test_torch_is_wanted_only_where_there_is_a_new_one(self):
        for torch, wanted in ((NEW_TORCH, {"python3-torch"}), (OLD_TORCH, set()), ("(none)", set())):
            with self.subTest(torch=torch):
                self.machine(NEW, torch, root=False)
                always = {*OTHERS, *FOR_TESTS, "meson", "python3-venv"}
                self.assertEqual(self.printed("test"), always | wanted)

    def test_root_without_lists_looks_again_after_the_update(self):
        self.machine(NEW, "(none)", lists=False)
        ended = self.install("test")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(self.calls()[1], "update")
        self.assertEqual(len(self.calls()), 3, "more than what the lists say was tried")
        self.assertNotIn("python3-torch", self.calls()[2].split())

    def test_root_gets_torch_after_the_update(self):
        self.machine(NEW, lists=False)
        self.assertEqual(self.install("test").returncode, 0)
        self.assertIn("python3-torch", self.calls()[2].split())

    def test_a_newer_meson_goes_into_a_folder(self):
        self.machine(OLD)
        ended = self.install("demo")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue((self.tree / ".venv" / "bin" / "meson").exists())
        self.assertNotIn("meson", self.calls()[0].split())
        self.assertEqual(self.calls()[1:], ["pip install --quiet meson>=1.0"])

    def test_newer_python_packages_go_into_a_folder(self):
        for numpy, wanted in ((NEW_NUMPY, []), (OLD_NUMPY, ["pip install --quiet numpy pytest pillow"])):
            with self.subTest(numpy=numpy):
                self.machine(NEW, numpy=numpy)
                ended = self.install("test")
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertEqual([call for call in self.calls() if call.startswith("pip")], wanted)


unittest.main(argv=sys.argv[:1], verbosity=2)
