"""A web application with Flask, whose handlers use what belongs to the application: its settings, loggers, databases.

pip install flask gunicorn, and delayq with the extra embedded
cd examples
flask --app flask_app run                   the routes
delayq consume flask_app:mails              handles the messages; in production, gunicorn flask_app:app beside it

curl -d '{"number": 7, "email": "ann@example.org"}' -H 'Content-Type: application/json' localhost:5000/users
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Flask, current_app, request
from flask.typing import ResponseReturnValue

from delayq import Message, Middleware, Queue, ServerError

app = Flask(__name__)
app.config["SENDER"] = "shop@example.org"

middleware = Middleware()
mails = Queue("mails", middleware=middleware)


@middleware.around_delivery
def in_the_application(_: Message) -> Iterator[None]:
    """Run each handler in a context of the application, as Flask does for a request."""
    with app.app_context():
        yield


@mails.handler
def deliver(message: Message[dict[str, Any]]) -> None:
    print("mail to", message.payload["to"], "from", current_app.config["SENDER"], flush=True)


@app.post("/users")
def sign_up() -> ResponseReturnValue:
    user = request.get_json()
    # Stored once, however often the client tries again. Ids are shown, in logs too: they are no place for an address.
    sent = mails.send({"to": user["email"]}, id=f"welcome-{user['number']}")
    return {"id": sent.id}, 202


@app.errorhandler(ServerError)
def unavailable(error: ServerError) -> ResponseReturnValue:
    return {"error": str(error)}, 503, {"Retry-After": "5"}
