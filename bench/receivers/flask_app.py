"""A receiver of the usual Python shape: Flask, psycopg with its pool, one transaction per request.

Run by gunicorn (see `bench.webhooks`). It checks the same signature, reads the same fields and writes
the same row as ours.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from datetime import UTC, datetime

from flask import Flask, request
from psycopg_pool import ConnectionPool

_INSERT = """
INSERT INTO deliveries
    (host_id, app_id, guid, event, action, installation_id, payload, received_at, not_before)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (host_id, guid) DO NOTHING
"""


def create_app() -> Flask:
    secret = os.environ["WEBHOOK_SECRET"].encode()
    host, app_id = int(os.environ["HOST_ID"]), int(os.environ["APP_ID"])
    threads = int(os.environ["THREADS"])
    pool = ConnectionPool(os.environ["DATABASE_URL"], min_size=threads, max_size=threads, open=True)
    app = Flask(__name__)

    @app.post("/webhooks/github")
    def webhook() -> tuple[dict[str, str], int]:
        body = request.get_data()
        signature = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature, request.headers.get("X-Hub-Signature-256", "")):
            return {"error": "wrong signature"}, 401
        event = request.get_json()
        now = datetime.now(UTC)
        with pool.connection() as connection:
            inserted = connection.execute(
                _INSERT,
                (
                    host,
                    app_id,
                    request.headers["X-GitHub-Delivery"],
                    request.headers["X-GitHub-Event"],
                    event.get("action"),
                    (event.get("installation") or {}).get("id"),
                    body,
                    now,
                    now,
                ),
            ).rowcount
        if inserted:
            return {"outcome": "stored"}, 202
        return {"outcome": "duplicate"}, 200

    return app
