"""A whole target behind HTTP, in the standard library: how bright and how red a picture is."""

import base64
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from PIL import Image

ABOUT = {"name": "Brightness", "concepts": ["bright", "red"], "batch_size": 8}


def score(picture: str) -> list[float]:
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))), dtype=float) / 255
    return [pixels.mean(), pixels[:, :, 0].mean()]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(ABOUT)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer({"scores": [score(picture) for picture in asked["images"]]})

    def answer(self, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
