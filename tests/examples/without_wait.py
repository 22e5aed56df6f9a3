# SPDX-License-Identifier: MIT
"""without_wait.py SOURCE RESULT: render_cuda.c without its wait: it publishes as if the GPU were done.

That is its only fault: the library can't know of work that nobody named, so the memory goes only once the
stream is done; else a fill that is late would find it unmapped."""

import sys
from pathlib import Path

WAIT = "no_gpu ? CUDALINK_STREAM_COMPLETE : CUDALINK_STREAM_HANDLE(stream)"
CLOSE = "  cudalink_exporter_close(exporter);\n"

source = Path(sys.argv[1]).read_text(encoding="utf-8")
for there in (WAIT, CLOSE):
    if source.count(there) != 1:
        sys.exit(f"{sys.argv[1]}: this is not there (any more), or twice: {there}")
source = source.replace(WAIT, "CUDALINK_STREAM_COMPLETE").replace(CLOSE, "  cuStreamSynchronize(stream);\n" + CLOSE)
Path(sys.argv[2]).write_text(source, encoding="utf-8")
