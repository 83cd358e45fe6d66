"""Executes a program for which the kernel seems to have no Landlock: python3 hide_landlock.py PROGRAM [ARGUMENT]..."""

import ctypes
import errno
import os
import struct
import sys

LANDLOCK_CREATE_RULESET = 444
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_NO_NEW_PRIVS = 38

# Load the number of the system call, compare it, and fail with ENOSYS or allow the call.
filter = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, LANDLOCK_CREATE_RULESET),
        (0x06, 0, 0, 0x00050000 | errno.ENOSYS),
        (0x06, 0, 0, 0x7FFF0000),
    ]
)
buffer = ctypes.create_string_buffer(filter, len(filter))
program = struct.pack("@HP", 4, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
program = ctypes.create_string_buffer(program, len(program))
for arguments in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0)]:
    if libc.prctl(*arguments) != 0:
        sys.exit(f"prctl{arguments}: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[1], sys.argv[1:])
