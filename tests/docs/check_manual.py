#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_manual.py ROOT

The manual is whole: every link and picture of every page leads somewhere, those of docs/ to what the site has, every
page of docs/ is in its table of contents, every member of the two specs is in docs/tuning.md, every NVTX range is in docs/profiling.md.
"""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1]).resolve()
failures = []


def check_links(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        leads_to = (page.parent / target).resolve()
        if not leads_to.exists():
            failures.append(f"{page.relative_to(root)}: {target} does not exist")
        elif root / "docs" in page.parents and root / "docs" not in leads_to.parents:
            failures.append(f"{page.relative_to(root)}: {target} is not on the site: name it without a link")


def members(header, spec):
    text = (root / "include/cudalink" / header).read_text(encoding="utf-8")
    body = re.search(r"typedef struct " + spec + r" \{(.*?)\n\} " + spec, text, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    for declaration in body.split(";"):
        name = re.search(r"(\w+)\s*(\[[^]]*\])?\s*$", declaration.strip())
        if name and name.group(1) != "size":
            yield name.group(1)


pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("bench/*.md")]
for page in pages:
    check_links(page)

contents = (root / "mkdocs.yml").read_text(encoding="utf-8")
for page in root.glob("docs/*.md"):
    if page.name not in contents:
        failures.append(f"docs/{page.name} is not in mkdocs.yml")

tuning = (root / "docs/tuning.md").read_text(encoding="utf-8")
for header, spec in (("exporter.h", "cudalink_exporter_spec"), ("importer.h", "cudalink_importer_spec")):
    for name in members(header, spec):
        if f"`{name}`" not in tuning:
            failures.append(f"{spec}.{name} is not in docs/tuning.md")

profiling = (root / "docs/profiling.md").read_text(encoding="utf-8")
for source in sorted(root.glob("src/**/*.c")):
    text = source.read_text(encoding="utf-8")
    for name in re.findall(r'NVTX_(?:INNER_)?RANGE\("([^"]+)"', text):
        if not re.search(rf"^\| `{re.escape(name)}(\.slotN)?` \|", profiling, re.M):
            failures.append(f"the range {name} of {source.name} is not in docs/profiling.md")

print("\n".join(failures) or f"{len(pages)} pages")
sys.exit(1 if failures else 0)
