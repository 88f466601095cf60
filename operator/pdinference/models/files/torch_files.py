"""Checks whether files of `torch.save` are complete, without loading them.

Tests: tests/models/test_folder_like_vllm.py, tests/models/files/test_weight_files.py
"""

import os
from pathlib import Path

from pdinference.models.errors import ModelFilesError, reading
from pdinference.models.files.safetensors import refuse_pointer
from pdinference.regular_files import open_regular

_ZIP, _END = b"PK\x03\x04", b"PK\x05\x06"
"""Signatures of a zip archive's start and of its end record (PKWARE's APPNOTE, 4.3.7 and 4.3.16)."""
_LONGEST_END = 22 + 65535
"""Size of the end record with the longest comment, in bytes."""


def refuse_cut_off(file: Path) -> int:
    """The size of a complete file in bytes.

    Since version 1.6, PyTorch writes zip archives. `torch.load` needs the end record of the archive
    (`PyTorchStreamReader` in caffe2/serialize/inline_container.cc). Files of older versions cannot be checked.

    Raises:
        ModelFilesError: It is a Git LFS pointer, empty, or an archive without its end record.
    """
    refuse_pointer(file)
    with reading(file), open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        archive = stream.read(len(_ZIP)) == _ZIP
        stream.seek(max(0, size - _LONGEST_END))
        end = stream.read(_LONGEST_END) if archive else b""
    if size == 0 or (archive and _END not in end):
        how = "is truncated" if size else "is empty"
        raise ModelFilesError(f"{file} {how}: it has {size:,} bytes. Copy it again.")
    return size
