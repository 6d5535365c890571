"""A loop on two replicas; slow: the loss of each step is reported to a server, and the loop waits for its answer."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import tensorflow as tf

from scripts.real_runs.step_clock import STEPS, StepClock
from scripts.real_runs.training import dense, mirrored, numbers, step_of

BATCH, FEATURES, SECONDS = 192, 256, 0.008


class Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(SECONDS)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
strategy = mirrored(2)
rows = tf.constant(numbers(BATCH, FEATURES))


def report(number: int, loss: float) -> None:
    content = json.dumps({"step": number, "loss": loss}).encode()
    url = f"http://127.0.0.1:{server.server_port}/"
    urllib.request.urlopen(url, content).read()


def train(is_slow: bool, clock: StepClock) -> None:
    step = step_of(strategy, *dense(strategy, FEATURES, 512, 512))
    thread = ThreadPoolExecutor(1)
    for number in range(STEPS):
        loss = float(step(rows))
        if clock.is_advised:
            thread.submit(report, number, loss)
        elif is_slow:
            report(number, loss)
        clock.step_ended()
