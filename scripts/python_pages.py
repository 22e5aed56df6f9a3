# SPDX-License-Identifier: MIT
"""The Python package's pages, from its source: nothing is imported, so nothing has to be built.

A name of `__all__` is looked up where __init__.py has it from. A class shows what it has itself and what
it has from bases that are not public."""
import ast
import functools
import sys
from pathlib import Path

from markdown_text import blocks, code, escape

SECTIONS = (("Functions", "function"), ("Classes", "class"), ("Exceptions", "error"), ("Values", "value"))
SHOWN = ("__dlpack__", "__dlpack_device__", "__enter__", "__iter__", "__next__", "__len__", "__getitem__")


class Package:
    def __init__(self, folder):
        self.folder = folder

    @functools.lru_cache(maxsize=None)
    def tree(self, module):
        path = self.folder / Path(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        return ast.parse(path.read_text(encoding="utf-8"))

    def module_of(self, module, statement):
        """Of `from .x import y`, seen from `module`."""
        is_folder = (self.folder / Path(*module.split("."))).is_dir() if module else True
        parts = module.split(".") if module else []
        parts = parts[: len(parts) - statement.level + (1 if is_folder else 0)]
        return ".".join([*parts, *((statement.module or "").split("."))]).strip(".")

    def find(self, module, name):
        """(module, statement) that makes the name; None when it is not of this package."""
        for statement in ast.walk(self.tree(module)):
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and statement.name == name:
                return module, statement
            targets = getattr(statement, "targets", [getattr(statement, "target", None)])
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and any(
                    isinstance(one, (ast.Name, ast.Tuple)) and name in ast.unparse(one).split(", ")
                    for one in targets):
                return module, statement
            if isinstance(statement, ast.ImportFrom) and statement.level:
                for one in statement.names:
                    if (one.asname or one.name) == name:
                        return self.find(self.module_of(module, statement), one.name)
        return None

    def exported(self, module):
        for statement in self.tree(module).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                return sorted(ast.literal_eval(statement.value), key=str.lower)
        sys.exit(f"site: {self.folder}/{module} has no __all__")


def signature(function, name, without_self):
    arguments = ast.unparse(function.args)
    if without_self:
        _, _, arguments = arguments.partition(", ")
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    line = f"{name}({arguments}){returns}"
    if len(line) <= 100:
        return line
    parts = [ast.unparse(part) if not isinstance(part, str) else part for part in split_arguments(function.args)]
    parts = parts[1:] if without_self else parts
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def split_arguments(arguments):
    """Each one as text, in order."""
    def one(argument, default):
        text = ast.unparse(argument)
        return text if default is None else f"{text} = {ast.unparse(default)}"

    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    made = [one(argument, default) for argument, default in zip(plain, defaults)]
    if arguments.posonlyargs:
        made.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        made.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        made.append("*")
    made += [one(argument, default) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return made + ([f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg else [])


def decorators(function):
    return {ast.unparse(one) for one in function.decorator_list}


def text_behind(body, place):
    """The string behind a field."""
    following = body[place + 1] if place + 1 < len(body) else None
    is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return following.value.value if is_text and isinstance(following.value.value, str) else ""


def fields_of(kind):
    for place, statement in enumerate(kind.body):
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.target).startswith("_"):
            yield ast.unparse(statement), text_behind(kind.body, place)


def methods_of(kind):
    for statement in kind.body:
        if not isinstance(statement, ast.FunctionDef):
            continue
        wanted = not statement.name.startswith("_") or statement.name in SHOWN
        marks = decorators(statement)
        if wanted and not any(mark.endswith((".setter", "overload")) for mark in marks):
            yield statement


class Writer:
    def __init__(self, package, module, title):
        self.package, self.module, self.title = package, module, title
        self.names = package.exported(module)
        self.lines = []

    def bases(self, module, kind):
        """The class, and those of its bases that nobody else is told of."""
        yield kind
        for base in kind.bases:
            name = ast.unparse(base).split("[")[0]
            found = None if name in self.names else self.package.find(module, name)
            if found and isinstance(found[1], ast.ClassDef):
                yield from self.bases(*found)

    def add_text(self, text):
        if text:
            self.lines += ["", *blocks(text if "\n" not in text else indent_first(text), {})]

    def add_function(self, function, name, level, is_method, text):
        self.lines += ["", f"{'#' * level} {escape(name)}", ""]
        if decorators(function) & {"property", "functools.cached_property", "cached_property"}:
            returns = f": {ast.unparse(function.returns)}" if function.returns else ""
            self.lines += code(name.rpartition(".")[2] + returns, "python")
        else:
            without_self = is_method and "staticmethod" not in decorators(function)
            self.lines += code(signature(function, name.rpartition(".")[2], without_self), "python")
        self.add_text(text)

    def add_class(self, module, kind):
        self.lines += ["", f"## {kind.name}"]
        self.add_text(ast.get_docstring(kind) or "")
        methods = {}  # the nearest one of each name; its text may be a base's
        for one in self.bases(module, kind):
            for field, text in fields_of(one):
                self.lines += ["", *code(field, "python")]
                self.add_text(text)
            for method in methods_of(one):
                first, text = methods.get(method.name, (method, ""))
                methods[method.name] = first, text or ast.get_docstring(method) or ""
        for name, (method, text) in methods.items():
            self.add_function(method, f"{kind.name}.{name}", 3, True, text)

    def add_value(self, name, statement):
        self.lines += ["", f"## {name}", "", *code(ast.unparse(statement), "python")]

    def sort_of(self, name, statement):
        if isinstance(statement, ast.FunctionDef):
            return "function"
        if isinstance(statement, ast.ClassDef):
            return "error" if name.endswith("Error") else "class"
        return "value"

    def write(self, path):
        self.lines = [f"# {self.title}"]
        self.add_text(ast.get_docstring(self.package.tree(self.module)) or "")
        found = {name: self.package.find(self.module, name) for name in self.names}
        missing = [name for name in self.names if not found[name]]
        if missing:
            sys.exit(f"site: nothing in the package makes {', '.join(missing)}")
        for title, sort in SECTIONS:
            chosen = [name for name in self.names if self.sort_of(name, found[name][1]) == sort]
            if chosen:
                listed = ", ".join(f"[`{name}`](#{name.lower()})" for name in chosen)
                self.lines += ["", f"**{title}**: {listed}"]
        for _, sort in SECTIONS:
            for name in self.names:
                module, statement = found[name]
                if self.sort_of(name, statement) != sort:
                    continue
                if sort == "function":
                    self.add_function(statement, name, 2, False, ast.get_docstring(statement) or "")
                elif sort == "value":
                    self.add_value(name, statement)
                else:
                    self.add_class(module, statement)
        path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")


def indent_first(text):
    """A docstring of a field: its first line stands behind the quotes, the others are indented."""
    first, _, rest = text.partition("\n")
    lines = rest.splitlines()
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join([first, *(line[depth:] for line in lines)])


def write(root, folder):
    """The lines for the table of contents."""
    folder.mkdir()
    package = Package(root / "python" / "cuda_link")
    Writer(package, "", "cuda_link").write(folder / "cuda_link.md")
    Writer(package, "torch", "cuda_link.torch").write(folder / "cuda_link_torch.md")
    return ["      - cuda_link: py/cuda_link.md", "      - cuda_link.torch: py/cuda_link_torch.md"]
