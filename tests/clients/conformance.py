"""A small client by the package websockets, as a program for `badged conformance`;
see docs/conformance.md. It gives its token in hello and sends one command at a
time."""

import asyncio
import contextlib
import json
import os
import random
import sys
import traceback
import unicodedata
import uuid

import websockets

BACKOFF = int(os.environ["BADGED_BACKOFF_MS"]) / 1000


def say(**line):
    print(json.dumps(line), flush=True)


def can_be_id(text):
    """Whether a conversation can have this id: the server refuses a command with any other."""
    return 1 <= len(text.encode()) <= 128 and not any(unicodedata.category(c) == "Cc" for c in text)


LEVELS = {"default", "all", "mentions", "direct_mentions", "none"}


def can_be_category(path):
    """Whether a text is the path of a category."""
    parts = path.split("/")
    plain = not any(unicodedata.category(c) == "Cc" for c in path)
    return plain and len(path.encode()) <= 255 and len(parts) <= 8 and all(1 <= len(part) <= 64 for part in parts)


class Client:
    def __init__(self):
        self.token = os.environ["BADGED_TOKEN"]
        self.state = None  # the last state frame, without its conversations
        self.conversations = {}
        self.queue = []  # commands without an answer: (number, frame)
        self.sent = False
        self.socket = None  # while online
        self.code, self.pause = 0, 0  # how the last connection ended

    def apply(self, frame):
        if frame["t"] == "snapshot":
            self.conversations = {}
        elif frame["version"] <= self.state["version"]:
            return
        self.state = frame
        for conversation in frame["conversations"]:
            self.conversations[conversation["conversation_id"]] = conversation
        say(version=frame["version"], total=frame["total"], conversations=self.conversations,
            unread_conversations=frame["unread_conversations"])

    async def command(self, command):
        frame = {"t": command["do"], "id": str(uuid.uuid4())}
        if "conversation_id" in command:
            frame["conversation_id"] = command["conversation_id"]
            if not can_be_id(frame["conversation_id"]):
                say(failed=command["n"], code="invalid")
                return
        if not can_be_category(command.get("category", "chat")) or command.get("level", "all") not in LEVELS:
            say(failed=command["n"], code="invalid")
            return
        frame |= {field: command[field] for field in ("category", "level") if field in command}
        if "up_to_seq" in command:
            frame["up_to_seq"] = int(command["up_to_seq"])
        self.queue.append((command["n"], frame))
        await self.flush()

    async def flush(self):
        if self.socket and self.queue and not self.sent:
            self.sent = True
            with contextlib.suppress(websockets.ConnectionClosed):  # sent again after the reconnect
                await self.socket.send(json.dumps(self.queue[0][1]))

    async def later(self, seconds):
        await asyncio.sleep(seconds)
        self.sent = False
        await self.flush()

    async def answered(self, frame, tasks):
        if frame.get("id") == "auth":
            return
        if "retry_ms" in frame:
            tasks.append(asyncio.create_task(self.later(frame["retry_ms"] / 1000)))
            return
        number, _ = self.queue.pop(0)
        self.sent = False
        if frame["t"] == "ok":
            say(done=number)
        else:
            say(failed=number, code=frame["code"])
        await self.flush()

    async def renew(self, socket, expires_in_ms):
        await asyncio.sleep(expires_in_ms * 0.75 / 1000)
        self.token = os.environ["BADGED_FRESH_TOKEN"]
        await socket.send(json.dumps({"t": "auth", "id": "auth", "token": self.token}))

    async def connect(self):
        """Runs a connection; returns its close code and the pause before the next."""
        self.code, self.pause = 0, 0
        with contextlib.suppress(websockets.ConnectionClosed):  # also while it closes
            async with websockets.connect(
                os.environ["BADGED_URL"].replace("http", "ws") + "/v1/ws", subprotocols=["badge.v1"], max_size=2**24, close_timeout=0.1
            ) as socket:
                try:
                    await self.serve(socket)
                except websockets.ConnectionClosed:
                    self.code = socket.close_code
        return self.code, self.pause

    async def serve(self, socket):
        """Follows the server until it says bye, is silent, or closes the connection."""
        hello = {"t": "hello", "token": self.token}
        if self.state:
            hello |= {"epoch": self.state["epoch"], "version": self.state["version"]}
        await socket.send(json.dumps(hello))
        patience, tasks = 60, []
        try:
            while True:
                frame = json.loads(await asyncio.wait_for(socket.recv(), patience))
                match frame["t"]:
                    case "snapshot" | "changes":
                        self.apply(frame)
                        if "ping_ms" in frame and not self.socket:
                            patience = frame["ping_ms"] * 2.5 / 1000
                            tasks.append(asyncio.create_task(self.renew(socket, frame["expires_in_ms"])))
                        self.socket = socket
                        await self.flush()
                    case "ok" | "error":
                        await self.answered(frame, tasks)
                    case "ping":
                        await socket.send('{"t":"pong"}')
                    case "bye":
                        self.code, self.pause = frame["code"], frame.get("reconnect_ms", 0) / 1000
                        return
        except asyncio.TimeoutError:
            return
        finally:
            self.socket, self.sent = None, False
            for task in tasks:
                task.cancel()

    async def run(self):
        while True:
            code, pause = await self.connect()
            if 4001 <= code <= 4004:
                say(refused=code)
                return
            if code == 4202:
                self.token = os.environ["BADGED_FRESH_TOKEN"]
            await asyncio.sleep(pause + random.uniform(0, BACKOFF))


def ended(task):
    """Ends the program if the client fails: the kit would wait for it in vain."""
    if not task.cancelled() and task.exception():
        traceback.print_exception(task.exception())
        os._exit(1)


async def main():
    if os.environ["BADGED_TRANSPORT"] == "sse":
        say(unsupported="server-sent events")
    if os.environ["BADGED_STORE"]:
        say(unsupported="storing its state")
    if os.environ["BADGED_AUTH"] in ("header", "subprotocol"):
        say(unsupported=f"a token by the way {os.environ['BADGED_AUTH']}")
    client = Client()
    running = asyncio.create_task(client.run())
    running.add_done_callback(ended)
    while line := await asyncio.to_thread(sys.stdin.readline):
        await client.command(json.loads(line))
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


asyncio.run(main())
