# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of other threads that are under way."""

from __future__ import annotations

import pathlib
import sys
import threading
import time
from types import FrameType


def _frames_of_others() -> set[FrameType]:
    """The frames of this package in which other threads are."""
    package, own = str(pathlib.Path(__file__).parent), threading.get_ident()
    found = set()
    for thread, frame in sys._current_frames().items():
        at: FrameType | None = None if thread == own else frame
        while at is not None:
            if at.f_code.co_filename.startswith(package):
                found.add(at)
            at = at.f_back
    return found


def await_other_threads(seconds: float) -> None:
    """Waits for the calls of this package in which other threads are, so many seconds at most."""
    under_way, end = _frames_of_others(), time.monotonic() + seconds
    while under_way and time.monotonic() < end:
        time.sleep(0.001)
        under_way &= _frames_of_others()
