# SPDX-License-Identifier: MIT
"""The structs of _abi against the headers, by a small C program."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from cuda_link import _abi

INCLUDE = os.environ.get("CUDALINK_INCLUDE")
NAMES = {
    "Stream": "cudalink_stream",
    "Dtype": "cudalink_dtype",
    "Plane": "cudalink_plane",
    "Picture": "cudalink_picture",
    "Timing": "cudalink_timing",
    "Description": "cudalink_description",
    "ExporterSpec": "cudalink_exporter_spec",
    "Slot": "cudalink_slot",
    "Source": "cudalink_source",
    "ImporterSpec": "cudalink_importer_spec",
    "Frame": "cudalink_frame",
    "HostCopy": "cudalink_host_copy",
    "Device": "cudalink_dlpack_device",
    "View": "cudalink_view",
    "Tensor": "cudalink_dlpack_tensor",
    "LegacyTensor": "cudalink_dlpack_legacy",
    "VersionedTensor": "cudalink_dlpack_versioned",
    "ExchangeHeader": "cudalink_dlpack_exchange_header",
    "Exchange": "cudalink_dlpack_exchange",
    "ExporterStatistics": "cudalink_exporter_statistics",
    "ImporterStatistics": "cudalink_importer_statistics",
    "Telemetry": "cudalink_telemetry",
    "ConsumerInfo": "cudalink_consumer_info",
    "ChannelInfo": "cudalink_channel_info",
}
# The package shows all that is counted; a spec may have grown at its end.
WHOLE = ("ExporterStatistics", "ImporterStatistics")
IN_C = {
    (struct, field): f"version.{field}"
    for struct in ("VersionedTensor", "ExchangeHeader")
    for field in ("major", "minor")
}


def structs() -> dict[str, type[ctypes.Structure]]:
    found = vars(_abi).values()
    return {
        s.__name__: s
        for s in found
        if isinstance(s, type) and issubclass(s, ctypes.Structure) and "_fields_" in vars(s)
    }


def test_every_struct_is_compared() -> None:
    assert set(structs()) == set(NAMES)


@pytest.mark.skipif(not INCLUDE, reason="needs the public headers (CUDALINK_INCLUDE)")
def test_layout(tmp_path: Path) -> None:
    expected, lines = [], []
    for name, struct in structs().items():
        # Structs that say their size may have grown at the end: the library knows what we leave out.
        if struct._fields_[0][0] != "size" or name in WHOLE:
            expected.append(f"{name} {ctypes.sizeof(struct)}")
            lines.append(f'printf("{name} %zu\\n", sizeof({NAMES[name]}));')
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            member = IN_C.get((name, field), field)
            expected.append(f"{name}.{field} {place.offset} {place.size}")
            lines.append(
                f'printf("{name}.{field} %zu %zu\\n", offsetof({NAMES[name]}, {member}), '
                f"sizeof((({NAMES[name]} *)0)->{member}));"
            )
    body = "\n".join(lines)
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <cudalink/cudalink.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{\n{body}\nreturn 0; }}\n"
    )
    program = tmp_path / "layout"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-I", str(INCLUDE), str(source), "-o", str(program)], check=True)
    told = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    assert told.split("\n")[:-1] == expected


@pytest.mark.skipif(not INCLUDE, reason="needs the public headers (CUDALINK_INCLUDE)")
def test_no_error_is_without_a_class() -> None:
    import re

    from cuda_link import _errors

    header = (Path(str(INCLUDE)) / "cudalink" / "base.h").read_text()
    numbers = [int(n) for n in re.findall(r"^  X\(\w+, (-\d+),", header, re.M)]
    assert len(numbers) >= 24
    assert sorted(numbers) == sorted(_errors._CLASSES)
