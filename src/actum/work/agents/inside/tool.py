"""actum-tool: call a tool from inside a work item.

    actum-tool list                         list the tools
    actum-tool call TOOL [ARGUMENT...] [-p NAME=VALUE]... [--stdin]
    actum-tool mcp                          the same tools as an MCP server on stdin and stdout

A VALUE is JSON if it can be read as JSON (7 is a number, '"7"' is text), and text otherwise.
Exits with the tool's own code; 3 if the call was refused, 70 if the work item is over.
"""

import json
import os
import socket
import sys

VERSION = "2025-06-18"


def ask(document):
    host, _, port = os.environ["ACTUM_TOOLS"].partition(":")
    try:
        with socket.create_connection((host, int(port))) as line, line.makefile("rwb") as lines:
            lines.write(json.dumps(document).encode() + b"\n")
            lines.flush()
            answer = lines.readline()
    except OSError:
        answer = b""
    if not answer:
        print("actum-tool: the work item is over", file=sys.stderr)
        sys.exit(70)
    return json.loads(answer)


def main(words):
    if words[:1] == ["list"]:
        for tool in ask({"ask": "tools"}):
            print(f"{tool['name']}\t{tool['description']}")
        return 0
    if words[:1] == ["mcp"]:
        return serve()
    if len(words) < 2 or words[0] != "call":
        print(__doc__, file=sys.stderr)
        return 2
    name, arguments, parameters, stdin = words[1], [], {}, None
    rest = iter(words[2:])
    for word in rest:
        if word == "-p":
            key, _, value = next(rest, "").partition("=")
            try:
                parameters[key] = json.loads(value)
            except ValueError:
                parameters[key] = value
        elif word == "--stdin":
            stdin = sys.stdin.read()
        elif word == "--":
            arguments += list(rest)
        else:
            arguments.append(word)
    answer = call(name, arguments, parameters, stdin)
    result = answer.get("result")
    if result is None:
        print(f"actum-tool: {answer['outcome']}: {answer['message']}", file=sys.stderr)
        return 3
    sys.stdout.write(result["stdout"])
    sys.stderr.write(result["stderr"])
    return result["exit_code"] if result["exit_code"] is not None else 1


def call(name, arguments, parameters, stdin):
    asked = {"tool": name, "arguments": arguments, "parameters": parameters}
    if stdin is not None:
        asked["stdin"] = stdin
    return ask({"ask": "call", "call": asked})


def serve():
    """Serve the tools over the Model Context Protocol, one JSON document per line."""
    for line in sys.stdin:
        said = json.loads(line)
        if "id" not in said:
            continue  # a notification
        try:
            reply = {"result": answer_to(said["method"], said.get("params") or {})}
        except KeyError:
            reply = {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], **reply}), flush=True)
    return 0


def answer_to(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", VERSION),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "actum", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {
            "tools": [
                {
                    "name": tool["name"],
                    "description": tool["description"],
                    "inputSchema": {
                        "type": "object",
                        "properties": {
                            "arguments": {"type": "array", "items": {"type": "string"}},
                            "parameters": {"type": "object"},
                            "stdin": {"type": "string"},
                        },
                    },
                }
                for tool in ask({"ask": "tools"})
            ]
        }
    if method == "tools/call":
        given = params.get("arguments") or {}
        answer = call(
            params["name"],
            given.get("arguments", []),
            given.get("parameters", {}),
            given.get("stdin"),
        )
        result = answer.get("result")
        text = answer["message"] if result is None else result["stdout"] + result["stderr"]
        return {
            "content": [{"type": "text", "text": text}],
            "isError": answer["outcome"] != "SUCCEEDED",
        }
    raise KeyError(method)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
