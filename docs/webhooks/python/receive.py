"""Receives webhooks of badged and prints what it could verify."""

import base64
import hashlib
import hmac
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
TOLERANCE = 5 * 60  # seconds


def is_genuine(headers, body: bytes) -> bool:
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    # An old call may have been recorded and sent again by somebody else.
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > TOLERANCE:
        return False
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    # Several while a secret is replaced.
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(expected.encode(), one.encode()) for one in given)


class Receiver(BaseHTTPRequestHandler):
    def do_OPTIONS(self):  # badged asks for permission
        self.send_response(200)
        self.send_header("WebHook-Allowed-Origin", self.headers.get("WebHook-Request-Origin", ""))
        self.send_header("WebHook-Allowed-Rate", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        # The signature covers these bytes: verify before decoding.
        body = self.rfile.read(min(int(self.headers["Content-Length"]), 1 << 20))
        genuine = is_genuine(self.headers, body)
        if genuine:
            print(self.headers["webhook-id"], body.decode(), flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver).serve_forever()
