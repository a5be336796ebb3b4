#!/usr/bin/env python3
"""Stands in for `subbyte serve`: a request with "end" in its body ends it at once, and one with
"cut" its connection alone. The first of all with "deaf FILE." makes the server that it reaches hear
nothing more, while its process lives on."""
from __future__ import annotations

import http.server
import os
import sys
import threading
from pathlib import Path


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if deaf.is_set():
            self.close_connection = True
        else:
            self.answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if b"end" in body:
            os._exit(1)
        if b"deaf" in body and is_first(body):
            deaf.set()
            server.shutdown()
        if b"cut" in body or deaf.is_set():
            self.close_connection = True
        else:
            self.answer()

    def answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def is_first(body: bytes) -> bool:
    """Whether the file of a body was not there."""
    try:
        Path(body.partition(b"deaf ")[2].partition(b".")[0].decode()).open("x").close()
    except FileExistsError:
        return False
    return True


deaf = threading.Event()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"ready on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
server.socket.close()
threading.Event().wait()
