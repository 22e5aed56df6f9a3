# SPDX-License-Identifier: MIT
"""without_wait.py SOURCE RESULT: render_cuda.c without its wait: it publishes as if the GPU were done."""

import sys
from pathlib import Path

WAIT = "no_gpu ? CUDALINK_STREAM_COMPLETE : CUDALINK_STREAM_HANDLE(stream)"

source = Path(sys.argv[1]).read_text(encoding="utf-8")
if source.count(WAIT) != 1:
    sys.exit(f"{sys.argv[1]}: the wait is not there (any more): {WAIT}")
Path(sys.argv[2]).write_text(source.replace(WAIT, "CUDALINK_STREAM_COMPLETE"), encoding="utf-8")
