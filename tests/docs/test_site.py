#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_site.py ROOT: the manual as a site. Every function of the headers and every name of the Python package
has its place, nothing is there that is not for readers, and no page takes a script or a style from
another host."""
import ast
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//([^/\"' >]+)")


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="cudalink-site-"))
        subprocess.run([ROOT / "scripts/site", cls.folder], check=True)
        cls.site = cls.folder / "site"

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def page(self, name):
        return (self.site / name).read_text(encoding="utf-8")

    def assertIn(self, text, page):  # noqa: N802: a failure does not show the whole page
        self.assertTrue(text in page, text)

    def assert_has(self, page, anchors):
        self.assertEqual(set(anchors) - set(re.findall(r'<h[1-6] id="([^"]+)"', page)), set())

    def test_c(self):
        """Each function stands on its header's page, with its text and its declaration."""
        count = 0
        for header in (ROOT / "include/cudalink").glob("*.h"):
            text = header.read_text(encoding="utf-8")
            functions = re.findall(r"^CUDALINK_API[^;(]*?\b(cudalink_\w+)\(", text, re.M)
            if functions:
                self.assert_has(self.page(f"c/{header.stem}.html"), functions)
            count += len(functions)
        self.assertGreater(count, 40)
        page = self.page("c/exporter.html")
        self.assertIn("int cudalink_exporter_publish(cudalink_exporter exporter", page)
        self.assertIn("typedef struct cudalink_exporter_spec {", page)
        self.assertIn("Errors:</p>\n<p>As begin and publish; INVALID_ARGUMENT", page)

    def test_python(self):
        tree = ast.parse((ROOT / "python/cuda_link/__init__.py").read_text(encoding="utf-8"))
        names = next(
            ast.literal_eval(one.value) for one in tree.body
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__"
        )  # fmt: skip
        page = self.page("py/cuda_link.html")
        self.assertGreater(len(names), 40)
        self.assert_has(page, map(str.lower, names))
        self.assert_has(page, ["frameplanes", "framerelease", "frame__dlpack__", "queueput"])
        self.assertIn("until it is released, its producer does not write", page)
        self.assert_has(self.page("py/cuda_link_torch.html"), ["from_torch", "torch_mempool"])

    def test_only_what_is_for_readers(self):
        endings = {path.suffix for path in self.site.rglob("*") if path.is_file()}
        self.assertEqual(endings & {".in", ".build", ".md", ".py"}, set())
        self.assertFalse((self.site / "man").exists())

    def test_nothing_from_other_hosts(self):
        for page in self.site.rglob("*.html"):
            self.assertEqual(FETCHED.findall(page.read_text(encoding="utf-8")), [], page.name)

    def test_the_overview_leads_to_both(self):
        page = self.page("index.html")
        for place in ("c/exporter.html", "py/cuda_link.html"):
            self.assertIn(f'href="{place}"', page)


if not shutil.which("mkdocs"):
    print("skip: needs mkdocs")
    sys.exit(77)
unittest.main(verbosity=2)
