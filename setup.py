"""Builds the native CPU kernel where there is a compiler; everything else is in pyproject.toml.

The kernel is compiled once for each instruction set and the best one is picked at run time, so a wheel does not
depend on the machine that built it. `CONTCONV_SANITIZE=1` builds with AddressSanitizer and UBSan instead, and
`CONTCONV_BUILD=portable` (or `"portable avx2"`) for some instruction sets only, which is quicker. With
`CONTCONV_TILES=avx512` the portable code works in AVX-512's vectors and tiles: slowly, but on any machine.
"""

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = "src/contconv/native/cpp"
COMMON = ["-std=c++17", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-Wall", "-Wextra"]
OPTIMISED = ["-O3", "-g0"]
SANITISED = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
INSTRUCTION_SETS = {
    "portable": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx2", "-mfma", "-mprefer-vector-width=512"],
}


class BuildKernel(build_ext):
    """Compiles `kernel.cpp` once per instruction set, `dispatch.cpp` once, and links them."""

    def build_extension(self, ext: Extension) -> None:
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        sanitise = os.environ.get("CONTCONV_SANITIZE", "") not in ("", "0")
        flags = COMMON + (SANITISED if sanitise else OPTIMISED)
        tiles = [f"-DCONTCONV_TILES_{name}" for name in os.environ.get("CONTCONV_TILES", "").split()]
        tiles += ["-Wno-psabi"] * bool(tiles)  # vectors that the instruction set has not are passed in memory
        wanted = os.environ.get("CONTCONV_BUILD", " ".join(INSTRUCTION_SETS)).split() if x86 else []
        sets = [isa for isa in INSTRUCTION_SETS if isa in wanted or isa == "portable"]
        units = [("dispatch.cpp", "dispatch", [*flags, *(f"-DCONTCONV_HAS_{isa}" for isa in sets)])]
        for isa in sets:
            own = INSTRUCTION_SETS[isa] or tiles
            units.append(("kernel.cpp", isa, [*flags, *own, f"-DCONTCONV_ISA={isa}"]))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [name for names in pool.map(lambda unit: self._objects(*unit), units) for name in names]
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        link_flags = ["-fopenmp", *(["-fsanitize=address,undefined"] if sanitise else [])]
        self.compiler.link_shared_object(objects, str(target), extra_postargs=link_flags, target_lang="c++")

    def _objects(self, source: str, directory: str, flags: list[str]) -> list[str]:
        output = Path(self.build_temp, directory)
        output.mkdir(parents=True, exist_ok=True)
        return self.compiler.compile([f"{SOURCES}/{source}"], output_dir=str(output), extra_postargs=flags)


setup(
    ext_modules=[
        Extension(
            "contconv.native._kernel",
            sources=[f"{SOURCES}/dispatch.cpp", f"{SOURCES}/kernel.cpp"],
            depends=[str(header) for header in sorted(Path(SOURCES).glob("*.h"))],
            language="c++",
            optional=True,  # without a compiler the install succeeds, and pure PyTorch does the work
        )
    ],
    cmdclass={"build_ext": BuildKernel},
)
