# SPDX-License-Identifier: MIT
"""Text to roff, for the scripts that make manual pages. The macros are those of man(7)."""
import os
import re
import textwrap
import time

WIDTH = 78  # of a line in the source; readers fill lines as wide as they like


def escape(text):
    """Text in which nothing is roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    for sign, name in (("'", "aq"), ("^", "ha"), ("~", "ti"), ("`", "ga")):
        text = text.replace(sign, f"\\({name}")
    return text


def bold(text):
    return f"\\fB\\%{escape(text)}\\fR"  # \% in front: is not hyphenated


def lines_of(text):
    """Lines that may stand alone: one that begins with a dot would be a request."""
    return [f"\\&{line}" if line.startswith((".", "'")) else line for line in text.splitlines()]


def prose(text, known=()):
    """A paragraph as source lines. `code` and the functions that are known become bold."""
    parts = re.split(r"(`[^`]+`|\bcudalink_\w+(?:\(\))?)", " ".join(text.split()))
    made = ""
    for part, following in zip(parts, [*parts[1:], ""]):
        name = part.removesuffix("()")
        if part.startswith("`") and len(part) > 1:
            made += bold(part[1:-1])
        elif name in known and not following.startswith("("):
            made += f"{bold(name)}(3)"
        else:
            made += escape(part).replace("\\(aq", "'") if not part.startswith("cudalink_") else bold(part)
    filled = textwrap.fill(made, WIDTH, break_long_words=False, break_on_hyphens=False)
    return lines_of(filled)


def code(text):
    """Lines as they are, in a fixed font."""
    return [".PP", ".in +4n", ".EX", *lines_of(escape(textwrap.dedent(text).rstrip())), ".EE", ".in"]


def blocks(text, known=()):
    """Paragraphs, bullets (`- ` in front, deeper lines belong to them) and ``` fences."""
    made, paragraph, fence = [], [], None

    def flush(macro=".PP"):
        if paragraph:
            item = paragraph[0].lstrip().startswith("- ")
            body = " ".join(paragraph).strip().removeprefix("- ")
            made.append(".IP \\(bu 2" if item else macro)
            made.extend(prose(body, known))
            paragraph.clear()

    for line in text.splitlines():
        if line.strip().startswith("```"):
            flush()
            if fence is not None:
                made.extend(code("\n".join(fence)))
            fence = [] if fence is None else None
        elif fence is not None:
            fence.append(line)
        elif not line.strip():
            flush()
        else:
            if line.lstrip().startswith("- "):
                flush()
            paragraph.append(line)
    flush()
    return made


def date():
    """Of the page: SOURCE_DATE_EPOCH makes the same page every day."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(when))


def head(name, section, version):
    return ['.\\" SPDX-License-Identifier: MIT',
            f'.TH {escape(name)} {section} "{date()}" "cuda\\-link {version}" ""',
            ".ad l"]


def section(title, lines):
    """A section; its first paragraph needs no macro."""
    if lines and lines[0] == ".PP":
        lines = lines[1:]
    return [f'.SH "{title}"', *lines] if lines else []
