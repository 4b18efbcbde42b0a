"""`python -m atoll.lab.targets.delay PORT TO SECONDS`: a connection that is SECONDS longer, there and back.

Hands on what comes to 127.0.0.1:PORT to 127.0.0.1:TO, each way half of SECONDS late. Threads and not an event
loop: a selector rounds its waiting up to whole milliseconds.
"""

from __future__ import annotations

import ctypes
import queue
import socket
import sys
import threading
import time

__all__ = ["main"]

_PR_SET_TIMERSLACK = 29


def main(words: list[str]) -> int:
    """Serves until it is ended."""
    port, to, seconds = int(words[0]), int(words[1]), float(words[2])
    # By default the kernel may wake a sleeper 50 microseconds late.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            near, _ = server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", to))
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                threading.Thread(target=_take, args=(source, waiting, seconds / 2), daemon=True).start()
                threading.Thread(target=_give, args=(sink, waiting), daemon=True).start()


def _take(source: socket.socket, waiting: queue.SimpleQueue[tuple[float, bytes]], delay: float) -> None:
    data = b"."
    while data:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        waiting.put((time.monotonic() + delay, data))


def _give(sink: socket.socket, waiting: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    while True:
        due, data = waiting.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
