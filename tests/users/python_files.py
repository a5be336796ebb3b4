"""Public names of modules that cannot be imported without torch, transformers, vLLM or Ray: from
the files of the package as it is installed."""
from __future__ import annotations

import ast
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def file_of(module: Path) -> Path:
    return module / "__init__.py" if module.is_dir() else module.with_suffix(".py")


def function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    kinds = "".join(f"{ast.unparse(kind)} " for kind in node.decorator_list)
    return f"{kinds}{node.name}({ast.unparse(node.args)}){returns}"


def described(node: Definition) -> list[str]:
    if not isinstance(node, ast.ClassDef):
        return [function(node)]
    lines = [f"class {node.name}({', '.join(map(ast.unparse, node.bases))})"]
    for member in node.body:
        if isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if member.name in ("__init__", "__call__") or not member.name.startswith("_"):
                lines.append(f"  {function(member)}")
        elif isinstance(member, (ast.Assign, ast.AnnAssign)):
            lines.append(f"  {ast.unparse(member)}")
    return lines


def is_alias(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and \
        not ast.unparse(node.targets[0]).startswith("_")


def names(module: Path) -> list[str]:
    """Those of __all__, or those that the file defines."""
    found: list[str] = []
    for node in ast.parse(file_of(module).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
        if isinstance(node, Definition) and not node.name.startswith("_"):
            found.append(node.name)
        elif is_alias(node):
            found.append(ast.unparse(node.targets[0]))
    return sorted(found)


def find(module: Path, name: str) -> list[str]:
    """What is said of a name, in the file or in the one that it is imported from."""
    file = file_of(module)
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, Definition) and node.name == name:
            return described(node)
        if is_alias(node) and ast.unparse(node.targets[0]) == name:
            return [ast.unparse(node)]
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and \
                name in [alias.asname or alias.name for alias in node.names]:
            return find(file.parent / node.module, name)
    return [name]


def texts_of(package: Path, module: str) -> list[str]:
    """Of a module and of those within it that its __all__ has."""
    path = package.joinpath(*module.split("."))
    lines, inner = [f"module subbyte.{module}"], []
    for name in names(path):
        if path.is_dir() and file_of(path / name).exists():
            inner += texts_of(package, f"{module}.{name}")
        else:
            lines += [f"  {line}" for line in find(path, name)]
    return lines + inner
