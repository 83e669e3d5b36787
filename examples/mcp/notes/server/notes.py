"""An MCP server that remembers notes for as long as it runs. Standard library only."""

import json
import sys

notes: dict[str, str] = {}


def schema(*names: str) -> dict:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


TOOLS = [
    {"name": "remember", "description": "Keep a note.", "inputSchema": schema("title", "text")},
    {"name": "recall", "description": "Read a note back.", "inputSchema": schema("title")},
]


def text(content: str, *, error: bool = False) -> dict:
    return {"content": [{"type": "text", "text": content}], "isError": error}


def call(name: str, arguments: dict) -> dict:
    if name == "remember":
        notes[arguments["title"]] = arguments["text"]
        return text(f"{len(notes)} notes")
    if arguments["title"] not in notes:
        return text(f"there is no note {arguments['title']}", error=True)
    return text(notes[arguments["title"]])


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1.0.0"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments", {}))
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
