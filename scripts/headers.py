# SPDX-License-Identifier: MIT
"""Reads the public headers, for the scripts that make pages of them. The header is the manual: what stands
above a function is its text. Functions that follow each other without a gap may share one."""
import re
import sys
import textwrap
from pathlib import Path

COMMENT = re.compile(r"^/\*.*?\*/\n", re.M | re.S)
FUNCTION = re.compile(r"^CUDALINK_API\s+([^;]*?\b(cudalink_\w+)\([^;]*\));", re.M)
STRUCT = re.compile(r"^typedef (?:struct|enum) (\w+) \{.*?^\} \1;", re.M | re.S)
MACRO = re.compile(r"^#define (CUDALINK_\w+)(\(\w+\))?[ \t]+(?:.*\\\n)*.*\n", re.M)
CALLBACK = re.compile(r"^typedef [^;{]*\(\*(\w+)\)[^;]*;", re.M)


class Function:
    def __init__(self, name, declaration, header, text, siblings):
        self.name, self.header, self.text, self.siblings = name, header, text, siblings
        self.declaration = re.sub(r"\s+", " ", declaration)


def text_of(comment):
    """A comment without its stars; "" for a line that only divides the header."""
    inner = comment.strip().removeprefix("/*").removesuffix("*/")
    text = textwrap.dedent("\n".join(re.sub(r"^ \* ?", "", line) for line in inner.splitlines())).strip()
    return "" if text.startswith("----") else text


def chunks_of(source):
    """The comments at the beginning of a line, each with the code up to the next one."""
    places = list(COMMENT.finditer(source))
    for place, following in zip(places, [*places[1:], None]):
        yield text_of(place.group()), source[place.end() : following.start() if following else None]


class Header:
    def __init__(self, path):
        source = path.read_text(encoding="utf-8")
        chunks = list(chunks_of(source))
        self.name, self.page = path.name, f"cudalink_{path.stem}"
        # The comment of a file: licence, one line that says what it is, the rest.
        _, line, self.text = (chunks[0][0] + "\n\n").split("\n\n", 2)
        self.summary = " ".join(line.split()).split(" - ", 1)[1].rstrip(".")
        self.types = {found.group(1): found.group()
                      for pattern in (STRUCT, CALLBACK) for found in pattern.finditer(source)}
        # What a caller writes in place of a value: not sizes, not lists that others are made of.
        self.macros = [self.laid_out(found) for found in MACRO.finditer(source)
                       if "cudalink_stream_make" in found.group() or found.group(1) == "CUDALINK_DEVICE"]
        self.errors = re.findall(r'^  X\((\w+), (-\d+), "([^"]*)"\)', source, re.M)
        self.functions = []
        for number, (text, code) in enumerate(chunks):
            found = list(FUNCTION.finditer(code))
            siblings = [one.group(1) for one in found]
            for place, one in enumerate(found):
                gap = code[found[place - 1].end() : one.start()] if place else ""
                declaration, name = one.groups()
                if number == 0 or not text or "\n\n" in gap:  # the first comment is the file's
                    sys.exit(f"{Path(sys.argv[0]).name}: {path}: {name} has no comment that says what it does")
                self.functions.append(Function(name, declaration, self, text, siblings))

    @staticmethod
    def laid_out(macro):
        """On one line where that is not too long for a page of 80 columns."""
        line = " ".join(macro.group().replace("\\\n", " ").split())
        if len(line) <= 72:
            return line
        name = f"#define {macro.group(1)}{macro.group(2) or ''}"
        return f"{name} \\\n  {line.removeprefix(name).strip()}"


class Headers:
    def __init__(self, paths):
        self.all = [Header(path) for path in map(Path, paths) if path.suffix == ".h"]
        self.functions = [function for header in self.all for function in header.functions]
        self.names = {function.name for function in self.functions}
        self.types = {name: text for header in self.all for name, text in header.types.items()}
        self.home = {name: header for header in self.all for name in header.types}
        self.base = next(header for header in self.all if header.name == "base.h")
        # base.h is told in cudalink(7); the header of all headers has nothing of its own.
        self.paged = [one for one in self.all if one.functions and one is not self.base]

    def pages(self):
        names = [f"{function.name}.3" for function in self.functions]
        return names + [f"{header.page}.7" for header in self.paged] + ["cudalink.7"]


def summary_of(text):
    """The first sentence, as NAME wants it: one line, no full stop, no capital."""
    line = " ".join(text.split("\n\n")[0].split())
    line = re.sub(r" \([^()]*\)", "", line).replace("`", "")
    first = re.split(r"[.:;](?:\s|$)", line)[0]
    return first[0].lower() + first[1:] if first[1:2].islower() or first[1:2] == " " else first


def split_errors(text):
    """The description, and what it says behind `Errors`."""
    kept, errors = [], []
    for paragraph in text.split("\n\n"):
        body, mark, rest = re.split(r"(?:^|(?<=\s))(Errors(?:[:,]))", paragraph, 1) if re.search(
            r"(?:^|\s)Errors[:,]", paragraph) else (paragraph, "", "")
        if body.strip():
            kept.append(body)
        if rest:
            rest = " ".join(rest.split())
            errors.append(rest[0].upper() + rest[1:] if mark == "Errors:" else f"Errors, {rest}")
    return "\n\n".join(kept), "\n\n".join(errors)


def wrap(declaration):
    """Breaks between arguments only."""
    lines = [""]
    for part in re.findall(r"[^,]+,?\s*", re.sub(r"\s+", " ", declaration) + ";"):
        if len(lines[-1]) + len(part.rstrip()) > 76:
            lines.append("    ")
        lines[-1] += part
    return [line.rstrip() for line in lines]
