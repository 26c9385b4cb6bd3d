"""An MCP server with nothing but the standard library, for tests: notes in the workspace, and one of each kind of content."""

import base64
import json
import os
import sys
import time
from pathlib import Path

PICTURE = bytes.fromhex("89504e470d0a1a0a") + b"not much of a picture"


def shape(**properties: object) -> dict:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT = {"type": "string", "description": "What to write.", "maxLength": 200}
TOOLS = [
    {"name": "add", "description": "Add a note.", "inputSchema": shape(text=TEXT)},
    {"name": "all", "description": "All notes.", "inputSchema": shape()},
    {"name": "draw", "description": "A picture.", "inputSchema": shape()},
    {"name": "look", "description": "What the server sees.", "inputSchema": shape()},
    {
        "name": "count",
        "description": "How many notes there are.",
        "inputSchema": shape(),
        "outputSchema": shape(notes={"type": "integer"}),
    },
    {"name": "fail", "description": "Fail.", "inputSchema": shape(how={"type": "string"})},
]


def text(value: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": value}], **more}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def call(name: str, arguments: dict) -> dict:
    notes = Path("/workspace/notes.txt")
    lines = notes.read_text().splitlines() if notes.exists() else []
    match name:
        case "add":
            notes.write_text("\n".join([*lines, arguments["text"]]) + "\n")
            return text(f"note {len(lines) + 1}")
        case "all":
            return text("\n".join(lines))
        case "draw":
            picture = base64.b64encode(PICTURE).decode()
            return {
                "content": [
                    {"type": "text", "text": "Here it is."},
                    {"type": "image", "mimeType": "image/png", "data": picture},
                    {"type": "resource", "resource": {"uri": "file:///a/b.txt", "text": "inline"}},
                    {"type": "resource", "resource": {"uri": "file:///a/c.bin", "blob": picture}},
                    {"type": "resource_link", "name": "more", "uri": "https://example.com/more"},
                    {"type": "audio", "mimeType": "audio/wav", "data": "no base64!"},
                ]
            }
        case "look":
            seen = {
                "token": os.environ.get("TOKEN"),
                "mode": os.environ.get("MODE"),
                "secrets": names(Path("/run/longstride/secrets")),
                "folder": names(Path(__file__).parent),
                "cwd": str(Path.cwd()),
            }
            return text(json.dumps(seen))
        case "count":
            return {"content": [], "structuredContent": {"notes": len(lines)}}
        case "fail":
            return fail(arguments["how"])
    raise KeyError(name)


def fail(how: str) -> dict:
    match how:
        case "tool":
            return text("it did not work", isError=True)
        case "exit":
            print("the disk is on fire", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            time.sleep(3600)
        case "shape":
            return text("x", structuredContent={"notes": "many"})
    raise ValueError(how)


def answer(method: str, params: dict) -> dict:
    match method:
        case "initialize":
            about = {"name": "notes", "version": "1.2"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return call(params["name"], params["arguments"])
    raise LookupError(method)


def main() -> None:
    print("a banner that is no message", flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        try:
            reply = {"result": answer(message["method"], message.get("params", {}))}
        except (LookupError, ValueError) as error:
            reply = {"error": {"code": -32000, "message": repr(error)}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
