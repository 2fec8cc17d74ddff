"""Checks whether compiled code is complete: a shared object or a cubin, as bytes."""

from __future__ import annotations

import struct

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little endian
#: e_phoff, e_shoff, (flags, header size,) e_phentsize, e_phnum, e_shentsize, e_shnum
_HEADER = struct.Struct("<32xQQ4x2xHHHH")
#: sh_type, (flags, address,) sh_offset, sh_size
_SECTION = struct.Struct("<4xI16xQQ")
_NO_BITS = 8


def is_whole(image: bytes) -> bool:
    """Whether `image` is an ELF file that contains everything its headers refer to.

    Loading a truncated file can crash the process, so it is checked first.
    """
    if not image.startswith(_MAGIC) or len(image) < 64:
        return False
    segments, sections, segment_size, segment_count, section_size, section_count = (
        _HEADER.unpack_from(image)
    )
    ends = [segments + segment_size * segment_count, sections + section_size * section_count]
    if max(ends) > len(image) or (section_count and section_size < _SECTION.size):
        return False
    for number in range(section_count):
        kind, offset, size = _SECTION.unpack_from(image, sections + number * section_size)
        ends.append(0 if kind == _NO_BITS else offset + size)
    return max(ends) <= len(image) and segment_count + section_count > 0
