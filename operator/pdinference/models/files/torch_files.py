"""Files that `torch.save` wrote: whether they are whole, without reading what they hold."""

import os
from pathlib import Path

from pdinference.models.errors import ModelFilesError, reading
from pdinference.models.files.safetensors import refuse_pointer
from pdinference.regular_files import open_regular

_ZIP, _END = b"PK\x03\x04", b"PK\x05\x06"
"""How a zip archive begins, and how the record at its end does (PKWARE's APPNOTE, 4.3.7 and 4.3.16)."""
_LONGEST_END = 22 + 65535
"""Bytes of that record with the longest comment."""


def refuse_cut_off(file: Path) -> int:
    """The size of a file, in bytes.

    PyTorch has written zip archives since 1.6, and `torch.load` reads one from its end (`PyTorchStreamReader` in
    caffe2/serialize/inline_container.cc). Nothing is known of older files, whose end has no mark.

    Raises:
        ModelFilesError: It is a Git LFS pointer, empty, or an archive without its end.
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
