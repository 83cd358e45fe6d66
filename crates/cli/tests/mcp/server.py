"""An MCP server with one tool, built with the official SDK. A test reads what it prints on stderr."""

import os
import sys

from mcp.server import MCPServer

server = MCPServer("counting")
count = 0


@server.tool()
def add(amount: int) -> str:
    """Add to the counter. The answer has the new value of the counter and the process id of the server."""
    global count
    count += amount
    return f"{count} in {os.getpid()}"


print("serving", file=sys.stderr, flush=True)
server.run("stdio")
print("served", file=sys.stderr, flush=True)
