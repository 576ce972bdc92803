"""A client by the package websockets, which a test tells line by line what to
do, and which tells it what happens; see tests/foreign_test.go."""

import asyncio
import json
import sys

import websockets


def tell(**event):
    print(json.dumps(event), flush=True)


async def listen(socket):
    try:
        async for text in socket:
            tell(event="text", text=text)
    except websockets.ConnectionClosed:
        pass  # which code it was is told in either case
    tell(event="close", code=socket.close_code)


async def main():
    socket, listening = None, None
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        match command["do"]:
            case "connect":
                socket = await websockets.connect(command["url"], subprotocols=command["protocols"])
                tell(event="open", protocol=socket.subprotocol)
                listening = asyncio.create_task(listen(socket))
            case "send":
                await socket.send(command["text"])
            case "close":
                await socket.close(1000)
    if listening:
        await socket.close()
        await listening


asyncio.run(main())
