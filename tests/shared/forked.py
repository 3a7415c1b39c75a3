"""`python forked.py SOCKET ARGUMENTS` runs `chainrule ARGUMENTS` in a fork of `python forked.py SOCKET`.

The server has imported all that a command may need and computed nothing, so that a command begins at once. A client
gives it its arguments, environment, folder and output, hands signals on, and ends as the command does; if the client is
killed, so is the command.
"""

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import threading
import traceback


def serve(path):
    """Fork for each client; returns only in a fork, ready to run the command."""
    from importlib import import_module

    for name in ("web.main", "user_model.watch", "export.formats", "gradcheck.check", "chapter.pages"):
        import_module(f"chainrule.{name}")
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        client, _ = listener.accept()
        with client:
            if os.fork():
                continue
            listener.close()
            request, output, *_ = socket.recv_fds(client, 1 << 20, 2)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            command = os.fork()
            if command:
                attend(client, command, output)
            client.close()
            become(json.loads(request), output)
            return


def attend(client, command, output):
    """Send the client the process id and exit status of the command; kill the command when the client ends."""
    for descriptor in output:
        os.close(descriptor)

    def end_with_client():
        client.recv(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(command, signal.SIGKILL)

    client.sendall(f"{command}\n".encode())
    threading.Thread(target=end_with_client, daemon=True).start()
    _, status = os.waitpid(command, 0)
    with contextlib.suppress(OSError):
        client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(request, output):
    """Take over the client's arguments, environment, folder, output and signals."""
    sys.argv = ["chainrule", *request["arguments"]]
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, descriptor in enumerate(output, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = request["folder"]  # as `python -m` has it


def run():
    """Run the command and exit without freeing every object of torch."""
    from chainrule.__main__ import main

    status = 1
    try:
        main()
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # as Python does: waits for threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


def ask(path, arguments):
    """Run a command in the server and return its exit status."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(server, [json.dumps(request).encode()], [1, 2])
        answers = server.makefile()
        command = int(answers.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(command, number))
        os.close(1)
        os.close(2)
        return int(answers.readline())


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
        run()
    else:
        status = ask(sys.argv[1], sys.argv[2:])
        os._exit(status if status >= 0 else 128 - status)
