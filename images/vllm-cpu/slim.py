"""Remove what a server without a GPU never loads, and put empty stand-ins where the linker insists on CUDA libraries.

PyTorch's own index has a build for CPUs; PyPI's build of the same release is linked against 2.7 GB of CUDA libraries.
They have to be *present* for `import torch`, but without a GPU's driver none of their functions is ever called, and the
loader can bind functions at their first call (Python asks it to bind all at once; a line in a .pth file changes that).
So an empty library of the right name is enough, and an image made from PyPI alone has less than half of the size. A
call into one of them would end the process with `undefined symbol`: on a machine with a GPU, use vLLM's own image.

Run by the image's build, before the test that serves a model (smoke.py): what is removed too much fails there.
"""

from __future__ import annotations

import shutil
import struct
import sys
import sysconfig
from pathlib import Path
from typing import Final

# Linked by PyTorch's CUDA build, never called without a GPU. CUDA's runtime (libcudart) and profiler (libcupti) are not
# among them: PyTorch registers its kernels with the former while it is loaded, and asks the latter what it can profile.
CUDA_LIBRARIES: Final = (
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcurand.so.10",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
)

# Never imported, opened or read by a server: kernels for GPUs, C++ headers and tools, the packages' own tests.
UNUSED: Final = (
    "nixl_ep",
    "nixl_ep_cu*",
    "numba/cuda/tests",
    "numba/tests",
    "numpy/*/tests",
    "numpy/tests",
    "nvidia/cu13/include",
    "nvidia/cu13/lib/*.a",
    "nvidia/cu13/lib/libcheckpoint.so",
    "nvidia/cu13/lib/libnvperf_*.so",
    "nvidia/cu13/lib/libpcsamplingutil.so",
    "sympy/*/tests",
    "sympy/*/*/tests",
    "torch/bin/proto*",
    "torch/include",
    "torch/lib/libtorch_cuda_linalg.so",
    "torch/share",
)

_ALIGNED: Final = 8
_PAGE: Final = 0x1000


def empty_library(name: str) -> bytes:
    """Build a shared library (ELF, x86-64) that has a name and nothing else.

    Args:
        name: Its soname, by which other libraries ask for it.

    Returns:
        The file's content.
    """
    strings = b"\0" + name.encode() + b"\0"
    strings += b"\0" * (-len(strings) % _ALIGNED)
    headers = 64 + 3 * 56
    string_table = headers
    symbol_table = string_table + len(strings)
    hash_table = symbol_table + 24  # one symbol, the null one, which every table has
    dynamic = hash_table + 24
    entries = [
        (14, 1),  # DT_SONAME: offset in the string table
        (4, hash_table),  # DT_HASH
        (5, string_table),  # DT_STRTAB
        (6, symbol_table),  # DT_SYMTAB
        (10, len(strings)),  # DT_STRSZ
        (11, 24),  # DT_SYMENT
        (0, 0),  # DT_NULL
    ]
    size = dynamic + 16 * len(entries)

    def segment(kind: int, offset: int, length: int, alignment: int) -> bytes:
        readable_and_writable = 6  # the loader writes absolute addresses into the dynamic section
        return struct.pack("<IIQQQQQQ", kind, readable_and_writable, offset, offset, offset, length, length, alignment)

    return b"".join(
        [
            struct.pack(
                "<16sHHIQQQIHHHHHH",
                b"\x7fELF\x02\x01\x01",  # 64 bits, little endian
                3,  # ET_DYN
                62,  # x86-64
                1,
                0,
                64,
                0,
                0,
                64,
                56,
                3,
                64,
                0,
                0,
            ),
            segment(1, 0, size, _PAGE),  # PT_LOAD
            segment(2, dynamic, size - dynamic, _ALIGNED),  # PT_DYNAMIC
            segment(0x6474E551, 0, 0, 16),  # PT_GNU_STACK: without it the loader wants an executable stack
            strings,
            bytes(24),
            struct.pack("<6I", 1, 1, 0, 0, 0, 0),  # a hash table of one empty bucket, padded
            *(struct.pack("<QQ", tag, value) for tag, value in entries),
        ]
    )


def remove(root: Path, pattern: str) -> int:
    """Delete all that matches a pattern and return how many bytes that were.

    Args:
        root: The site-packages folder.
        pattern: A glob relative to it.
    """
    freed = 0
    for path in root.glob(pattern):
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        freed += sum(each.lstat().st_size for each in files)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return freed


def main() -> None:
    """Slim the environment that this runs in."""
    root = Path(sysconfig.get_paths()["purelib"])
    freed = sum(remove(root, pattern) for pattern in UNUSED)
    sys.stdout.write(f"removed {freed / 1e6:.0f} MB that a server on CPUs never loads\n")
    libraries = root / "torch" / "lib"
    if (libraries / "libtorch_cuda.so").exists():
        for name in CUDA_LIBRARIES:
            (libraries / name).write_bytes(empty_library(name))
        (root / "bind-lazily.pth").write_text("import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n", encoding="utf-8")
        sys.stdout.write(f"PyTorch's CUDA build: stand-ins for {', '.join(CUDA_LIBRARIES)}\n")


if __name__ == "__main__":
    main()
