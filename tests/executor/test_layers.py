"""The executor's own layers: the commands are on top of it, and nothing below knows them."""

from __future__ import annotations

import ast
from pathlib import Path

from hetsched import executor

FOLDER = Path(str(executor.__file__)).parent


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
    return names


def test_no_module_of_the_executor_imports_a_command() -> None:
    modules = list(FOLDER.glob("*.py"))
    assert len(modules) > 40
    wrong = {
        path.name: name
        for path in modules
        for name in imported(path)
        if name.startswith("hetsched.executor.commands")
    }
    assert wrong == {}
