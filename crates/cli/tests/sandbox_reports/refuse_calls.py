"""Executes a program to which the kernel refuses some system calls: python3 refuse_calls.py CALL[,CALL]... PROGRAM [ARGUMENT]..."""

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {"prlimit64": 302, "setns": 308, "seccomp": 317},
    "aarch64": {"prlimit64": 261, "setns": 268, "seccomp": 277},
}[platform.machine()]
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_NO_NEW_PRIVS = 38

# Load the number of the system call, compare it with each refused one, and fail with EPERM or allow the call.
instructions = [(0x20, 0, 0, 0)]
for name in sys.argv[1].split(","):
    instructions += [(0x15, 0, 1, NUMBERS[name]), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
instructions.append((0x06, 0, 0, 0x7FFF0000))
filter = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
buffer = ctypes.create_string_buffer(filter, len(filter))
program = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
program = ctypes.create_string_buffer(program, len(program))
for arguments in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0)]:
    if libc.prctl(*arguments) != 0:
        sys.exit(f"prctl{arguments}: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[2], sys.argv[2:])
