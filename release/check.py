"""Builds sdist and wheel and tries them in a fresh environment, with a compiler and without: `make release-check`.

    python release/check.py [--out FOLDER]

The environment gets torch (constraints.txt) and nothing else, so this downloads what pip has not kept.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION_FILE = ROOT / "src/contconv/_version.py"
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where sdist and wheel go")
    out = parser.parse_args().out.resolve()
    version = declared_version()
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    sdist, wheel = out / f"contconv-{version}.tar.gz", only(out.glob(f"contconv-{version}-*.whl"))
    if not sdist.is_file():
        raise SystemExit(f"no {sdist.name} in {out}: the version has more than one source")
    with tempfile.TemporaryDirectory() as folder:
        python = fresh_python(Path(folder))
        try_out(python, wheel, "native", Path(folder))
        try_out(python, sdist, "native", Path(folder))
        try_out(python, sdist, "pure", Path(folder), NO_COMPILER)
    print(f"contconv {version} can be released: {sdist.name}, {wheel.name}")


def declared_version() -> str:
    """The one source of the version; the changelog must have an entry for it."""
    found = re.search(r'__version__ = "(.+)"', VERSION_FILE.read_text())
    if found is None:
        raise SystemExit(f"no __version__ in {VERSION_FILE}")
    if f"## {found[1]}" not in (ROOT / "CHANGELOG.md").read_text():
        raise SystemExit(f"CHANGELOG.md has no entry '## {found[1]}'")
    return found[1]


def only(paths: object) -> Path:
    (path,) = paths  # type: ignore[misc]
    return path


def fresh_python(folder: Path) -> Path:
    """The interpreter of a new environment that has torch."""
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", "torch")
    return python


def try_out(python: Path, package: Path, kind: str, folder: Path, environment: dict[str, str] | None = None) -> None:
    """Install the package instead of the one before, and run the smoke test away from the sources."""
    run(
        python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", "--no-cache-dir", package,
        environment=environment,
    )  # fmt: skip
    run(python, "-W", "ignore", ROOT / "release/smoke.py", kind, folder=folder)


def run(*command: object, folder: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, cwd=folder, env={**variables, **(environment or {})}, check=True)


if __name__ == "__main__":
    main()
