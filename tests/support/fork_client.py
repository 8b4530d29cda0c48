"""`python fork_client.py SOCKET MODULE ARGUMENT...`: what `python -m MODULE ARGUMENT...` does, by the fork server that
listens at SOCKET. It imports next to nothing: it is there to be quick.
"""

import json
import os
import socket
import sys


def main() -> int:
    """Have it forked with what is ours, and wait for its end; its exit code, as a shell has it."""
    path, module, *arguments = sys.argv[1:]
    ended, told = os.pipe()
    asked = {"module": module, "arguments": arguments, "environ": dict(os.environ), "cwd": os.getcwd()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2, told])
        server.recv(64)
    os.close(told)
    code = int(os.read(ended, 16))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
