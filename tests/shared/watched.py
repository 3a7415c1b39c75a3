"""Runs a module as `python -m` does, and reports every change that it tries to make to the file system.

    python watched.py DESCRIPTOR MODULE ARGUMENTS…

Each kind of change is a line in DESCRIPTOR, once per path. An audit hook sees changes by Python's own code. Changes by
C libraries fail: no byte can be written to any file. Started processes are reported too: they could write.
"""

import os
import resource
import runpy
import sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

CHANGES = frozenset(
    "os.chmod os.chown os.link os.mkdir os.remove os.removexattr os.rename os.rmdir os.setxattr os.symlink os.truncate "
    "os.utime os.exec os.fork os.forkpty os.posix_spawn os.spawn os.system pty.spawn subprocess.Popen".split()
)


def change(event, arguments):
    """One line about an audit event; None where it changes nothing."""
    if event in CHANGES:
        return f"{event} {arguments[0]!r}"
    if event == "open":
        path, mode, flags = arguments
        # A number is a descriptor that is open already.
        if flags & WRITING and not isinstance(path, int) and not os.fsdecode(path).startswith("/dev/"):
            return f"open {os.fsdecode(path)!r} {mode or hex(flags)}"
    return None


def main():
    descriptor, module, *arguments = sys.argv[1:]
    told = set()

    def hook(event, given):
        line = change(event, given)
        if line is not None and line not in told:
            told.add(line)
            os.write(int(descriptor), f"{line}\n".encode())

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.argv = [module, *arguments]
    del sys.path[0]  # this folder
    sys.addaudithook(hook)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
