"""The package as it was installed: what it needs, its stubs, the program, its manual."""
from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import subbyte

PACKAGE = Path(subbyte.__file__).parent


def test_it_is_the_installed_one() -> None:
    assert ROOT not in PACKAGE.parents or "site-packages" in PACKAGE.parts
    lists = (ROOT / "CMakeLists.txt").read_text()
    project = re.search(r"project\(subbyte VERSION ([0-9.]+)", lists)
    assert subbyte.__version__ == importlib.metadata.version("subbyte") == project[1]


def test_it_needs_numpy_and_nothing_else() -> None:
    needs = [line for line in importlib.metadata.requires("subbyte") if "extra ==" not in line]
    assert needs == ["numpy"]
    probe = "import sys, subbyte; print(sorted({n.partition('.')[0] for n in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True,
                            check=True)
    assert not {"torch", "tqdm", "pytest"} & set(ast.literal_eval(loaded.stdout))


def test_the_module_shows_nothing_but_itself() -> None:
    [module] = PACKAGE.glob("_core.*.so")
    listed = subprocess.run(["nm", "--dynamic", "--defined-only", module], capture_output=True,
                            text=True, check=True)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["PyInit__core"]


def test_operators_of_pytorch_are_there_and_torch_is_asked_for() -> None:
    library = PACKAGE / "torch" / "libsubbyte_torch.so"
    listed = subprocess.run(["nm", "--dynamic", "--defined-only", library], capture_output=True,
                            text=True, check=True)
    # Beside them are templates of the C++ library that every library has.
    assert {line.split()[-1] for line in listed.stdout.splitlines() if "subbyte" in line} == {
        "subbyte_torch_register", "subbyte_torch_forget", "subbyte_torch_kept_bytes",
        "subbyte_torch_format", "subbyte_torch_refuse_call", "subbyte_torch_signatures"}
    # Nothing of torch is linked: the library that Python has loaded is looked into.
    needed = subprocess.run(["readelf", "--dynamic", library], capture_output=True, text=True,
                            check=True)
    assert "torch" not in "".join(re.findall(r"NEEDED.*", needed.stdout))
    probe = subprocess.run([sys.executable, "-c", "import subbyte.torch"], capture_output=True,
                           text=True)
    assert probe.stderr.endswith("No module named 'torch'\n")


def test_types_are_stated() -> None:
    assert (PACKAGE / "py.typed").exists()
    stub = ast.parse((PACKAGE / "_core.pyi").read_text())
    stated = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert stated == {name for name in dir(subbyte._core) if not name.startswith("_")}


def test_everything_public_is_described() -> None:
    for name in subbyte.__all__:
        thing = getattr(subbyte, name)
        assert inspect.getdoc(thing), name
        if not inspect.isclass(thing):
            continue
        for member, value in vars(thing).items():
            is_public = not member.startswith("_")
            if is_public and (callable(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_an_error_survives_other_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(subbyte.Error("what", "a.code")))
    assert (str(error), error.code) == ("what", "a.code")


def test_python_m_subbyte_is_the_program(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "subbyte", *arguments], capture_output=True,
                              text=True, timeout=60)

    version = run("--version")
    assert version.returncode == 0 and version.stdout.startswith("subbyte " + subbyte.__version__)
    made = run("synth", str(tmp_path / "model"), "--shape", "tiny")
    assert made.returncode == 0, made.stderr
    wrong = run("inspect", str(tmp_path / "nowhere"))
    assert wrong.returncode == 1 and "[model.not_found]" in wrong.stderr
    script = Path(sys.executable).with_name("subbyte")
    assert subprocess.run([script, "--version"], capture_output=True, text=True,
                          check=True).stdout == version.stdout


#: Pages with blocks of Python that run here, and something that they print.
PAGES = {"docs/python.md": "model.not_found", "README.md": " "}
#: Those whose blocks another test runs, with a package that is not here.
OTHER_PAGES = {"docs/cluster.md": "tests/cluster/ray_manual_test.py",
               "docs/torch.md": "python/tests/torch/test_manual.py"}


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_all_blocks_of_python_are_run_by_some_test() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    found = {page.relative_to(ROOT).as_posix(): blocks_of(page) for page in pages}
    assert {page for page, blocks in found.items() if blocks} == {*PAGES, *OTHER_PAGES}
    assert len(found["docs/python.md"]) >= 12 and len(found["docs/torch.md"]) >= 4
    for page, test in OTHER_PAGES.items():
        assert page in (ROOT / test).read_text()
    # What is indented, or fenced without a language, is no Python that nobody runs.
    python = re.compile(r"^(?:    |)(?:import|from) [a-z_.]+(?: import|$)|^    \w+ = \w+[.(]", re.M)
    for page in pages:
        text = re.sub(r"^```\w+\n.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not python.findall(text), page


@pytest.mark.parametrize("page, printed", PAGES.items())
def test_blocks_of_the_manual_run(page: str, printed: str, monkeypatch: pytest.MonkeyPatch,
                                  capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    blocks = blocks_of(ROOT / page)
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:  # one after the other, as a reader types them
        exec(compile(block, page, "exec"), names)
    assert printed in capsys.readouterr().out


def names_of(tree: ast.Module) -> set[str]:
    """What a file defines or imports outside its functions and classes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_files_import_names_of_each_other_that_are_there() -> None:
    """Those that need torch, transformers or vLLM, too, which are not here to import them."""
    source = ROOT / "python" / "subbyte"
    trees = {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    wrong, compared = [], 0
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level == 0:
                continue
            folder = path.parents[node.level - 1]
            module = folder.joinpath(*(node.module or "").split("."))
            if (module.parent, module.name) == (source, "_core"):
                continue  # the extension, which is no file of Python
            file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
            there = names_of(trees[file])
            for alias in node.names:
                compared += 1
                inner = module / f"{alias.name}.py"
                if alias.name not in there and alias.name != "_core" and not inner.exists() and \
                        not (module / alias.name).is_dir():
                    wrong.append(f"{path.relative_to(source)}: {alias.name} of {file.name}")
    assert compared > 50 and wrong == []
