"""The package as it is shipped: the wheel, the commands, the rules of the house on every file."""

from __future__ import annotations

import ast
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = ("train", "evaluate", "dispatch")
NOT_PACKED = {".ci", ".github", "benchmarks", "docs", "examples", "tests"}
LONGEST_FILE = 400  # lines; the aim is 300


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """The files that git tracks, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("this copy of the repository is not a git checkout")
    files = [Path(name) for name in listing.stdout.split("\0") if name]
    return [file for file in files if (ROOT / file).is_file()]


def test_the_wheel_holds_exactly_the_tracked_files_of_the_package(
    tracked: list[Path], tmp_path: Path
) -> None:
    """A forgotten subpackage works in an editable installation and fails in a wheel."""
    source = tmp_path / "source"  # a copy: a build leaves its files in the folder
    for file in tracked:
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_bytes((ROOT / file).read_bytes())
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(tmp_path), str(source)]
    build = subprocess.run(command, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    expected = {
        f"hetsched/{file.as_posix()}"
        for file in tracked
        if file.parts[0] not in NOT_PACKED and file.suffix != ".md"
        if len(file.parts) > 1 or file.suffix == ".py" or file.name == "py.typed"
    }
    assert packed == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_installed_and_can_be_loaded(command: str) -> None:
    points = {point.name: point for point in metadata.distribution("hetsched").entry_points}
    point = points[f"hetsched-{command}"]
    assert point.value == f"hetsched.{command}:main"
    assert callable(point.load())
    assert (Path(sysconfig.get_path("scripts")) / point.name).exists()


def cpu_seconds_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.parametrize("command", COMMANDS)
def test_help_answers_within_a_second(command: str) -> None:
    """A second of CPU time: the clock on the wall also counts what else the computer does."""
    seconds = []
    for _ in range(3):
        before = cpu_seconds_of_children()
        answer = subprocess.run(
            [sys.executable, f"{command}.py", "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds.append(cpu_seconds_of_children() - before)
        assert answer.returncode == 0, answer.stderr
        assert "usage:" in answer.stdout
    assert statistics.median(seconds) < 1.0


@pytest.mark.parametrize(
    "module", ["hetsched", "hetsched.cli", "hetsched.envs.instance", "hetsched.envs.schedule"]
)
def test_importing_the_description_of_the_problem_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_every_imported_library_is_a_declared_dependency(tracked: list[Path]) -> None:
    """What another package happens to bring along may be gone with its next version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    declared = [*project["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].lower() for line in declared}
    provides = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py"}
    for file in tracked:
        if file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            else:
                continue
            for module in modules:
                top = module.split(".")[0]
                if top != "hetsched" and top not in sys.stdlib_module_names:
                    library = provides.get(top, top.replace("_", "-"))
                    assert library in names, f"{file}, line {node.lineno}: {top} is not declared"


def test_no_file_is_too_long_to_read_in_one_sitting(tracked: list[Path]) -> None:
    lengths = {
        file: (ROOT / file).read_text().count("\n") for file in tracked if file.suffix == ".py"
    }
    assert {file: length for file, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_says_what_it_is(tracked: list[Path]) -> None:
    silent = [
        str(file)
        for file in tracked
        if file.suffix == ".py"
        and (text := (ROOT / file).read_text())  # an empty __init__.py has nothing to say
        and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


def test_every_link_of_the_documents_leads_to_a_tracked_file(tracked: list[Path]) -> None:
    link = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
    known = {(ROOT / file).resolve() for file in tracked}
    known |= {folder for file in known for folder in file.parents}
    broken = [
        f"{file}: {target}"
        for file in tracked
        if file.suffix == ".md"
        for target in link.findall((ROOT / file).read_text())
        if (ROOT / file.parent / target).resolve() not in known
    ]
    assert broken == []


def test_no_file_names_a_place_on_one_persons_computer(tracked: list[Path]) -> None:
    place = re.compile(rb"(?<![\w.~-])/(?:home|root|tmp|Users|work|var/tmp|mnt)/")
    found = [
        f"{file}, line {number}"
        for file in tracked
        if file.suffix not in {".npz", ".png", ".safetensors"}
        for number, line in enumerate((ROOT / file).read_bytes().splitlines(), 1)
        if place.search(line)
    ]
    assert found == []
