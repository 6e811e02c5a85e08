"""Reads files of NumPy (`.npz`): a zip archive of arrays, each a member `NAME.npy`.

Arrays that are stored without compression stay on the disk until they are used. An array of Python
objects, which could run code, is refused.
"""

import mmap
import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

LARGEST_RATIO = 100
"""How many times larger than its compressed bytes an array may be."""

_SIGNS_OF_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError),
    *(RuntimeError, ValueError, TypeError, OverflowError, MemoryError),
)
_LOCAL_HEADER = 30  # bytes before the name of a member; they end with two lengths
_SMALL = 1 << 20  # bytes that no ratio is asked of


def read_npz(path: str | Path) -> Mapping[str, torch.Tensor]:
    """Reads the arrays of a file by their names.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is damaged, or holds something else than arrays of numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"The file {str(path)!r} does not exist.")
    arrays: dict[str, torch.Tensor] = {}
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in arrays or name == member.filename:
                    raise ValueError(f"{member.filename!r} is no array, or is there twice")
                arrays[name] = _read_array(archive, member, data)
    except _SIGNS_OF_DAMAGE as error:
        raise ValueError(
            f"{str(path)!r} is damaged, or no file of NumPy ({' '.join(str(error).split())}): copy "
            "it again."
        ) from error
    return arrays


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: Any) -> torch.Tensor:
    """Reads an array; the values of one that is not compressed are a view of the file."""
    if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
        lengths = struct.unpack_from("<HH", data, member.header_offset + _LOCAL_HEADER - 4)
        start, content = member.header_offset + _LOCAL_HEADER + sum(lengths), data
    elif member.file_size > _SMALL + LARGEST_RATIO * member.compress_size:
        raise ValueError(f"{member.filename!r} would have {member.file_size:,} bytes")
    else:
        start, content = 0, bytearray(archive.read(member))
    header = BytesIO(content[start : start + min(member.file_size, 1 << 16)])
    version: Any = np.lib.format.read_magic(header)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{member.filename!r} is of version {version}")
    read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    shape, is_column_major, dtype = read(header)
    size = prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.names or min(shape, default=0) < 0:
        raise ValueError(f"{member.filename!r} is no array of numbers")
    if size != member.file_size - header.tell() or start + header.tell() + size > len(content):
        raise ValueError(f"{member.filename!r} of shape {shape} has {member.file_size:,} bytes")
    array = np.ndarray(
        shape, dtype, content, start + header.tell(), order="F" if is_column_major else "C"
    )
    return torch.from_numpy(array if dtype.isnative else array.astype(dtype.newbyteorder("=")))
