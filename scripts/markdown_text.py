# SPDX-License-Identifier: MIT
"""Comments and docstrings as Markdown: their signs are text, their `code`, bullets and indented or fenced
lines stay what they are."""
import re
import textwrap

WORDS = re.compile(r"(`[^`\n]+`|\b\w+(?:\(\))?)")


def code(text, language=""):
    return [f"```{language}", *textwrap.dedent(text).rstrip().splitlines(), "```"]


def escape(text):
    text = re.sub(r"([*_\\\[\]])", r"\\\1", text).replace("<", "&lt;")
    return re.sub(r"(?<!\w)\\\*(\w+)\\\*(?!\w)", r"*\1*", text)  # emphasis of one word


def sentence(text, links):
    return prose(text[0].upper() + text[1:], links)


def prose(text, links):
    """A line. Names that have a place in `links` lead there."""
    made = ""
    for part in WORDS.split(text):
        name = part.strip("`").removesuffix("()")
        if name in links and (part.startswith("`") or "_" in name or part.endswith("()")):
            made += f"[`{name}`]({links[name]})"
        else:
            made += part if part.startswith("`") and len(part) > 1 else escape(part)
    return made


def blocks(text, links):
    made, fence = [], False
    for line in textwrap.dedent(text).splitlines():
        if line.strip().startswith("```"):
            fence = not fence
            made.append(line.strip().split()[0])  # what follows the language is for our tests
        elif fence or line.startswith("    "):
            made.append(line)
        else:
            if line.startswith("- ") and made and made[-1].strip() and not made[-1].startswith(("- ", "  ")):
                made.append("")
            made.append(prose(line, links))
    return made
