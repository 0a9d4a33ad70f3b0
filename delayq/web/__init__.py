"""The dashboard: queues seen and kept in a browser. `app` makes an ASGI application of it.

How it is made, for who adds to it:

- **A page is one module of `delayq.web.pages`** and one template of the same name: ``pages/queue.py`` and
  ``templates/queue.html``. The module has `ROUTES` (a route's name is what ``url()`` takes), and may have a `NAV` or a
  `TAB`, an `Entry` that base.html shows in the navigation of a server, or above the pages of a queue. The package
  lists its modules in `PAGES`, in the order of their entries.
- **A path names its server, and its queue**: ``/{server:name}/queues/{queue:name}/…``. The convertor ``name`` takes any
  name or id, slashes included. `reaching.server_of` and `reaching.queue_of` read them, and raise a 404. In templates,
  ``url("queue", server=…, queue=…)`` builds paths that hold under a prefix and behind a proxy: no link is written by
  hand. Static files come from ``asset("style.css")``.
- **A page is answered by** ``rendering.page(request, "queue.html", …)``; its template extends ``base.html``, fills the
  blocks ``title`` and ``main``, and sets ``active`` to the name of its route. Pieces that several templates show are
  macros of ``parts.html``. There is no inline script and no inline style: the browser would refuse them.
- **What changes anything is a POST**, and answers with `acting.back`: a redirect that tells what was done. Its form
  begins with ``{{ parts.token(token) }}``; a template leaves it out where ``may_act`` is false. The guard refuses with
  403 whatever lacks the token, comes from elsewhere or from one who may only read: an action has no check of its own.
  What was sent is in ``visit(request).form``. ``async with acting.audited(request, "pause", queue="emails")`` writes
  the audit line, whatever becomes of the block.
- **What takes long** is a `tasks.Task` with a work of `works`: started by ``app.state.tasks.start``, it outlives its
  request, is shown by the page ``task``, and stops between two steps. A form has a word of its own, ``once``: sent
  twice, it does nothing twice.
- **What is live** is a template of its own, whose name begins with an underscore, included by its page and sent again
  by ``live.stream``, as far as it has changed; the page holds it in an element with ``hx-sse:connect`` and
  ``hx-swap="innerMorph"``. `watching.Watch` looks at a server once for all browsers.
- Errors are raised, not rendered: a `DelayqError` becomes a page with its remedy (`failing`), of status 400, 409 or
  503.
"""

from delayq.web.app import Dashboard, app
from delayq.web.auth import Login, Role, Token, User, Users, user_line

__all__ = ["Dashboard", "Login", "Role", "Token", "User", "Users", "app", "user_line"]
