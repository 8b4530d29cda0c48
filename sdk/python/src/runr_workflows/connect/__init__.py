"""`wf.connect()`: a worker that connects out to the engine over gRPC and is given invocations (the worker stream).

Layers, each of which knows only those below it:

    connection      streams one after another: connect, try again, drain, leave
    session         the invocations of this process, whichever stream they came by
    stream          one gRPC stream: handshake, messages both ways, heartbeats
    async_calls, sync_calls    how user code runs: on the loop, in a thread
    live_invocation the ops of one invocation: numbers, acknowledgements, what is open, when nothing is left to do
    live_replay     the rules of replay where a step call goes on after its acknowledgement

Only `connection`, `stream`, `session`, `outbox` and `handshake` need the extra `runr-workflows[connect]`.
"""

import os

from .polling import poll_ourselves

poll_ourselves(os.environ)  # before anything here imports gRPC
