"""Serves a stock of tools over HTTP: GET /health, and GET /items?page=1."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


def settings():
    """Read and check the settings beside this file."""
    told = json.loads(Path(__file__).with_name("settings.json").read_text())
    if told["address"] != "127.0.0.1":
        sys.exit(f"address: {told['address']} is open to the network; only 127.0.0.1 is allowed")
    if not isinstance(told["page_size"], int) or told["page_size"] != 10:
        sys.exit(f"page_size: must be the number 10, is {told['page_size']!r}")
    if not Path(told["stock"]).is_file():
        sys.exit(f"stock: there is no file {told['stock']}")
    return told


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/health":
            self.answer({"ok": True})
        elif url.path == "/items":
            page, size = int(parse_qs(url.query).get("page", ["1"])[0]), self.server.told["page_size"]
            items = self.server.items[(page - 1) * size : page * size]
            self.answer({"items": items, "pages": -(-len(self.server.items) // size)})
        else:
            self.send_error(404)

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    told = settings()
    server = ThreadingHTTPServer((told["address"], int(os.environ["STOCK_PORT"])), Handler)
    server.told = told
    server.items = [{"name": name, "count": count} for name, count in json.loads(Path(told["stock"]).read_text()).items()]
    server.serve_forever()
